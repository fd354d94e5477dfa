"""Queries: write the rows of a database to a file, a line of column names and one JSON array a line.

A query runs in a thread of its own, so that a database that does not answer blocks the import no longer than its feed
allows. No message holds a value, a parameter or an address.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.reading.query_marks import NO_OVERLAP, NewestWatermarks, NoMark, Watermark, since
from pipelines.feeds.terms.numbers import with_a_decimal
from pipelines.feeds.terms.schema import Query, named_by
from pipelines.feeds.terms.times import in_hours
from pipelines.home.batch import UnreadableFile

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Select

ROWS_AT_ONCE = 2_000
MOST_ALIKE = 5_000
"""The most rows that are sorted at once. Rows with equal values in the order's columns are sorted by their texts."""
STOPS = ("cancel", "interrupt")
"""The names of the driver methods by which another thread ends a query."""
DATES = ("____-%", "____0___", "____1___")
"""LIKE patterns of ISO 8601 dates: `2026-03-01` with any text after it, and `20260301`."""
Row = Sequence[object]


@dataclass(frozen=True)
class QueryFile:
    """The file of a query's rows: the number of rows, and the mark up to which the database was read."""

    rows: int
    mark: Watermark | None


def run_query(feed: Feed, to: Path, mark: Watermark | None, now: datetime) -> QueryFile:
    """Write the rows of a feed's query since a mark; all rows without a mark, or if few are new. Raises Unreadable."""
    query = feed.file.query
    assert query is not None  # noqa: S101 - asked of a feed with a query
    newest, rows = NewestWatermarks(now), 0
    stops: list[Callable[[], object]] = []
    answers = _patiently(feed, query, _rows_of(feed, query, mark, stops), stops)
    names = list(next(answers))
    place = names.index(query.watermark) if query.watermark else None
    with to.open("w", encoding="utf-8", newline="\n") as out:
        out.write(json.dumps(names, ensure_ascii=False) + "\n")
        for row in answers:
            try:
                newest.note(None if place is None else row[place])
            except NoMark as error:
                raise UnreadableFile(f"{feed.name}: {query.watermark}: {error}") from None
            out.write(_line(row) + "\n")
            rows += 1
    if query.overlap is None and newest.mark and newest.mark.kind == "number":
        raise UnreadableFile(f"{feed.name}: {query.watermark}: {NO_OVERLAP}")
    if mark and query.watermark and newest.is_before(mark):
        raise UnreadableFile(
            f"{feed.name}: {query.database} no longer has a row as new as the newest row so far, so rows may be missed;"
            f" if the database was restored or rows were removed, run chartferry import --whole {feed.name}"
        )
    if mark and newest.are_few(mark):
        return run_query(feed, to, None, now)
    return QueryFile(rows, newest.mark)


# --- The database ---------------------------------------------------------------------------------


def _rows_of(feed: Feed, query: Query, mark: Watermark | None, stops: list[Callable[[], object]]) -> Iterator[Row]:
    """Yield the names of the columns, then the rows. stops: receives the function that ends the query early.

    Raises Unreadable.
    """
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    where = f"{feed.name}: the query on {query.database}"
    try:
        url = make_url(feed.environ.get(query.database, ""))
    except (ArgumentError, ValueError):  # a port that is no number: its text may be a password
        said = f"{feed.name}: the environment variable {query.database} has no database URL"
        raise UnreadableFile(said) from None
    try:
        engine = create_engine(url, hide_parameters=True)
        try:
            with engine.connect() as connection:
                driver = connection.connection.dbapi_connection
                stops += [stop for name in STOPS if (stop := getattr(driver, name, None))][:1]
                yield from _asked(feed, query, mark, connection)
        finally:
            engine.dispose()
    except NoMark as error:
        raise UnreadableFile(f"{feed.name}: {query.watermark}: {error}") from None
    except (SQLAlchemyError, ImportError, OSError, ValueError) as error:
        raise UnreadableFile(
            f"{where} could not be run ({type(error).__name__}); check the database and the query"
        ) from None


def _asked(feed: Feed, query: Query, mark: Watermark | None, connection: "Connection") -> Iterator[Row]:
    connection = connection.execution_options(stream_results=True, max_row_buffer=ROWS_AT_ONCE)
    with connection.execute(_statement(query, [], None, nothing=True)) as nothing:
        names = list(nothing.keys())
    if query.watermark and query.watermark not in names:
        raise UnreadableFile(
            f"{feed.name}: the query returns no column {query.watermark}; it returns {', '.join(names)}"
        )
    yield names
    key = feed.file.columns.get(feed.kind.key)
    order = [name for name in (query.watermark, *(named_by(key) if key else ())) if name in names]
    bound = since(mark, query.overlap) if mark and query.watermark else None
    places = [names.index(name) for name in order]
    with connection.execute(_statement(query, order, bound)) as found:
        for some in found.partitions(ROWS_AT_ONCE):
            yield from _in_order([tuple(row) for row in some], places)


def _statement(query: Query, order: Sequence[str], bound: object, nothing: bool = False) -> "Select[Any]":
    """Return the SELECT from the query. The query's text is used unchanged: a colon in it names no parameter."""
    from sqlalchemy import and_, column, false, literal_column, or_, select, text

    given = query.sql.strip().removesuffix(";").replace(":", r"\:")
    columns: list[ColumnElement[Any]] = [
        column(name) for name in dict.fromkeys([*order, *filter(None, [query.watermark])])
    ]
    asked = text(given + "\n").columns(*columns).subquery("asked")
    found: Select[Any] = select(literal_column("*")).select_from(asked)
    if nothing:
        return found.where(false())
    if bound is not None:
        watermark = asked.c[query.watermark]
        wanted = [watermark >= bound, watermark.is_(None)]
        if isinstance(bound, str):  # other texts, such as an empty one, may be less than any date
            wanted.append(and_(*(watermark.not_like(form) for form in DATES)))
        found = found.where(or_(*wanted))
    return found.order_by(*(asked.c[name] for name in order))


def _in_order(rows: Sequence[Row], places: Sequence[int]) -> Iterator[Row]:
    """Yield the rows in a fixed order where the database may return any, so that equal rows make an equal file."""
    told = itemgetter(*places) if places else lambda _: None
    for _, alike in groupby(rows, told):
        while some := list(islice(alike, MOST_ALIKE)):
            yield from sorted(some, key=_line) if len(some) > 1 else some


# --- Patience -------------------------------------------------------------------------------------

END = object()


def _patiently(feed: Feed, query: Query, rows: Iterator[Row], stops: Sequence[Callable[[], object]]) -> Iterator[Row]:
    """Yield rows from a thread, which is abandoned if it gives none for as long as the feed allows.

    Raises Unreadable.
    """
    ready: Queue[Any] = Queue(2)
    given_up = threading.Event()

    def work() -> None:
        try:
            while not given_up.is_set():
                some = list(islice(rows, ROWS_AT_ONCE))
                _put(ready, some or END, given_up)
                if not some:
                    return
        except BaseException as error:  # noqa: BLE001 - raised again by the reader
            _put(ready, error, given_up)

    threading.Thread(target=work, name=f"query {feed.name}", daemon=True).start()
    try:
        while (found := ready.get(timeout=query.wait_seconds)) is not END:
            if isinstance(found, BaseException):
                raise found
            yield from found
    except Empty:
        for stop in stops:
            stop()
        raise UnreadableFile(
            f"{feed.name}: {query.database} gave no rows for {query.wait_seconds:,} s; try again later, or set a longer"
            " wait in the feed file (query.wait_seconds)"
        ) from None
    finally:
        given_up.set()


def _put(ready: "Queue[Any]", found: object, given_up: threading.Event) -> None:
    while not given_up.is_set():
        try:
            ready.put(found, timeout=1)
        except Full:
            continue
        return


# --- Values ---------------------------------------------------------------------------------------


def _line(row: Row) -> str:
    return f"[{', '.join(map(_value, row))}]"


def _value(value: object) -> str:
    """Return a value as JSON: numbers with all digits, times as ISO 8601, and `{}` for bytes that are no text."""
    if value is None or isinstance(value, bool | str | int):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        value = with_a_decimal(Decimal(repr(value)))
    if isinstance(value, Decimal):
        return f"{value:f}" if value.is_finite() else "null" if value.is_nan() else json.dumps(str(value))
    if isinstance(value, bytes | memoryview):
        return _text(bytes(value))
    return json.dumps(_written(value), ensure_ascii=False)


def _text(value: bytes) -> str:
    try:
        return json.dumps(value.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        return "{}"


def _written(value: Any) -> str:
    if isinstance(value, list | dict):
        return json.dumps(value, default=str, ensure_ascii=False)
    if isinstance(value, timedelta):
        return in_hours(value)
    return str(value.isoformat() if hasattr(value, "isoformat") else value)

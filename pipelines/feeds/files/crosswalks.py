"""Crosswalks: tables that translate another system's values, from a CSV or a database. No message holds a value."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.feeds.terms.columns import MADE_A_NUMBER
from pipelines.feeds.terms.texts import composed_text, folded_text
from pipelines.feeds.terms.values import Crosswalk
from pipelines.home.batch import reading_file
from pipelines.home.exits import WronglyAsked
from pipelines.home.files import written_whole

if TYPE_CHECKING:
    from sqlalchemy import Connection

Pairs = Iterable[tuple[int, object, object]]


class BadCrosswalk(WronglyAsked):
    """A crosswalk cannot be used. The message is one line that names it."""


def read_csv(folder: Path, crosswalk: Crosswalk) -> dict[str, str]:
    """Return the CSV beside the feed file, as value to value."""
    place = f"crosswalk {crosswalk.file}"
    encoding = "utf-8-sig" if crosswalk.encoding.lower() in ("utf-8", "utf8") else crosswalk.encoding
    try:
        with (
            reading_file(place, BadCrosswalk),
            (folder / str(crosswalk.file)).open(newline="", encoding=encoding) as file,
        ):
            rows = csv.reader(file, strict=True, delimiter=crosswalk.delimiter)
            names = [composed_text(cell.strip()) for cell in next(rows, [])]
            at, wanted = _places(place, names, crosswalk), _wanted(place, names, crosswalk)
            whole = (row for row in rows if _is_whole(place, row, rows.line_num, len(names), max(at)))
            return _table(place, ((rows.line_num, *_picked(row, at)) for row in whole if wanted(row)))
    except (csv.Error, UnicodeError):
        raise BadCrosswalk(
            f"{place}: not a CSV in {crosswalk.encoding.upper()}; correct it, or set its encoding in the feed file"
        ) from None


def read_database(crosswalk: Crosswalk, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the rows of the query on the database that the environment names, as value to value."""
    from sqlalchemy import create_engine  # half the start time of a helper process, which reads no crosswalk
    from sqlalchemy.exc import SQLAlchemyError

    place = f"crosswalk {crosswalk.database}"
    url = environ.get(str(crosswalk.database))
    if not url:
        raise BadCrosswalk(f"{place}: the environment variable {crosswalk.database} has no database URL")
    try:
        engine = create_engine(url, hide_parameters=True)
        try:
            with engine.connect() as connection:
                return _queried(place, connection, crosswalk)
        finally:
            engine.dispose()
    except (SQLAlchemyError, ImportError, OSError, ValueError) as error:
        raise BadCrosswalk(f"{place}: the query could not be run ({type(error).__name__})") from None


def _queried(place: str, connection: "Connection", crosswalk: Crosswalk) -> dict[str, str]:
    found = connection.execution_options(stream_results=True).exec_driver_sql(str(crosswalk.query))
    if not found.returns_rows:
        raise BadCrosswalk(f"{place}: the query returns no rows; write a SELECT")
    names = list(found.keys())
    at, wanted = _places(place, names, crosswalk), _wanted(place, names, crosswalk)
    rows = ((line, tuple(row)) for line, row in enumerate(found, 1))
    return _table(place, ((line, *_picked(row, at)) for line, row in rows if wanted(row)))


def _places(place: str, names: Sequence[str], crosswalk: Crosswalk) -> tuple[int, int]:
    if crosswalk.from_ is None or crosswalk.to is None:
        if len(names) < 2:
            raise BadCrosswalk(f"{place}: the query returns one column; it must return two")
        return 0, 1
    if not {crosswalk.from_, crosswalk.to} <= set(names):
        raise BadCrosswalk(f"{place}: it lacks the column {crosswalk.from_} or {crosswalk.to}")
    if twice := [name for name in (crosswalk.from_, crosswalk.to) if names.count(name) > 1]:
        raise BadCrosswalk(f"{place}: it has the column {twice[0]} more than once")
    return names.index(crosswalk.from_), names.index(crosswalk.to)


def _is_whole(place: str, row: Sequence[str], line: int, width: int, last: int) -> bool:
    """Return True, or raise BadCrosswalk for a row with more fields than the header.

    A delimiter in an unquoted text may have moved the id that is used. If the two used columns come first, no id can
    have moved, and the row is accepted.
    """
    if last > 1 and any(cell.strip() for cell in row[width:]):
        raise BadCrosswalk(
            f"{place}: line {line}: more fields than the header; put quotes around a text that contains the delimiter"
        )
    return True


def _wanted(place: str, names: Sequence[str], crosswalk: Crosswalk) -> Callable[[Sequence[object]], bool]:
    """Return a test that is true for a row whose cells meet `where`."""
    if lacking := [name for name, _ in crosswalk.where if name not in names]:
        raise BadCrosswalk(f"{place}: where: it has no column {', '.join(lacking)}")
    tests = [(names.index(name), test) for name, test in crosswalk.where]

    def wanted(row: Sequence[object]) -> bool:
        cells = ((row[at] if at < len(row) else None, test) for at, test in tests)
        return all(test.holds(None if cell in (None, "") else str(cell)) for cell, test in cells)

    return wanted


def _picked(row: Sequence[object], at: tuple[int, int]) -> tuple[object, object]:
    return tuple(row[place] if place < len(row) else None for place in at)  # type: ignore[return-value]


def _table(place: str, pairs: Pairs) -> dict[str, str]:
    """Return the pairs as value to value. Raises BadCrosswalk if a value has two translations."""
    found: dict[str, str] = {}
    for line, *pair in pairs:
        before, after = ("" if cell is None else composed_text(str(cell).strip()) for cell in pair)
        for cell in (before, after):
            if MADE_A_NUMBER.fullmatch(cell):
                raise BadCrosswalk(
                    f"{place}: line {line}: an id was turned into a number, as spreadsheets do; enter it as text"
                )
        before = folded_text(before)
        if found.setdefault(before, after) != after:
            raise BadCrosswalk(
                f"{place}: line {line}: the value has another translation on an earlier line; keep one of them"
            )
    found.pop("", None)
    return {before: after for before, after in found.items() if after}


# -- new entries


def add_entries(folder: Path, walk: Crosswalk, entries: Mapping[str, str]) -> int:
    """Append to a CSV the entries that it lacks, in one step; return how many.

    Raises BadCrosswalk, and then nothing is written.
    """
    place = f"crosswalk {walk.name}"
    if walk.file is None:
        raise BadCrosswalk(f"{place}: its entries are in a database; add new ones there")
    if any(MADE_A_NUMBER.fullmatch(entry) for entry in entries.values()):
        raise BadCrosswalk(f"{place}: an id was turned into a number, as spreadsheets do; enter it as text")
    known = read_csv(folder, walk)
    new = {value: entry for value, entry in entries.items() if folded_text(composed_text(value)) not in known}
    path = folder / walk.file
    text = path.read_bytes().decode(walk.encoding)
    rows = csv.reader(io.StringIO(text), delimiter=walk.delimiter)
    names = [composed_text(cell.strip().removeprefix("\ufeff")) for cell in next(rows, [])]
    filled = {name: next(iter(test.is_), "") for name, test in walk.where}
    out = io.StringIO()
    out.write(text if text.endswith(("\n", "\r")) or not text else text + "\n")
    write = csv.writer(out, delimiter=walk.delimiter, lineterminator="\r\n" if "\r\n" in text else "\n").writerow
    for value, entry in new.items():
        cells = {**filled, str(walk.from_): value, str(walk.to): entry}
        write([cells.get(name, "") for name in names])
    try:
        with written_whole(path, path.stat().st_mode & 0o777) as part:
            part.write_bytes(out.getvalue().encode(walk.encoding))
            read_csv(folder, walk.model_copy(update={"file": part.name}))
    except (OSError, UnicodeError) as error:
        raise BadCrosswalk(f"{place}: cannot be written: {type(error).__name__}") from None
    return len(new)

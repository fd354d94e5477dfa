"""Rows to mapped records: what a feed file says, done a chunk at a time. No rule of the interface is known here.

Each distinct value of a column is converted once per chunk.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipelines.batch import Unreadable
from pipelines.feeds.catalog import Feed, walk
from pipelines.feeds.columns import MISSING, Column, Conventions, Fault, converter, labels
from pipelines.feeds.paths import Path, parse_path, walk_path
from pipelines.feeds.record import Found
from pipelines.feeds.schema import Crosswalk, Test, Value

Cells = NDArray[np.object_]
Walks = Mapping[Crosswalk, Mapping[str, str]]


class Mapped(NamedTuple):
    """The rows of a chunk as values: one array per column, and what is wrong by row."""

    columns: dict[str, Cells]
    faults: dict[int, list[Found]]


class Rows:
    """The rows of a chunk, asked for by column. Cells are texts, or None where nothing is."""

    def __init__(self, rows: Sequence[Any], header: Mapping[str, int] | None) -> None:
        self._rows = rows
        self._header = header
        self._found: dict[str, Cells] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def cells(self, name: str) -> Cells:
        """A column of single values. An array or object in it is a fault."""
        if name not in self._found:
            self._found[name] = _array(self._texts(name))
        return self._found[name]

    def _texts(self, name: str) -> Iterable[object]:
        if self._header is None:
            return map(_single, self.raw(name))
        place = self._header.get(name)
        return (row[place] or None for row in self._rows) if place is not None else [None] * len(self)

    def raw(self, name: str) -> list[Any]:
        """A column as it is in the source: in NDJSON also arrays and objects."""
        if self._header is None:
            path = parse_path(name)
            if len(path) == 1:
                return [row.get(name) for row in self._rows]
            return [walk_path(row, path) for row in self._rows]
        return list(self.cells(name))


def _single(found: object) -> object:
    """A JSON value as the text that a CSV would have."""
    if found is None or found == "":
        return None
    if isinstance(found, str):
        return found
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, Decimal):
        return f"{found:f}" if abs(found.adjusted()) < 40 else str(found)
    return Fault("FEED-FILE-09", "an array or object where one value is expected")


def _array(found: Iterable[object]) -> Cells:
    return np.fromiter(found, dtype=object)


class Mapper:
    """A feed made ready for the rows of one file."""

    def __init__(self, feed: Feed, header: Sequence[str] | None, file_name: str) -> None:
        self.feed = feed
        self._header = None if header is None else {name: place for place, name in enumerate(header)}
        self._walks = feed.crosswalks
        self._conventions = Conventions(ZoneInfo(feed.file.timezone), feed.file.dates)
        self._plan = [
            (feed.kind.by_name[name], value, source_label(value), self._converter(feed.kind.by_name[name]))
            for name, value in feed.file.columns.items()
        ]
        self.names = {column.name: label for column, _, label, _ in self._plan}
        if header is not None:
            _check_header(feed, header, file_name)

    def _converter(self, column: Column) -> Callable[[Any], object]:
        return converter(column, self._conventions) if column.shape not in ("labels", "comments") else labels

    def rows(self, rows: Sequence[Any]) -> Rows:
        return Rows(rows, self._header)

    def taken(self, rows: Rows) -> NDArray[np.bool_] | None:
        """Which rows the feed takes; None for all."""
        return _all_true(rows, self.feed.file.take) if self.feed.file.take else None

    def map(self, rows: Rows) -> Mapped:
        """The values of every column, and the faults of every row that has some."""
        columns: dict[str, Cells] = {}
        faults: dict[int, list[Found]] = {}
        for column, value, label, convert in self._plan:
            cells, wrong = self._column(column, value, rows, convert)
            columns[column.name] = cells
            for row, fault in wrong:
                faults.setdefault(row, []).append(Found(fault, column.element, label))
        return Mapped(columns, faults)

    def _column(
        self, column: Column, value: Value, rows: Rows, convert: Callable[[Any], object]
    ) -> tuple[Cells, list[tuple[int, Fault]]]:
        if column.shape == "comments":
            cells = self._comments(value, rows)
        elif column.shape == "labels":
            cells = _array(None if f is None else convert(f) for f in evaluate_lists(value, rows, self._walks))
        else:
            cells = each_distinct(evaluate(value, rows, self._walks), convert)
        wrong = [(row, cell) for row, cell in enumerate(cells) if type(cell) is Fault]
        for row, _ in wrong:
            cells[row] = None
        if column.required:
            faulty = {row for row, _ in wrong}
            missing = np.flatnonzero(pd.isna(cells))
            wrong.extend((int(row), Fault(column.rule, MISSING)) for row in missing if row not in faulty)
        return cells, wrong

    def _comments(self, value: Value, rows: Rows) -> Cells:
        """Arrays of objects, each a comment: `(text, author, time)`."""
        arrays = rows.raw(value.column or "")
        whole = [_objects(found) for found in arrays]
        flat = Rows([part for found in whole if isinstance(found, list) for part in found], None)
        if not len(flat):
            return _array(found if isinstance(found, Fault) else None for found in whole)
        chosen = bool((value.each or {})["text"].when)
        parts = iter(zip(*(self._comment_part(value, name, flat) for name in _COMMENT), strict=True))
        return _array(
            _sound_comments([next(parts) for _ in found], chosen) if isinstance(found, list) else found
            for found in whole
        )

    def _comment_part(self, value: Value, name: str, flat: Rows) -> Cells:
        each = (value.each or {}).get(name)
        if each is None:
            return np.full(len(flat), None, dtype=object)
        column = self.feed.kind.by_name[_COMMENT[name]]
        return each_distinct(evaluate(each, flat, self._walks), converter(column, self._conventions))


_COMMENT = {"text": "comment", "author_id": "comment_author_id", "time": "comment_time"}


def _objects(found: Any) -> list[Any] | Fault | None:
    if found is None or found == []:
        return None
    if isinstance(found, list) and all(isinstance(part, dict) for part in found):
        return found
    return Fault("FEED-FILE-09", "an array of objects is expected")


def _sound_comments(comments: list[tuple[Any, ...]], chosen: bool) -> list[tuple[Any, ...]] | Fault:
    """The comments of a row, or the first fault among them. chosen: those without a text are meant to be left out."""
    if chosen:
        comments = [comment for comment in comments if comment[0] is not None]
    wrong = (part for comment in comments for part in comment if isinstance(part, Fault))
    return next(wrong, comments)


# --- What a feed file's value says ----------------------------------------------------------------


def evaluate(value: Value, rows: Rows, walks: Walks) -> Cells:
    """The texts that a value stands for, row by row; None where it stands for nothing."""
    cells = _source(value, rows, walks)
    if value.when:
        cells = _only(cells, _all_true(rows, value.when))
    if value.values:
        cells = each_distinct(cells, lambda text: value.values.get(text.strip(), value.otherwise or text))
    if value.crosswalk:
        table, name = walks[value.crosswalk], value.crosswalk.file
        missing = Fault("FEED-FILE-06", f"no entry in the crosswalk {name}")
        cells = each_distinct(cells, lambda text: table.get(text.strip(), missing))
    if value.scale is not None:
        scale = value.scale
        cells = each_distinct(cells, lambda text: _scaled(text, scale))
    if value.before:
        cells = each_distinct(cells, lambda text: value.before + text)
    return cells


def _only(cells: Cells, wanted: NDArray[np.bool_]) -> Cells:
    cells = cells.copy()
    cells[~wanted] = None
    return cells


def _source(value: Value, rows: Rows, walks: Walks) -> Cells:
    if value.column is not None:
        return rows.cells(value.column) if value.each is None else _texts_of_each(value, rows, walks)
    if value.constant is not None:
        return np.full(len(rows), value.constant, dtype=object)
    if value.first is not None:
        return _first([evaluate(part, rows, walks) for part in value.first])
    return _join(value.join or (), value.with_, rows, walks)


def _join(parts: Sequence[Value], between: str, rows: Rows, walks: Walks) -> Cells:
    """The texts of several values. Constants alone are nothing: where all the rest is absent, so is the whole."""
    cells = [evaluate(part, rows, walks) for part in parts]
    varying = [found for part, found in zip(parts, cells, strict=True) if part.constant is None]
    joined = _array(_joined(found, between) for found in zip(*cells, strict=True))
    return _only(joined, ~np.all([pd.isna(found) for found in varying], axis=0)) if varying else joined


def _texts_of_each(value: Value, rows: Rows, walks: Walks) -> Cells:
    """The texts of an array's objects, joined."""
    whole = [_objects(found) for found in rows.raw(value.column or "")]
    flat = Rows([part for found in whole if isinstance(found, list) for part in found], None)
    texts = iter(evaluate((value.each or {})["text"], flat, walks))
    return _array(
        _joined([next(texts) for _ in found], value.with_) if isinstance(found, list) else found for found in whole
    )


def _first(parts: Sequence[Cells]) -> Cells:
    found = parts[0]
    for part in parts[1:]:
        found = np.where(pd.isna(found), part, found)
    return found


def _joined(parts: Sequence[Any], between: str) -> object:
    wrong = next((part for part in parts if isinstance(part, Fault)), None)
    return wrong or between.join(part for part in parts if part is not None) or None


def evaluate_lists(value: Value, rows: Rows, walks: Walks) -> Iterable[Any]:
    """Like `evaluate`, for a column that takes lists: arrays of the source, and `list` of the feed file."""
    if value.column is not None and not value.values and not value.crosswalk and not value.before:
        found = rows.raw(value.column)
        return _only(_array(found), _all_true(rows, value.when)) if value.when else found
    if value.list_ is None:
        return evaluate(value, rows, walks)
    parts = [evaluate(part, rows, walks) for part in value.list_]
    return (_listed(found) for found in zip(*parts, strict=True))


def _listed(parts: Sequence[Any]) -> object:
    wrong = next((part for part in parts if isinstance(part, Fault)), None)
    return wrong or [part for part in parts if part is not None] or None


_EXACT = Context(prec=1000)


def _scaled(text: str, scale: Decimal) -> str:
    """The number times the scale; what is no number is left for the converter to tell."""
    try:
        value = Decimal(text.strip())
        return f"{_EXACT.multiply(value, scale):f}" if value.is_finite() and abs(value.adjusted()) < 40 else text
    except InvalidOperation:
        return text


def _all_true(rows: Rows, tests: Mapping[str, Test]) -> NDArray[np.bool_]:
    found = np.ones(len(rows), dtype=bool)
    for name, test in tests.items():
        holds = each_distinct(rows.cells(name), partial(_holds, test), _holds(test, None))
        found &= holds.astype(bool)
    return found


def _holds(test: Test, text: str | None) -> bool:
    text = text.strip() if isinstance(text, str) else None
    if test.present is not None and test.present != (text is not None):
        return False
    if test.is_ and text not in test.is_:
        return False
    if test.not_ and text in test.not_:
        return False
    if text is not None and test.not_starts and text.startswith(test.not_starts):
        return False
    return not test.starts or (text is not None and text.startswith(test.starts))


def each_distinct(cells: Cells, convert: Callable[[Any], object], absent: object = None) -> Cells:
    """`convert` over a column, called once for each distinct value; faults pass, and `absent` stands for None."""
    codes, distinct = pd.factorize(cells)
    table = np.empty(len(distinct) + 1, dtype=object)
    for place, found in enumerate(distinct):
        table[place] = found if type(found) is Fault else convert(found)
    table[-1] = absent
    return table[codes]


# --- The header -----------------------------------------------------------------------------------


def source_label(value: Value) -> str:
    """The source columns that a value is made of, as a reason names them."""
    return ", ".join(dict.fromkeys(part.column for part in walk(value) if part.column)) or "(constant)"


def named_columns(feed: Feed) -> dict[str, bool]:
    """Every column of the source that the feed names, and whether a file must have it."""
    names = dict.fromkeys(feed.file.take, True)
    for value in feed.file.columns.values():
        for part in walk(value):
            if part.column:
                names[part.column] = names.get(part.column, False) or not (part.optional or value.optional)
            names.update(dict.fromkeys(part.when, True))
    return names


def _check_header(feed: Feed, header: Sequence[str], file_name: str) -> None:
    """A file lacks no column that its feed names, and has none of these twice."""
    names = named_columns(feed)
    lacking = [name for name, must in names.items() if must and name not in header]
    if lacking:
        raise Unreadable(
            f"{file_name}: the header lacks {', '.join(lacking)}, which the feed {feed.name} takes; "
            "check the export, or the columns of the feed file"
        )
    twice = [name for name in names if header.count(name) > 1]
    if twice:
        raise Unreadable(f"{file_name}: the header has {', '.join(twice)} more than once; export each column once")


def unnamed_columns(feed: Feed, header: Sequence[str]) -> list[str]:
    """The columns of a file that its feed does not name."""
    names = named_columns(feed)
    if feed.builtin:
        names = names | {"_reject_id": False, "_reasons": False}
    return [name for name in header if name and name not in names]


def path_heads(feed: Feed) -> set[str]:
    """The top-level names that the feed's paths begin with, and the one that every resource has."""
    heads = {"resourceType"}
    for name in named_columns(feed):
        path: Path = parse_path(name)
        heads.add(str(path[0]))
    return heads

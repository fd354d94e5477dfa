"""Map rows to values by a feed file, a chunk at a time. The rules of the interface are elsewhere.

Each distinct value of a column is converted once per chunk.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.files.crosswalks import BadCrosswalk
from pipelines.feeds.mapping.chunk import (
    Cells,
    ChunkRows,
    RowForm,
    ValueMeans,
    absent,
    all_true,
    amounts,
    array,
    each_distinct,
    evaluate,
    evaluate_lists,
    objects_of,
    single,
)
from pipelines.feeds.mapping.header import FirstLines, check_header
from pipelines.feeds.reading.chunks import SourceRow, found_in
from pipelines.feeds.terms.columns import (
    MISSING,
    Column,
    RecordFault,
    ValueFault,
    amount,
    code,
    key,
    labels,
    number,
    plain_text,
    reference,
)
from pipelines.feeds.terms.schema import named_by, source_label
from pipelines.feeds.terms.times import Conventions, times_of
from pipelines.feeds.terms.values import Crosswalk, Test, Value
from pipelines.home.batch import UnreadableFile

Crosswalks = Mapping[Crosswalk, Mapping[str, str | ValueFault]]
NOBODY: Crosswalks = {}
"""The crosswalks by identifier of a target that is not asked for any."""


class MappedChunk(NamedTuple):
    """The rows of a chunk as values: one array per column, and the faults by row."""

    columns: dict[str, Cells]
    faults: dict[int, list[RecordFault]]


class Mapper:
    """A feed prepared for the rows of one file.

    * tables: its crosswalks, if they were read before.
    * known_as: by spelling, keys that the ledger has in another form than today's reading gives.
    * first_lines: returns the beginning of a text file, to look for a header that lacks columns.
    * people: crosswalks that the target was asked for.
    """

    def __init__(
        self,
        feed: Feed,
        header: Sequence[str] | None,
        file_name: str,
        tables: Crosswalks | None = None,
        known_as: Mapping[str, str] = {},
        first_lines: FirstLines = tuple,
        people: Crosswalks = NOBODY,
    ) -> None:
        self.feed = feed
        self.key = partial(key, known_as=known_as, decimal=feed.file.decimal)
        self._numbers = feed.file.numbers
        self._conventions = feed.file.conventions
        self.width = 0 if header is None else len(header)
        self._form = RowForm(header, feed.file.empty, self._numbers)
        if header is not None:
            check_header(feed, header, file_name, first_lines)
        try:
            self.tables: Crosswalks = {**feed.read_crosswalks(), **people} if tables is None else tables
        except BadCrosswalk as error:
            raise UnreadableFile(f"{file_name}: {feed.path.name}: {error}") from None
        self._means = ValueMeans(self.tables, self._numbers)
        self._plan = [
            (feed.kind.by_name[name], value, source_label(value), self._converter(feed.kind.by_name[name]))
            for name, value in feed.file.columns.items()
        ]

    def _converter(self, column: Column) -> Callable[[Any], object]:
        if column.shape == "key":
            return self.key
        return converter(column, self._conventions) if column.shape not in ("labels", "comments") else labels

    def rows(self, rows: Sequence[Any]) -> ChunkRows:
        return ChunkRows(rows, self._form)

    def taken(self, rows: ChunkRows) -> NDArray[np.bool_]:
        """Return a mask of the rows that the feed takes."""
        return all_true(rows, self.feed.file.take)

    def left_out(self, rows: ChunkRows) -> NDArray[np.bool_]:
        """Return a mask of the rows that are no records, by any of the feed's conditions."""
        found = np.zeros(len(rows), dtype=bool)
        for name, test in self.feed.file.skip.items():
            found |= all_true(rows, {name: test})
        return found

    def holds(self, rows: ChunkRows, tests: Mapping[str, Test]) -> NDArray[np.bool_]:
        """Return a mask of the rows for which all of these conditions are true."""
        return all_true(rows, tests)

    def amounts(self, value: Value, rows: ChunkRows) -> Cells:
        """Return a value as amounts, row by row."""
        return amounts(value, rows, self._means)

    def times(self, rows: ChunkRows) -> Iterator[tuple[str, Cells]]:
        """Yield the texts of each column of times, with its name in the source."""
        for column, value, label, _ in self._plan:
            if column.shape == "time":
                yield label, evaluate(value, rows, self._means)

    def keys_of_broken(self, broken: Sequence[SourceRow]) -> list[str | None]:
        """Return the keys of rows that could not be read, as far as they can be recognized."""
        value = self.feed.file.columns.get(self.feed.kind.key)
        if value is None or not broken:
            return [None] * len(broken)
        names = named_by(value)
        if self._form.places is None:
            rows: list[Any] = [found_in(row.raw, names) for row in broken]
        else:
            rows = [[*(row.cells or ()), *[""] * self.width] for row in broken]
        found = each_distinct(evaluate(value, self.rows(rows), self._means), self.key)
        return [each if isinstance(each, str) else None for each in found]

    def map(self, rows: ChunkRows) -> MappedChunk:
        """Return the values of every column, and the faults of every row that has some."""
        columns: dict[str, Cells] = {}
        faults: dict[int, list[RecordFault]] = {}
        for column, value, label, convert in self._plan:
            cells, wrong = self._column(column, value, rows, convert)
            columns[column.name] = cells
            for row, fault in wrong:
                faults.setdefault(row, []).append(RecordFault(fault, column.element, label))
        if self.feed.file.questions:
            columns["answers"] = self._answers(rows, faults)
        if self.feed.file.comments:
            columns["comments"] = self._own_comments(rows, faults)
        return MappedChunk(columns, faults)

    def _column(
        self, column: Column, value: Value, rows: ChunkRows, convert: Callable[[Any], object]
    ) -> tuple[Cells, list[tuple[int, ValueFault]]]:
        if column.shape == "comments":
            cells = self._comments(value, rows)
        elif column.shape == "labels":
            cells = array(None if f is None else convert(f) for f in evaluate_lists(value, rows, self._means))
        elif column.shape == "amount":
            cells = self.amounts(value, rows)
        else:
            cells = each_distinct(evaluate(value, rows, self._means), convert)
        has_faults = ValueFault in set(map(type, cells))
        wrong = [(row, cell) for row, cell in enumerate(cells) if type(cell) is ValueFault] if has_faults else []
        for row, _ in wrong:
            cells[row] = None
        if column.required:
            faulty = {row for row, _ in wrong}
            missing = np.flatnonzero(absent(cells))
            wrong.extend((int(row), ValueFault(column.rule, MISSING)) for row in missing if row not in faulty)
        return cells, wrong

    # --- Several values of a row ------------------------------------------------------------------

    def _answers(self, rows: ChunkRows, faults: dict[int, list[RecordFault]]) -> Cells:
        """Return the answers of rows that have a column per question: `(question, code or display, text)` each."""
        found: list[list[tuple[str, str, str]]] = [[] for _ in range(len(rows))]
        for name, value in self.feed.file.questions.items():
            for row, cell in enumerate(evaluate_lists(value, rows, self._means)):
                texts = cell if isinstance(cell, list) else [single(cell, self._numbers.written)]
                for text in texts:
                    if isinstance(text, ValueFault):
                        faults.setdefault(row, []).append(
                            RecordFault(text, self.feed.kind.member or "", source_label(value))
                        )
                    elif text is not None:
                        found[row].append((name, value.by, str(text)))
        return array(answers or None for answers in found)

    def _own_comments(self, rows: ChunkRows, faults: dict[int, list[RecordFault]]) -> Cells:
        """Return the comments that have columns of their own: `(text, author, time)` each."""
        found: list[list[tuple[Any, ...]]] = [[] for _ in range(len(rows))]
        for comment in self.feed.file.comments:
            parts = [self._comment_part(comment.parts.get(name), name, rows) for name in _COMMENT]
            for row, cells in enumerate(zip(*parts, strict=True)):
                wrong = [
                    RecordFault(cell, "Task.note", source_label(value))
                    for cell, value in zip(cells, (comment.text, comment.author_id, comment.time), strict=True)
                    if value and isinstance(cell, ValueFault)
                ]
                if wrong and cells[0] is not None:
                    faults.setdefault(row, []).extend(wrong)
                elif cells[0] is not None:
                    found[row].append(cells)
        return array(comments or None for comments in found)

    def _comments(self, value: Value, rows: ChunkRows) -> Cells:
        """Return the comments in arrays of objects: `(text, author, time)` each."""
        whole, flat = objects_of(value, rows)
        if not len(flat):
            return array(found if isinstance(found, ValueFault) else None for found in whole)
        each = value.each or {}
        parts = iter(zip(*(self._comment_part(each.get(name), name, flat) for name in _COMMENT), strict=True))
        return array(
            _sound_comments([next(parts) for _ in found], bool(each["text"].when)) if isinstance(found, list) else found
            for found in whole
        )

    def _comment_part(self, value: Value | None, name: str, rows: ChunkRows) -> Cells:
        if value is None:
            return np.full(len(rows), None, dtype=object)
        column = self.feed.kind.by_name[_COMMENT[name]]
        return each_distinct(evaluate(value, rows, self._means), converter(column, self._conventions))


_COMMENT = {"text": "comment", "author_id": "comment_author_id", "time": "comment_time"}


def _sound_comments(comments: list[tuple[Any, ...]], chosen: bool) -> list[tuple[Any, ...]] | ValueFault:
    """Return the comments of a row, or the first fault among them. chosen: True to leave out those without a text."""
    if chosen:
        comments = [comment for comment in comments if comment[0] is not None]
    wrong = (part for comment in comments for part in comment if isinstance(part, ValueFault))
    return next(wrong, comments)


Converter = Callable[[str], object]

REMEMBERED = 4096
"""The number of converted ids and times that are cached for a column, since they repeat throughout a file."""
LONGEST_REMEMBERED = 100
"""The longest cached text, in characters: no id or time is longer."""


def converter(column: Column, conventions: Conventions) -> Converter:
    """Return the function that converts a cell of this column to its value."""
    if isinstance(column.shape, tuple):
        types, bare = column.shape, column.bare
        return _remembering(lambda text: reference(text, types, bare))
    if column.shape == "time":
        return _remembering(times_of(conventions))
    if column.shape == "amount":
        return lambda text: amount(text, conventions.numbers)
    if column.shape == "number":
        return lambda text: number(text, conventions.numbers)
    return _CONVERTERS[column.shape]


def _remembering(convert: Converter) -> Converter:
    """Return the converter with a cache for short texts."""
    kept = lru_cache(REMEMBERED)(convert)
    return lambda text: kept(text) if len(text) <= LONGEST_REMEMBERED else convert(text)


_CONVERTERS: dict[str, Converter] = {"key": key, "text": plain_text, "code": code}

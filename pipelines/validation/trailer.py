"""Trailer rows: the last row of a file, with the number of rows before it and the sum of their amounts."""

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.feeds.mapping.chunk import ChunkRows
from pipelines.feeds.mapping.mapping import Mapper
from pipelines.feeds.reading.chunks import Chunk, SourceRow
from pipelines.feeds.terms.columns import cents
from pipelines.feeds.terms.values import Trailer
from pipelines.home.counted import word_for
from pipelines.validation.outcome import ValidationResult


@dataclass(slots=True)
class _TrailedRows:
    """Rows of a file and the last trailer among them. line: of that trailer, or 0; last_row: line of the last row."""

    rows: int = 0
    last_row: int = 0
    line: int = 0
    totals: Mapping[str, Any] = field(default_factory=dict)

    def add(self, more: "_TrailedRows") -> None:
        """Add the rows that follow."""
        self.rows += more.rows
        self.last_row = max(self.last_row, more.last_row)
        if more.line:
            self.line, self.totals = more.line, more.totals

    @property
    def cents(self) -> int | None:
        amount = self.totals.get("amount")
        return cents(amount) if isinstance(amount, str) else None


def take_out(
    chunk: Chunk,
    mapper: Mapper,
    is_looked_at: Callable[[SourceRow], bool],
    holds: Callable[[ChunkRows], NDArray[np.bool_]],
) -> list[SourceRow]:
    """Remove the rows for which a condition holds, and return them. is_looked_at: True for a row with a fault that may
    be one of them.
    """
    places = [place for place, row in enumerate(chunk.rows) if row.fault is None or is_looked_at(row)]
    if not places:
        return []
    found = holds(mapper.rows([chunk.rows[place].padded(mapper.width) for place in places]))
    return chunk.take_out(places[at] for at in found.nonzero()[0])


class TrailerFilter:
    """Trailer rows of a file: take them out of its chunks, and compare the totals of the last one.

    In an archive, each file ends with its own trailer, or only the last one, with the totals of all.
    """

    def __init__(self, mapper: Mapper) -> None:
        self._says: Trailer | None = mapper.feed.file.trailer
        self.mapper = mapper
        self._chunks: list[_TrailedRows] = []

    def take(self, chunk: Chunk, found: ValidationResult) -> None:
        """Take trailers out and count them as lines not taken. A trailer may have fewer fields than a row, or more."""
        if self._says is None:
            return
        ended, says, mapper = _TrailedRows(), self._says, self.mapper
        for row in take_out(chunk, mapper, lambda row: bool(row.cells), lambda rows: mapper.holds(rows, says.when)):
            found.not_taken += row.lines
            if row.line > ended.line:
                rows = mapper.rows([row.padded(mapper.width)])
                ended.totals = {name: mapper.amounts(value, rows)[0] for name, value in says.totals.items()}
                ended.line = row.line
        ended.rows, ended.last_row = len(chunk.rows), max((row.line for row in chunk.rows), default=0)
        self._chunks.append(ended)

    def mismatch(self, found: ValidationResult) -> str | None:
        """Return a sentence, without an amount, on how the file differs from its trailer; None if it does not."""
        return next(self._mismatches(found), None) if self._says else None

    def _mismatches(self, found: ValidationResult) -> Iterator[str]:
        files = self._by_file(found)
        *others, (_, last) = files
        whole = _TrailedRows()
        for _, each in files:
            whole.add(each)
        if not any(each.line for _, each in others) and (last.totals or not others):
            files = [("the file", whole)]
        for name, each in files:
            if not each.line:
                yield f"{name} has no trailer row, but its feed says that it ends with one; it may be cut off"
                return
            yield from _differing(each, f"the trailer on {found.places.of(each.line)}")
        said = [each.cents for _, each in files]
        if None not in said and sum(filter(None, said)) != found.amount_received:
            at = f"the trailer on {found.places.of(last.line)} says" if len(files) == 1 else "the trailers say"
            yield f"{at} a different amount than the rows of the file have"

    def _by_file(self, found: ValidationResult) -> list[tuple[str, _TrailedRows]]:
        """Return the files of an archive, or the one file, with their names."""
        ends = found.places.ends if found.places else (("the file", sys.maxsize),)
        files = [(name, _TrailedRows()) for name, _ in ends]
        for chunk in self._chunks:
            at = bisect_left(ends, max(chunk.line, chunk.last_row), key=itemgetter(1))
            files[min(at, len(files) - 1)][1].add(chunk)
        return files


def _differing(ended: _TrailedRows, at: str) -> Iterator[str]:
    """Yield sentences on how the rows of a file differ from its trailer, apart from their amounts."""
    if ended.last_row > ended.line:
        yield f"{at} is followed by further rows; check that it is one export"
    for name in ended.totals:
        if not isinstance(ended.totals[name], str):
            yield f"{at} has no {name} in the form that its feed expects"
    rows = ended.totals.get("rows")
    if isinstance(rows, str) and Decimal(rows) != ended.rows:
        yield f"{at} says {Decimal(rows).normalize():f} {word_for(Decimal(rows), 'row')}, the file has {ended.rows}"

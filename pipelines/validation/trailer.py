"""Trailer rows: the last row of a file, with how many rows came before it and the sum of their amounts."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from pipelines.feeds.mapping.mapping import Mapper
from pipelines.feeds.reading.chunks import Chunk
from pipelines.feeds.terms.columns import cents
from pipelines.feeds.terms.values import Trailer
from pipelines.home.counted import word_for
from pipelines.validation.outcome import Validated


class Trailers:
    """Takes the trailer rows of a file out of its chunks, and compares what the last of them says."""

    def __init__(self, mapper: Mapper) -> None:
        self._says: Trailer | None = mapper.feed.file.trailer
        self.mapper = mapper
        self._line: int | None = None
        self._last_row = 0
        self._totals: dict[str, Any] = {}

    def take(self, chunk: Chunk, found: Validated) -> None:
        """Take them out and count them as lines not taken. A trailer may have fewer fields than a row, or more."""
        if self._says is None:
            return
        for place in reversed(self._places(chunk.rows)):
            self._note(chunk.rows[place], chunk.line[place])
            found.not_taken += chunk.drop(place)
        ragged = [row for row in chunk.bad if row.cells]
        padded = [row.padded(self.mapper.width) for row in ragged]
        for place in reversed(self._places(padded)):
            row = ragged[place]
            self._note(padded[place], row.line)
            found.not_taken += row.lines
            chunk.drop_bad(row)
        self._last_row = max([self._last_row, *chunk.line, *(row.line for row in chunk.bad)])

    def _places(self, rows: Sequence[Any]) -> list[int]:
        if not rows or self._says is None:
            return []
        return [int(place) for place in self.mapper.holds(self.mapper.rows(rows), self._says.when).nonzero()[0]]

    def _note(self, row: Any, line: int) -> None:
        """Keep the totals of a trailer row if it is the last one so far."""
        if self._says and line > (self._line or 0):
            self._line = line
            rows = self.mapper.rows([row])
            self._totals = {name: self.mapper.amounts(value, rows)[0] for name, value in self._says.totals.items()}

    def mismatch(self, found: Validated) -> str | None:
        """Return a sentence, without an amount, on how the file differs from its trailer, or None."""
        return next(self._mismatches(found), None) if self._says else None

    def _mismatches(self, found: Validated) -> Iterator[str]:
        if self._line is None:
            yield "the file has no trailer row, with which its feed says it ends; it may have been cut off"
            return
        at = f"the trailer on line {self._line}"
        if self._last_row > self._line:
            yield f"{at} is followed by further rows; check that it is one export"
        rows, amount = self._totals.get("rows"), self._totals.get("amount")
        for name in self._totals:
            if not isinstance(self._totals[name], str):
                yield f"{at} does not say {name} as its feed expects"
        if isinstance(rows, str) and Decimal(rows) != found.rows:
            yield f"{at} says {Decimal(rows).normalize():f} {word_for(Decimal(rows), 'row')}, the file has {found.rows}"
        if isinstance(amount, str) and cents(amount) != found.amount_received:
            yield f"{at} says another amount than the rows of the file have"

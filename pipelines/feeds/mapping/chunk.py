"""The rows of a chunk, read by column: cells are texts, or None if they hold nothing."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.numbers import PLAIN, NumberFormat, with_a_decimal
from pipelines.feeds.terms.paths import parse_path, walk_path
from pipelines.feeds.terms.schema import places_of
from pipelines.feeds.terms.texts import shows_nothing

Cells = NDArray[np.object_]
FIGURES = 15
"""The number of digits that a program surely keeps in a number."""


class RowForm:
    """The format of a file's rows: the places of the columns (None for NDJSON), and texts that mean nothing.

    * days: those of these texts that look like days, and were read as days before the feed named them.
    * as_before: True to read cells as earlier versions did, which knew no such days, and took texts that mean nothing
      only without blanks around them.
    """

    def __init__(
        self,
        header: Sequence[str] | None,
        empty: Sequence[str] = (),
        numbers: NumberFormat = PLAIN,
        days: Sequence[str] = (),
        *,
        as_before: bool = False,
    ) -> None:
        self.places = None if header is None else places_of(header)
        self.empty = frozenset(empty)
        self.empty_before = self.empty - frozenset(days)
        self.as_before = as_before
        self.numbers = numbers

    def objects(self) -> "RowForm":
        """Return the form of objects within a row."""
        found = RowForm(None, (), self.numbers)
        found.empty, found.empty_before, found.as_before = self.empty, self.empty_before, self.as_before
        return found


class ChunkRows:
    """The rows of a chunk. form: their format. shortens: True to write numbers of JSON as those of Parquet."""

    def __init__(self, rows: Sequence[Any], form: RowForm, shortens: bool = False) -> None:
        self._rows = rows
        self.form = form
        self._written = form.numbers.of if shortens else form.numbers.written
        self._found: dict[str, Cells] = {}
        self.were_other: set[int] = set()
        """The places of rows with an empty cell that earlier versions read as a value."""

    def __len__(self) -> int:
        return len(self._rows)

    def shortened(self, places: Sequence[int]) -> "ChunkRows":
        """Return the rows in these places, with numbers of JSON written as those of Parquet."""
        return ChunkRows([self._rows[place] for place in places], self.form, shortens=True)

    def cells(self, name: str) -> Cells:
        """Return a column of single values. An array or object in it is a fault."""
        if name not in self._found:
            found = self._texts(name)
            if self.form.empty:
                found = self._without_empty(found)
            self._found[name] = array(found)
        return self._found[name]

    def _without_empty(self, texts: Iterable[object]) -> Iterator[object]:
        """Yield the cells, with None for texts that mean nothing."""
        form = self.form
        for place, text in enumerate(texts):
            if form.as_before:
                yield None if text in form.empty_before else text
            elif isinstance(text, str) and (text in form.empty or text.strip() in form.empty):
                if text not in form.empty_before:
                    self.were_other.add(place)
                yield None
            else:
                yield text

    def _texts(self, name: str) -> Iterable[object]:
        if self.form.places is None:
            return (single(found, self._written) for found in self.raw(name))
        place = self.form.places.get(name)
        if place is None:
            return [None] * len(self)
        texts = [row[place] for row in self._rows]
        return [(text if "!" <= text[0] <= "~" else if_seen(text)) if text else None for text in texts]

    def raw(self, name: str) -> list[Any]:
        """Return a column as it is in the source: in NDJSON also arrays and objects."""
        if self.form.places is None:
            path = parse_path(name)
            if len(path) == 1:
                return [row.get(name) for row in self._rows]
            return [walk_path(row, path) for row in self._rows]
        return list(self.cells(name))


def single(found: object, written: Callable[[Decimal], str] = PLAIN.written) -> object:
    """Return a JSON value as the text that a CSV would have. written: writes numbers in the feed's format."""
    if found is None or found == "":
        return None
    if isinstance(found, str):
        return if_seen(found)
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, Decimal):
        found = with_a_decimal(found) if found.adjusted() >= FIGURES else found
        return written(found) if abs(found.adjusted()) < 40 else str(found)
    return ValueFault("FEED-FILE-09", "an array or object instead of a single value")


def if_seen(text: str) -> str | None:
    """Return the text, or None if it has only blanks and characters that are invisible."""
    return None if shows_nothing(text) else text


def array(found: Iterable[object]) -> Cells:
    return np.fromiter(found, dtype=object)


def absent(cells: Cells) -> NDArray[np.bool_]:
    """Return a mask that is True for each cell that is None."""
    found: NDArray[np.bool_] = np.equal(cells, np.array(None))
    return found

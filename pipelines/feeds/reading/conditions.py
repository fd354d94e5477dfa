"""A feed's conditions on rows as they are read: for unmapped rows, or for rows of one of two joined files."""

from collections.abc import Callable, Mapping, Sequence

from pipelines.feeds.terms.schema import FeedFile, places_of
from pipelines.feeds.terms.texts import shows_nothing
from pipelines.feeds.terms.values import Test

IsLeftOut = Callable[[Sequence[str]], bool]
"""True if `[skip]` leaves out a row with these cells."""


class Conditions:
    """The conditions on the columns of a file. Conditions on columns that it lacks are ignored.

    prefix: the text before the second file's column names. Columns of the first file may be named by position.
    """

    def __init__(self, file: FeedFile, header: Sequence[str] | None, prefix: str = "") -> None:
        names = header or ()
        self.places = {f"{prefix}{name}": place for place, name in enumerate(names)} if prefix else places_of(names)
        self._empty = frozenset(file.empty)
        self._take, self._skip = self._on(file.take), self._on(file.skip)
        self._trailer = self._on(file.trailer.when if file.trailer else {})

    def _on(self, tests: Mapping[str, Test]) -> list[tuple[int, Test]]:
        return [(self.places[name], test) for name, test in tests.items() if name in self.places]

    def is_taken(self, cells: Sequence[str]) -> bool:
        return all(self._holds(cells, *each) for each in self._take)

    def is_left_out(self, cells: Sequence[str]) -> bool:
        return any(self._holds(cells, *each) for each in self._skip)

    def is_trailer(self, cells: Sequence[str]) -> bool:
        return bool(self._trailer) and all(self._holds(cells, *each) for each in self._trailer)

    def _holds(self, cells: Sequence[str], place: int, test: Test) -> bool:
        text = cells[place] if place < len(cells) else ""
        return test.holds(None if shows_nothing(text) or text.strip() in self._empty else text)

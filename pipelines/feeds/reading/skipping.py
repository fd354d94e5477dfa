"""Rows of one of two joined files that `[skip]` of the feed leaves out: known before the rows are joined."""

from collections.abc import Mapping, Sequence

from pipelines.feeds.reading.second_tables import IsLeftOut
from pipelines.feeds.terms.names import position
from pipelines.feeds.terms.schema import FeedFile
from pipelines.feeds.terms.texts import shows_nothing
from pipelines.feeds.terms.values import Test


def left_out_by(feed: FeedFile, header: Sequence[str] | None, prefix: str = "") -> IsLeftOut | None:
    """The conditions of `[skip]` on the columns of a file; None where there are none.

    prefix: what columns of the second file have before their names. Those of the first may be named by position.
    """
    tests = dict(_placed(feed.skip, header or (), prefix))
    empty = frozenset(feed.empty)

    def is_left_out(cells: Sequence[str]) -> bool:
        return any(test.holds(_cell(cells, place, empty)) for place, test in tests.items())

    return is_left_out if tests else None


def _placed(tests: Mapping[str, Test], header: Sequence[str], prefix: str) -> list[tuple[int, Test]]:
    """The conditions, each with the place of its column."""
    names = {f"{prefix}{name}": place for place, name in enumerate(header)}
    places = ((names.get(name, _by_position(name, header, prefix)), test) for name, test in tests.items())
    return [(place, test) for place, test in places if place is not None]


def _by_position(name: str, header: Sequence[str], prefix: str) -> int | None:
    number = None if prefix else position(name)
    return number - 1 if number and number <= len(header) else None


def _cell(cells: Sequence[str], place: int, empty: frozenset[str]) -> str | None:
    text = cells[place] if place < len(cells) else ""
    return None if shows_nothing(text) or text.strip() in empty else text

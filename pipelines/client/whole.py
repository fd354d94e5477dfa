"""All that a search finds, however its pages are read, and the check that the pages hold all of it."""

from collections.abc import Iterable, Iterator
from typing import Any

from pipelines.client.replies import Unknown, resources_of, total_of

Body = dict[str, Any]


class Incomplete(Unknown):
    """The pages of a search hold fewer resources than the target counted when the reading began."""


class Whole:
    """The resources of a search, page by page. total: the first count of the target; None while it gave none.

    What is made while pages are read may be in none of them: only what was there at the beginning is sure to be read.
    """

    def __init__(self, pages: Iterable[Body], resource_type: str) -> None:
        self._pages, self._resource_type = pages, resource_type
        self.total: int | None = None

    def __iter__(self) -> Iterator[list[Body]]:
        for page in self._pages:
            if self.total is None:
                self.total = total_of(page)
            yield resources_of(page, self._resource_type)

    def check(self, found: int) -> None:
        """Raise `Incomplete` if so many resources, each counted once, are not all."""
        if self.total is not None and found < self.total:
            raise Incomplete(f"its pages hold {found:,} of {self.total:,}")


def whole(pages: Iterable[Body], resource_type: str) -> Iterator[Body]:
    """Yield the resources of a search, each once. Raises `Incomplete` after the last, and as the reading of pages does.

    A page that is repeated or overlaps another is no harm: something may have been made meanwhile.
    """
    read, seen = Whole(pages, resource_type), set[str]()
    for bodies in read:
        for body in bodies:
            if body["id"] not in seen:
                seen.add(body["id"])
                yield body
    read.check(len(seen))

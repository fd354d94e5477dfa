"""Read all results of a search, however its pages are read, and check that the pages hold all of them.

Counts alone do not show it. If a resource that was read disappears and another one comes at the end, the pages move
up: one resource is then on no page, and the count is unchanged. So a link whose offset counts resources is followed
from one resource earlier. A page without any resource of the page before has moved up. Pages are asked for while
others are processed.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

from pipelines.client.replies import RequestRefused, UnknownOutcome, next_link, resources_of, total_of
from pipelines.client.threads import result_of, threads
from pipelines.home.counted import counted

Body = dict[str, Any]
AT_ONCE = 4
"""Pages under way at once when a whole type is read: a target reads some while others are processed here."""
NONE: Mapping[str, str] = {}
LARGE = {"_count": "1000"}
"""A wish: a target answers it with pages of its own largest size, or refuses it."""
MOST_IDLE = 50
"""Pages in a row without a resource, or equal to one before, after which the search counts as endless."""
BEYOND = 1_000_000
"""Resources that pages may have beyond twice the target's count: some targets count wrongly, or grow meanwhile."""
MOST_PAGES = 2_000_000
"""The most pages of a search without a count: with ten resources each, they have 20 million."""


class IncompleteSearch(UnknownOutcome):
    """The pages of a search may have fewer resources than the target counted when the reading began."""


# -- notice pages that move up


class PageTurning:
    """The way through the pages of one search.

    offset: the parameter of links that counts resources. resource_type: the type that is searched for.
    """

    def __init__(self, offset: str, resource_type: str) -> None:
        self._type = resource_type
        self._named = re.compile(rf"([?&]{re.escape(offset)}=)(\d{{1,15}})(?=&|$)")
        self._at, self._last, self._overlaps = 0, set[str](), False
        self._given: str | None = None
        self._links, self._pages, self._idle = set[int](), set[int](), 0
        self._read, self._counted = 0, 0

    def others(self, first: Body) -> Iterator[str]:
        """Yield the addresses of the pages after the first; none if links and count do not determine them."""
        link, total = next_link(first), total_of(first)
        found = self._named.search(link or "")
        if link is None or found is None or total is None or not (step := int(found[2])):
            return
        apart = int(self._counts(found, 0, len(self._entries(first))))
        for at in range(step - apart, total - apart, step - apart):
            yield _with(link, found, at)

    def new(self, page: Body) -> Body:
        """Return a page without the resources of the page before. Call it before `turn`."""
        if not self._overlaps or not isinstance(page.get("entry"), list):
            return page
        return {**page, "entry": [each for each in page["entry"] if _named(each) not in self._last]}

    def turn(self, page: Body) -> str | None:
        """Take a page, the first or that of the address returned last; return the address of the next one.

        Raises `IncompleteSearch` if a page should overlap the one before and does not, `UnknownOutcome` if links have
        no end.
        """
        entries = self._entries(page)
        here = {name for name in map(_named, entries) if name}
        self._read += len(here)
        if type(total := page.get("total")) is int:
            self._counted = max(self._counted, total)
        if link := self._turned(page, here, len(entries)):
            self._check_end(link, here)
        return link

    def _turned(self, page: Body, here: set[str], held: int) -> str | None:
        if self._overlaps and here.isdisjoint(self._last):
            raise IncompleteSearch("its pages moved while they were read")
        self._last = here
        self._given = link = next_link(page)
        found = self._named.search(link) if link else None
        if link is None or found is None:
            self._overlaps = False
            return link
        self._overlaps = self._counts(found, self._at, held)
        self._at = int(found[2]) - self._overlaps
        return _with(link, found, self._at) if self._overlaps else link

    def _check_end(self, link: str, here: set[str]) -> None:
        """Raise `UnknownOutcome` if the links lead in a circle, or on without end. Keep two hashes for each page."""
        if self._counted and self._read > 2 * self._counted + BEYOND:
            raise UnknownOutcome(
                f"its pages hold {counted(self._read, 'resource')} and go on; it counts {self._counted:,}"
            )
        if len(self._links) == MOST_PAGES:
            raise UnknownOutcome(f"it shows {MOST_PAGES:,} pages, and still there is a next one")
        shown = hash(frozenset(here))
        self._idle = self._idle + 1 if not here or shown in self._pages else 0
        if self._idle == MOST_IDLE:
            raise UnknownOutcome(f"{MOST_IDLE} pages in a row brought nothing new, and still there is a next one")
        if hash(link) in self._links:
            raise UnknownOutcome("the next links lead in a circle")
        self._pages.add(shown)
        self._links.add(hash(link))

    def as_given(self) -> str | None:
        """Return the next link as the target gave it, for one that refuses other offsets; None if that was followed."""
        if not self._overlaps:
            return None
        self._overlaps = False
        self._at += 1
        return self._given

    def _counts(self, found: re.Match[str], at: int, held: int) -> bool:
        """True if a link's offset is that of the page plus its number of resources, which must be several."""
        return held > 1 and int(found[2]) == at + held

    def _entries(self, page: Body) -> list[Any]:
        """Return the entries that a search counts, without included resources and outcomes."""
        entries = page.get("entry")
        return [each for each in entries if not self._is_beside(each)] if isinstance(entries, list) else []

    def _is_beside(self, entry: Any) -> bool:
        """True if an entry does not count, by its mode, which a target may leave out, or by its resource's type."""
        search, found = (entry.get(name) if isinstance(entry, dict) else None for name in ("search", "resource"))
        if isinstance(search, dict) and search.get("mode") in ("outcome", "include"):
            return True
        return isinstance(found, dict) and found.get("resourceType") != self._type


def _named(entry: Any) -> str:
    """Return the resource of an entry as type and id; empty text if it has none."""
    found = entry.get("resource") if isinstance(entry, dict) else None
    return f"{found.get('resourceType')}/{found.get('id')}" if isinstance(found, dict) else ""


def _with(link: str, found: re.Match[str], offset: int) -> str:
    return f"{link[: found.start()]}{found[1]}{offset}{link[found.end() :]}"


# -- compare with the target's counts


class PageTotals:
    """The totals on the pages of one search. first, last: None if no page had one.

    shrank: True if a total was less than one before it, so that pages have moved and may have hidden a resource.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self.shrank = False

    def take(self, total: int | None) -> None:
        """Take the total of the next page; None if it has none."""
        if total is not None:
            self.shrank |= self.last is not None and total < self.last
            self.first = total if self.first is None else self.first
            self.last = total


class WholeSearch:
    """The resources of a search, page by page.

    A resource made during the reading may be on no page: only those from before it are sure to be read.
    """

    def __init__(self, pages: Iterable[Body], resource_type: str) -> None:
        self._pages, self._resource_type = pages, resource_type
        self.counts = PageTotals()

    def __iter__(self) -> Iterator[list[Body]]:
        for page in self._pages:
            self.counts.take(total_of(page))
            yield resources_of(page, self._resource_type)

    def check(self, found: int) -> None:
        """Raise `IncompleteSearch` if the number of distinct resources is less than the first total."""
        if self.counts.first is not None and found < self.counts.first:
            raise IncompleteSearch(f"its pages hold {found:,} of {self.counts.first:,}")


def whole_search(pages: Iterable[Body], resource_type: str) -> Iterator[Body]:
    """Yield the resources of a search, each once. Raises `IncompleteSearch` after the last, and as the reading of pages
    does.

    A page that is repeated or overlaps another does no harm: something may have been made meanwhile.
    """
    read, seen = WholeSearch(pages, resource_type), set[str]()
    for bodies in read:
        for body in bodies:
            if body["id"] not in seen:
                seen.add(body["id"])
                yield body
    read.check(len(seen))


def pages_of(
    get: Callable[[str], Body], page: Body, resource_type: str, offset: str, at_once: int = 1
) -> Iterator[Body]:
    """Yield the first page of a search and those that its `next` links lead to.

    offset: as in `PageTurning`. at_once: how many pages are asked for while one is processed. Several are asked for by
    addresses computed from the first page, as long as the links agree. Raises as `get` and `PageTurning.turn` do.
    """
    turning = PageTurning(offset, resource_type)
    with threads(at_once, "page") as pool:
        ahead = _Ahead(pool, get, turning.others(page) if at_once > 1 else iter(()), at_once)
        while True:
            shown = turning.new(page)
            link = turning.turn(page)
            ahead.ask(link)
            yield shown
            if not link:
                return
            try:
                page = ahead.take()
            except RequestRefused:
                if (given := turning.as_given()) is None:
                    raise
                ahead.drop()
                page = get(given)


class _Ahead:
    """Pages that are asked for before they are wanted. others: their addresses, computed from the first page."""

    def __init__(
        self, pool: ThreadPoolExecutor, get: Callable[[str], Body], others: Iterator[str], at_once: int
    ) -> None:
        self._pool, self._get, self._others, self._at_once = pool, get, others, at_once
        self._coming = deque[tuple[str, Future[Body]]]()

    def ask(self, link: str | None) -> None:
        """Ask for the page of a link, and for more ahead. After an unexpected link, only links count."""
        for each in islice(self._others, self._at_once - len(self._coming)) if link else ():
            self._submit(each)
        if not self._coming or self._coming[0][0] != link:
            self.drop()
            if link:
                self._submit(link)

    def take(self) -> Body:
        """Return the page that was asked for first. Raises as its reading does."""
        return result_of(self._coming.popleft()[1])

    def drop(self) -> None:
        """Stop waiting for pages, and use only links from here on."""
        for _, each in self._coming:
            each.cancel()
        self._coming.clear()
        self._others = iter(())

    def _submit(self, address: str) -> None:
        self._coming.append((address, self._pool.submit(self._get, address)))

"""Read the pages of a search by their `next` links: each when it is wanted, or ahead of whoever reads them.

Where links name offsets and the target counts, several are asked for at once. The pages come in the target's order.
Whoever reads them counts what is in them, as `whole.py` says.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

from pipelines.client.replies import Refused
from pipelines.client.threads import result_of, threads
from pipelines.client.whole import Turning

Page = dict[str, Any]
AT_ONCE = 4
"""Pages under way at once where a whole type is read: a target reads some while others are understood here."""
NONE: Mapping[str, str] = {}
LARGE = {"_count": "1000"}
"""A wish: a target gives pages of its own largest size, or refuses."""


def followed(
    get: Callable[[str], Page], page: Page, resource_type: str, offset: str, at_once: int = 0
) -> Iterator[Page]:
    """Yield the first page of a search and those that its `next` links lead to.

    offset: as in `Turning`. at_once: how many are asked for while one is understood; several by addresses that the
    first page tells, as long as the links lead to these. Raises as `get` and `Turning.turn` do.
    """
    turning = Turning(offset, resource_type)
    with threads(max(at_once, 1), "page") as pool:
        ahead = _Ahead(pool, get, turning.others(page) if at_once > 1 else iter(()), at_once)
        while True:
            shown = turning.new(page)
            if not at_once:
                yield shown
            link = turning.turn(page)
            if at_once:
                ahead.ask(link)
                yield shown
            if not link:
                return
            try:
                page = ahead.take() if at_once else get(link)
            except Refused:
                if (given := turning.as_given()) is None:
                    raise
                ahead.drop()
                page = get(given)


class _Ahead:
    """Pages that are asked for before they are wanted. others: their addresses, as the first page tells them."""

    def __init__(
        self, pool: ThreadPoolExecutor, get: Callable[[str], Page], others: Iterator[str], at_once: int
    ) -> None:
        self._pool, self._get, self._others, self._at_once = pool, get, others, at_once
        self._coming = deque[tuple[str, Future[Page]]]()

    def ask(self, link: str | None) -> None:
        """Ask for the page of a link, and for more. Where the link is another than was expected, it alone tells on."""
        for each in islice(self._others, self._at_once - len(self._coming)) if link else ():
            self._submit(each)
        if not self._coming or self._coming[0][0] != link:
            self.drop()
            if link:
                self._submit(link)

    def take(self) -> Page:
        """Return the page that was asked for first. Raises as its reading does."""
        return result_of(self._coming.popleft()[1])

    def drop(self) -> None:
        """Wait for no page any more, and go by links alone from here on."""
        for _, each in self._coming:
            each.cancel()
        self._coming.clear()
        self._others = iter(())

    def _submit(self, address: str) -> None:
        self._coming.append((address, self._pool.submit(self._get, address)))

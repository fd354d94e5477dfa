"""Bounds on the bytes of a page, which ends early beyond them, and on the pages that are read at the same time."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate

from sqlalchemy import ColumnElement, case, func, or_

from fhir_service.store.disk_errors import too_much

MOST = 8 << 20
"""The most bytes of a page's bodies, unless the first one alone has more."""
AT_ONCE = 100
"""The bodies that are fetched together. DuckDB holds all of them in memory, whatever their size. It is a usual page:
two statements would take longer than one.
"""
FEW = 10
"""A page of so many bodies does not wait for larger pages."""


def that_fit(sizes: Sequence[int]) -> int:
    """Return how many bodies a page shows, given their sizes: at least one if there is any."""
    return max(sum(size <= MOST for size in accumulate(sizes)), min(len(sizes), 1))


def end_of(offset: int, count: int, shown: int, is_cut: bool) -> int:
    """Return the offset of the next page. is_cut: the page ended early because of its bytes."""
    return offset + (shown if is_cut else count)


def body_if_it_fits(
    body: ColumnElement[str], order: Sequence[ColumnElement[object]], most: int
) -> ColumnElement[str | None]:
    """Return a body as a column, null if it does not fit on its page. PostgreSQL need not unpack a body for that."""
    size = func.bit_length(body)
    so_far = func.sum(size).over(order_by=order, rows=(None, 0))
    return case((or_(so_far == size, so_far <= 8 * most), body)).label("body")


class PageTurns:
    """Let readers fetch `most` bodies at the same time. A reader waits for its turn, at most `seconds`."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = self._left = most
        self._seconds = seconds
        self._next, self._room = threading.Lock(), threading.Condition()

    @contextmanager
    def hold(self, bodies: int) -> Iterator[None]:
        """Enter this context to fetch some bodies. Take no second turn within. Raises the 503 of too long a wait."""
        part, ends = min(bodies, self._most), time.monotonic() + self._seconds
        if not self._next.acquire(timeout=self._seconds):  # a reader of few bodies cannot overtake one of many
            raise too_much()
        try:
            with self._room:
                if not self._room.wait_for(lambda: self._left >= part, ends - time.monotonic()):
                    raise too_much()
                self._left -= part
        finally:
            self._next.release()
        try:
            yield
        finally:
            with self._room:
                self._left += part
                self._room.notify()


class PageLanes:
    """Separate turns for pages of few bodies, pages of many, histories of a resource, and histories of a type.

    Only one page of a history is read at a time: DuckDB holds all its bodies in memory.
    """

    def __init__(self, seconds: float) -> None:
        most = 5 * FEW, AT_ONCE, 1, 1
        self._few, self._many, self._of_one, self._of_type = (PageTurns(each, seconds) for each in most)

    def page(self, bodies: int) -> PageTurns:
        return self._few if bodies <= FEW else self._many

    def history(self, of_one: bool) -> PageTurns:
        return self._of_one if of_one else self._of_type

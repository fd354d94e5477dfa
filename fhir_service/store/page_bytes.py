"""Bounds on the bytes of pages: of one, which ends early beyond them, and of those that are read at once."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate

from sqlalchemy import ColumnElement, case, func, or_

from fhir_service.store.room import too_much

MOST = 8 << 20
"""Bytes of the bodies of a page, unless its first one has more."""
AT_ONCE = 100
"""Bodies that are fetched at once: DuckDB has all of them in memory, however large they are. Two statements for a
usual page would take longer than one."""
FEW = 10
"""Bodies of a page that waits for no page of more."""


def that_fit(sizes: Sequence[int]) -> int:
    """Return how many of the first bodies a page shows, by their sizes: one at least, if there is any."""
    return max(sum(size <= MOST for size in accumulate(sizes)), min(len(sizes), 1))


def end_of(offset: int, count: int, shown: int, is_cut: bool) -> int:
    """Return the offset of the page behind one. is_cut: it shows fewer than it would, for their bytes."""
    return offset + (shown if is_cut else count)


def body_if_it_fits(
    body: ColumnElement[str], order: Sequence[ColumnElement[object]], most: int
) -> ColumnElement[str | None]:
    """Return the body of a row of a page, null where it does not fit. PostgreSQL unpacks none for that."""
    size = func.bit_length(body)
    so_far = func.sum(size).over(order_by=order, rows=(None, 0))
    return case((or_(so_far == size, so_far <= 8 * most), body)).label("body")


class Turns:
    """Room for so many bodies to be fetched at once, for which readers wait some seconds, each in its turn."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = self._left = most
        self._seconds = seconds
        self._next, self._room = threading.Lock(), threading.Condition()

    @contextmanager
    def hold(self, bodies: int) -> Iterator[None]:
        """Fetch some bodies within: nothing that waits for its own turn. Raises the outcome of a wait too long."""
        part, ends = min(bodies, self._most), time.monotonic() + self._seconds
        if not self._next.acquire(timeout=self._seconds):  # so nobody who wants less passes the one who waits for much
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


class Lanes:
    """The turns of pages of few bodies, of many, of the history of one resource and of a type: none waits for another.

    DuckDB has bodies of a whole history's page in memory, so one is read at a time.
    """

    def __init__(self, seconds: float) -> None:
        most = 5 * FEW, AT_ONCE, 1, 1
        self._few, self._many, self._of_one, self._of_type = (Turns(each, seconds) for each in most)

    def page(self, bodies: int) -> Turns:
        return self._few if bodies <= FEW else self._many

    def history(self, of_one: bool) -> Turns:
        return self._of_one if of_one else self._of_type

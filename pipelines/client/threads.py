"""Threads that ask a target. Their work ends when nobody waits for it any more."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")

A_WHILE = 1.0
"""Seconds of one wait: Python handles a signal only between waits."""

_of_thread = threading.local()


class _Work:
    """The work of some threads. within: the work of the thread that began it."""

    def __init__(self) -> None:
        self.has_ended = False
        self.within: _Work | None = getattr(_of_thread, "work", None)


def nobody_waits() -> bool:
    """True in a thread whose work ended early, so that no answer of the target is of use any more."""
    work: _Work | None = getattr(_of_thread, "work", None)
    while work and not work.has_ended:
        work = work.within
    return work is not None


class _Threads(ThreadPoolExecutor):
    """Threads whose results are waited for by `result_of`, so that an interrupt ends each wait."""

    def map(self, fn: Callable[..., Result], *iterables: Iterable[Any], **_: object) -> Iterator[Result]:
        """Make all calls, and yield their results in order, as any executor does. Executors' options are ignored."""
        return _results(deque([self.submit(fn, *each) for each in zip(*iterables, strict=False)]))


def _results(futures: deque[Future[Result]]) -> Iterator[Result]:
    try:
        while futures:
            yield result_of(futures.popleft())
    finally:
        for each in futures:
            each.cancel()


@contextmanager
def threads(number: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """Yield threads for requests. If the block ends early (Ctrl-C, an error), no further request begins."""
    work = _Work()
    pool = _Threads(number, name, initializer=_begin, initargs=(work,))
    try:
        yield pool
    except BaseException:
        work.has_ended = True
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def _begin(work: _Work) -> None:
    _of_thread.work = work


def result_of(future: Future[Result]) -> Result:
    """Return the result of a future once it is there.

    Python handles a signal between waits, so a signal just before a wait does not end that wait.
    """
    while not wait([future], A_WHILE).done:
        pass
    return future.result()

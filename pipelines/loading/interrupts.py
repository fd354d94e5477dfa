"""Interrupts (Ctrl-C, SIGTERM) that end a piece of work at a step of its own choice, and not between any two steps."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While this is entered, what an interrupt raises is given to `take` and not raised.

    `take` is called in the middle of anything: it may wait for nothing. Signals that end the process at once do so
    still. Only the main thread is interrupted; in others this does nothing.
    """

    def __init__(self, take: Callable[[BaseException], None]) -> None:
        self._take = take
        self._raising: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def __enter__(self) -> None:
        if current_thread() is main_thread():
            for number in INTERRUPTS:
                if callable(handler := signal.getsignal(number)):
                    self._raising[number] = handler
                    signal.signal(number, self._interrupted)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._raising.items():
            signal.signal(number, handler)

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Raise interrupts in a block that waits for nothing but time."""
        try:
            self.__exit__()
            yield
        finally:
            for number in self._raising:
                signal.signal(number, self._interrupted)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        try:
            self._raising[number](number, frame)
        except BaseException as error:  # noqa: BLE001 - it is raised where the work ends
            self._take(error)

"""Delay interrupts (Ctrl-C, SIGTERM) to a step that the interrupted work chooses."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

from pipelines.client.pace import RetryPauses

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Collect interrupts while entered: call `take` with what a signal handler raises, and end the pauses of
    `patience`.

    `take` may be called in the middle of anything, so it must not wait. Signals that end the process at once still do
    so. Only the main thread is interrupted; in other threads this does nothing.
    """

    def __init__(self, patience: RetryPauses, take: Callable[[BaseException], None]) -> None:
        self._patience, self._take = patience, take
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
        """Raise interrupts in a block that waits only for time to pass."""
        try:
            self.__exit__()
            yield
        finally:
            for number in self._raising:
                signal.signal(number, self._interrupted)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        try:
            self._raising.get(number, signal.default_int_handler)(number, frame)
        except BaseException as error:  # noqa: BLE001 - raised where the work ends
            self._take(error)
            self._patience.is_over = True


@contextmanager
def without_interrupts(patience: RetryPauses) -> Iterator[None]:
    """Raise an interrupt only at the end of a block."""
    came: list[BaseException] = []
    with Interrupts(patience, came.append):
        yield
    if came:
        raise came[0]

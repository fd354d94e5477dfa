"""Worker processes: start them with their orders, replace them while parts are left, and end them."""

import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Self

from pipelines.ledger.parts import BEGINNINGS
from pipelines.runs.order import WorkerOrder

CLOSING_SECONDS = 10.0
"""Seconds to wait for a worker whose parts are done."""
END_SECONDS = 120.0
"""Seconds in which a worker may write its results, after it was told to end."""
PROGRAM: tuple[str, ...] = (sys.executable, "-m", "pipelines.runs.worker")


class Workers:
    """Worker processes for one order, at most `most` at once. None outlives the `with` block."""

    def __init__(self, order: WorkerOrder, most: int) -> None:
        self._order, self._most = order, most
        self._left = most + order.plan.parts * BEGINNINGS
        self.at_work: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Let working workers write their results; kill those that do not end in time."""
        for each in self.at_work:
            with suppress(subprocess.TimeoutExpired):
                each.wait(0 if kind else CLOSING_SECONDS)
        for each in self.at_work:
            each.send_signal(signal.SIGINT)
        for each in self.at_work:
            with suppress(subprocess.TimeoutExpired):
                each.wait(END_SECONDS)
            each.kill()
            _end(each)

    @property
    def can_start(self) -> bool:
        """True if another worker may be started. The number is limited, since workers may end before any part."""
        return self._left > 0

    def keep(self, wanted: int) -> None:
        """Note workers that have ended, and start others for the parts that are left."""
        ended = [each for each in self.at_work if each.poll() is not None]
        self.at_work = [each for each in self.at_work if each not in ended]
        for each in ended:
            _end(each)
        while len(self.at_work) < min(wanted, self._most) and self.can_start:
            self._left -= 1
            self.at_work.append(_started(self._order))


def _started(order: WorkerOrder) -> "subprocess.Popen[bytes]":
    """Return a started worker that has its order. It has its own process session: only this process answers Ctrl-C."""
    worker = subprocess.Popen(  # noqa: S603 - our own program
        PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    assert worker.stdin is not None  # noqa: S101 - a pipe was asked for
    with suppress(OSError):  # the worker is dead already
        pickle.dump(order, worker.stdin)
        worker.stdin.flush()
    return worker


def _end(worker: "subprocess.Popen[bytes]") -> None:
    if worker.stdin:
        with suppress(OSError):
            worker.stdin.close()
    worker.wait()

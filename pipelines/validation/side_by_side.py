"""Work on chunks side by side, with results in order: in this process, and for a large file in helper processes too.

A helper ends when its input does, so that none outlives a killed parent. A chunk whose helper fails is done in this
process. So results and exceptions are those of one process.
"""

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Self, TypeVar

from pipelines.home.scratch import workspace

Chunk = TypeVar("Chunk")
Result = TypeVar("Result")

LARGE = 2 << 20
"""Bytes of a file from which on helpers are worth their start."""
MOST_PROCESSES = 4
WAITING = 2
"""The most chunks that a helper has: the one it works on, and the next."""
PROGRAM = "pipelines.validation.helper_process"
ROOM = 1 << 20
"""Bytes to enlarge a pipe to. With 64 KiB, a thread would release the interpreter many times for each chunk, and wait
for it each time as long as another thread computes.
"""
BROKEN = (OSError, EOFError, pickle.UnpicklingError)


def processes_for(size: int) -> int:
    """Return the number of processes, this one included, that work on a file of `size` bytes."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(cores, MOST_PROCESSES) if size >= LARGE else 1


class SideBySide:
    """Workers for one file, used as `with SideBySide(processes) as work: work.over(make, chunks)`."""

    def __init__(self, processes: int) -> None:
        self._helpers: list[HelperProcess] = []
        with suppress(OSError):  # the system cannot start more processes
            self._helpers.extend(HelperProcess() for _ in range(processes - 1))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for helper in self._helpers:
            helper.end()

    def over(self, make: Callable[[], Callable[[Chunk], Result]], chunks: Iterable[Chunk]) -> Iterator[Result]:
        """Yield, in order, the results of the function that `make` returns, for each chunk.

        make: must be picklable. Its function must keep nothing from one chunk to the next. A limited number of chunks
        is held at a time.
        """
        do = make()
        for helper in self._helpers:
            helper.prepare(make)
        held: deque[tuple[Chunk, Future[Result]]] = deque()
        for chunk in chunks:
            free = next((helper for helper in self._helpers if helper.free), None)
            held.append((chunk, _done(do, chunk) if free is None else free.start(chunk)))
            while held and (held[0][1].done() or len(held) > 2 * WAITING * len(self._helpers)):
                yield _result(do, *held.popleft())
        while held:
            yield _result(do, *held.popleft())


def _done(do: Callable[[Chunk], Result], chunk: Chunk) -> "Future[Result]":
    future: Future[Result] = Future()
    future.set_result(do(chunk))
    return future


def _result(do: Callable[[Chunk], Result], chunk: Chunk, future: "Future[Result]") -> Result:
    """Return a helper's result for a chunk; compute it in this process if the helper broke."""
    try:
        return future.result()
    except BROKEN:
        return do(chunk)


def _widen(pipe: int) -> None:
    """Enlarge a pipe to `ROOM` bytes, if the system allows it."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, ROOM)


class HelperProcess:
    """A helper process, and the thread that talks to it."""

    def __init__(self) -> None:
        given, self._to = Pipe(duplex=False)
        self._from, answers = Pipe(duplex=False)
        with given, answers:
            pipes = given.fileno(), answers.fileno()
            for pipe in pipes:
                _widen(pipe)
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", PROGRAM, *map(str, pipes)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=pipes,
            )
        self._thread = ThreadPoolExecutor(1, "helper")
        self._prepared: Future[Any] | None = None
        self._waiting: list[Future[Any]] = []

    @property
    def free(self) -> bool:
        """True if the helper can take a chunk now: it has started, is not broken, and has few chunks waiting."""
        if self._prepared is None or not self._prepared.done() or self._prepared.exception():
            return False
        self._waiting = [future for future in self._waiting if not future.done() or future.exception()]
        return len(self._waiting) < WAITING

    def prepare(self, make: Callable[[], Callable[[Any], Any]]) -> None:
        self._prepared = self._thread.submit(self._ask, make)

    def start(self, chunk: Any) -> "Future[Any]":
        future = self._thread.submit(self._ask, chunk)
        self._waiting.append(future)
        return future

    def _ask(self, given: Any) -> Any:
        self._to.send(given)
        return self._from.recv()

    def end(self) -> None:
        """Kill the helper process, even while it works on a chunk."""
        self._process.kill()
        self._thread.shutdown(cancel_futures=True)
        for pipe in (self._to, self._from):
            pipe.close()
        self._process.wait()


@contextmanager
def at_work(folder: Path, size: int, processes: int | None) -> Iterator[tuple[Path, SideBySide]]:
    """Yield a temporary subfolder, removed at the end, and the processes that work on a file of so many bytes."""
    helpers = processes_for(size) if processes is None else processes
    with workspace(folder) as inner, SideBySide(helpers) as work:
        yield inner, work

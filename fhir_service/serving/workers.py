"""Several processes that serve one store behind one address: started, watched, replaced, and ended together.

All take connections from one socket, which this process opens and never reads. A process that dies leaves what waits
there to the others. They end when their standard input does, and so with this process, however that ends.
"""

import contextlib
import logging
import math
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from functools import partial
from queue import Empty, SimpleQueue

from fhir_service.metrics import FOLDER
from fhir_service.serving.serve import GRACE, asked_by_signals, listen, watching_stdin
from fhir_service.settings import Settings

SOON = 1.0
"""A process that ends within so many seconds after its first answer counts as a failed start."""
PAUSES = (0.1, 0.5, 2.0)
"""Seconds between a failed start and the next one: after the first failure, the second, and all later ones."""
LATELY = 30.0
"""A failed start counts for so many seconds."""

log = logging.getLogger(__name__)


class _Worker:
    """One process. It is put on the queue when it answers, and again when it has ended."""

    def __init__(
        self, listening: socket.socket, environ: Mapping[str, str], changed: "SimpleQueue[_Worker | None]"
    ) -> None:
        self.answers_since = math.inf
        self._changed = changed
        arguments = [sys.executable, "-m", "fhir_service", "serve", "--until-stdin-closes"]
        arguments += ["--shared-socket", str(listening.fileno())]
        self.process = subprocess.Popen(  # noqa: S603 - our own command
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
            pass_fds=[listening.fileno()],
        )
        threading.Thread(target=self._watch, name="worker", daemon=True).start()

    def _watch(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 - it is a pipe
        if self.process.stdout.readline():
            self.answers_since = time.monotonic()
            self._changed.put(self)
        self.process.wait()
        self._changed.put(self)

    @property
    def answers(self) -> bool:
        """True if the process has begun to answer."""
        return self.answers_since < math.inf

    @property
    def has_ended(self) -> bool:
        """True if the process has ended."""
        return self.process.poll() is not None

    def stop(self) -> None:
        """Ask the process to finish its requests and end."""
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def wait(self, until: float) -> None:
        """Wait for the process to end, and kill it after a deadline."""
        try:
            self.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def supervise(settings: Settings, until_stdin_closes: bool = False) -> int:
    """Serve by as many processes as the settings say, until SIGTERM or SIGINT, or until standard input ends.

    Returns:
        The exit code: that of the first process where it ended before it answered, and has said why.

    Raises:
        PortTaken: the address cannot be listened on.
    """
    with contextlib.ExitStack() as stack:
        changed: SimpleQueue[_Worker | None] = SimpleQueue()
        ask = partial(changed.put, None)
        stack.enter_context(asked_by_signals(ask, ask))
        listening = stack.enter_context(listen(settings))
        settings = settings.bound_to(listening.getsockname()[1])
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fhir-service-"))
        environ = {**os.environ, **settings.environ(), FOLDER: folder, "FHIR_SERVICE_WORKERS": "1"}
        if until_stdin_closes:
            stack.enter_context(watching_stdin(ask))
        return _Supervisor(listening, environ, changed).run(settings.workers, settings.url)


class FailedStarts:
    """The recent failed starts, which delay the next start."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def note(self, now: float) -> None:
        """Note a failed start."""
        self._times.append(now)

    def are_there(self, now: float) -> bool:
        """True if a start has failed recently."""
        self._times = [each for each in self._times if now - each < LATELY]
        return bool(self._times)

    def pause(self, now: float) -> float:
        """Return the seconds to wait before the next start."""
        if not self.are_there(now):
            return 0.0
        return max(0.0, self._times[-1] + PAUSES[min(len(self._times), len(PAUSES)) - 1] - now)


class _Supervisor:
    """The processes that there are, and when the next one may be started.

    A process that answered is replaced at once, however it ended. After failed starts one process at a time tries.
    """

    def __init__(
        self, listening: socket.socket, environ: Mapping[str, str], changed: "SimpleQueue[_Worker | None]"
    ) -> None:
        self._listening, self._environ, self._changed = listening, environ, changed
        self._workers: list[_Worker] = []
        self._failed = FailedStarts()

    def run(self, number: int, url: str) -> int:
        """Start one process, which makes or migrates the store, then the others. Keep them running until the end."""
        try:
            first = self._start()
            if self._changed.get() is None:
                return 0
            if not first.answers:
                return first.process.wait()
            for _ in [self._start() for _ in range(number - 1)]:
                if self._changed.get() is None:
                    return 0
            print(f"listening on {url}", flush=True)
            self._keep(number)
        finally:
            self._end()
        return 0

    def _start(self) -> _Worker:
        worker = _Worker(self._listening, self._environ, self._changed)
        self._workers.append(worker)
        return worker

    def _keep(self, number: int) -> None:
        """Keep the number of processes until the end is asked for."""
        while True:
            self._take_out_ended(time.monotonic())
            with contextlib.suppress(Empty):
                if self._changed.get(timeout=self._fill_up(number, time.monotonic())) is None:
                    return

    def _take_out_ended(self, now: float) -> None:
        for worker in [each for each in self._workers if each.has_ended]:
            self._workers.remove(worker)
            if now - worker.answers_since < SOON:
                self._failed.note(now)
            log.warning(
                "process %d ended with exit code %s; another one is started",
                worker.process.pid,
                worker.process.returncode,
            )

    def _fill_up(self, number: int, now: float) -> float | None:
        """Start the processes that may start now. Return the seconds until more may; None to wait for a process."""
        if (wait := self._failed.pause(now)) > 0:
            return wait
        one_by_one = self._failed.are_there(now)
        while len(self._workers) < number and not (one_by_one and any(not each.answers for each in self._workers)):
            self._start()
        return None

    def _end(self) -> None:
        """Close the socket, and let all processes finish their requests."""
        self._listening.close()
        for worker in self._workers:
            worker.stop()
        until = time.monotonic() + GRACE + 5
        for worker in self._workers:
            worker.wait(until)

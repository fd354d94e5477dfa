"""Several processes that serve one store behind one address: started, watched, replaced, and ended together.

All take connections from one socket, which this process opens and never reads. A process that dies leaves what waits
there to the others. They end when their standard input does, and so with this process, however that ends.
"""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from queue import Empty, SimpleQueue

from fhir_service.metrics import FOLDER
from fhir_service.serve import GRACE, listen, watch_stdin
from fhir_service.settings import Settings

PAUSES = (0.1, 0.5, 2.0, 10.0)
"""Seconds before a process is replaced: more for each that did not live long."""
LONG = 30.0
"""Seconds after which a process has lived long."""

log = logging.getLogger(__name__)


class _Worker:
    """One process, from its start to its end."""

    def __init__(
        self, listening: socket.socket, environ: Mapping[str, str], ended: "SimpleQueue[_Worker | None]"
    ) -> None:
        self.began = time.monotonic()
        self.answers = threading.Event()
        self._ended = ended
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
            self.answers.set()
        self.process.wait()
        self.answers.set()
        self._ended.put(self)

    def stop(self) -> None:
        """Let it finish what is under way, and end."""
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def wait(self, until: float) -> None:
        """Wait for its end; end it at once at a moment."""
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
        listening = stack.enter_context(listen(settings))
        settings = settings.bound_to(listening.getsockname()[1])
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fhir-service-"))
        environ = {**os.environ, **settings.environ(), FOLDER: folder, "FHIR_SERVICE_WORKERS": "1"}
        ended: SimpleQueue[_Worker | None] = SimpleQueue()
        stack.enter_context(_signals(ended))
        if until_stdin_closes:
            threading.Thread(target=watch_stdin, args=[lambda: ended.put(None)], name="stdin", daemon=True).start()
        return _Supervisor(listening, environ, ended).run(settings.workers, settings.url)


class _Supervisor:
    """The processes that there are, and those that are due."""

    def __init__(
        self, listening: socket.socket, environ: Mapping[str, str], ended: "SimpleQueue[_Worker | None]"
    ) -> None:
        self._listening, self._environ, self._ended = listening, environ, ended
        self._workers: list[_Worker] = []
        self._due: list[float] = []
        self._short_lives = 0

    def run(self, number: int, url: str) -> int:
        """Start one, which makes or migrates the store, and then the others; keep them until the end is asked for."""
        try:
            first = self._start()
            first.answers.wait()
            if (code := first.process.poll()) is not None:
                return code
            for other in [self._start() for _ in range(number - 1)]:
                other.answers.wait()
            print(f"listening on {url}", flush=True)
            self._keep()
        finally:
            self._end()
        return 0

    def _start(self) -> _Worker:
        worker = _Worker(self._listening, self._environ, self._ended)
        self._workers.append(worker)
        return worker

    def _keep(self) -> None:
        """Replace what ends, until the end is asked for."""
        while True:
            now = time.monotonic()
            for due in [one for one in self._due if one <= now]:
                self._due.remove(due)
                self._start()
            try:
                worker = self._ended.get(timeout=min(self._due) - now if self._due else None)
            except Empty:
                continue
            if worker is None:
                return
            self._replace(worker)

    def _replace(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        lived_long = time.monotonic() - worker.began > LONG
        self._short_lives = 0 if lived_long else self._short_lives + 1
        pause = PAUSES[min(self._short_lives, len(PAUSES) - 1)]
        log.warning("process %d ended with code %s; another follows", worker.process.pid, worker.process.returncode)
        self._due.append(time.monotonic() + pause)

    def _end(self) -> None:
        """Take no more connections, and let all processes finish what is under way."""
        self._listening.close()
        for worker in self._workers:
            worker.stop()
        until = time.monotonic() + GRACE + 5
        for worker in self._workers:
            worker.wait(until)


@contextlib.contextmanager
def _signals(ended: "SimpleQueue[_Worker | None]") -> Iterator[None]:
    """Let SIGTERM and SIGINT ask for the end."""
    before = {number: signal.signal(number, lambda *_: ended.put(None)) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

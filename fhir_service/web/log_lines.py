"""The log on standard error, written by a thread of its own: no request waits for whoever reads it.

A reader that stands still would else stop every process that shares its pipe. Lines wait for it, up to a bound. How
many were left out is said once it reads again.
"""

import contextlib
import logging
import os
import threading
import time
from queue import Empty, SimpleQueue

from fhir_service.web.middleware import ACCESS

STDERR = 2
MOST_WAITING = 10_000
"""Lines that wait at most: some megabytes."""
ENOUGH = 3072
"""Bytes after which lines are written: with the last line mostly 4,096 at most, which a pipe keeps together."""
NAP = 0.02
"""Seconds for which lines gather, once all are written: in busy times the thread wakes rarely."""
LAST = 2.0
"""Seconds for which an ending process waits for its last lines to be read."""


class LogLines(logging.Handler):
    """Puts lines on a queue, which a thread writes to a descriptor."""

    def __init__(self, descriptor: int, most_waiting: int = MOST_WAITING) -> None:
        super().__init__()
        self._descriptor, self._most = descriptor, most_waiting
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._left_out = 0  # counted under the handler's lock, never set back
        self._writer = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record).encode(errors="backslashreplace") + b"\n"
        except Exception:  # noqa: BLE001 - as every handler does
            self.handleError(record)
            return
        if self.waiting < self._most:
            self._lines.put(line)
        else:
            self._left_out += 1

    @property
    def waiting(self) -> int:
        """The lines that are still to be written."""
        return self._lines.qsize()

    def close(self) -> None:
        """Let the thread write what waits, for a while."""
        self._lines.put(None)
        self._writer.join(LAST)
        super().close()

    def _write_all(self) -> None:
        told, more = 0, True
        while more:
            text, more = self._taken()
            self._write(text)
            if self.waiting:
                continue
            if missing := self._left_out - told:
                told += missing
                self._write(b"WARNING %b: %d lines were left out, as nobody read them\n" % (_NAME, missing))
            if more:
                time.sleep(NAP)

    def _taken(self) -> tuple[bytes, bool]:
        """Wait for a line; return it with those that wait behind it, and True unless the end was among them."""
        taken, line = b"", self._lines.get()
        with contextlib.suppress(Empty):
            while line is not None:
                taken += line
                if len(taken) > ENOUGH:
                    break
                line = self._lines.get_nowait()
        return taken, line is not None

    def _write(self, text: bytes) -> None:
        # Whoever read the log may have ended: the service goes on. A process that shares the descriptor may have made
        # it one that does not wait.
        with contextlib.suppress(OSError):
            while text:
                try:
                    text = text[os.write(self._descriptor, text) :]
                except BlockingIOError:
                    time.sleep(NAP)


_NAME = __name__.encode()


def quiet_logging() -> None:
    """Warnings, errors and requests go to standard error, one line each. What is no HTTP is no news."""
    # `logging` keeps the handler and its formatter until the interpreter has ended. If their modules reached the
    # database's library, it would be freed too late, and report its objects as lost.
    lines = LogLines(STDERR)
    lines.setFormatter(ServiceLines("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[lines])
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    # What fails in an exchange of several statements is raised, and told again at its end.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    logging.getLogger(ACCESS).setLevel(logging.INFO)


class ServiceLines(logging.Formatter):
    """A request's line is its JSON alone. An error is told by its class: its text may hold values."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name == ACCESS:
            return record.getMessage()
        error = record.exc_info[0] if record.exc_info else None
        record.exc_info = record.exc_text = None
        line = super().format(record)
        return f"{line}: {error.__name__}" if error else line

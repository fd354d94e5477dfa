"""Write the log to standard error in a thread of its own, so that no request waits for a slow reader.

A reader that stops reading would otherwise stop every process that writes to its pipe. Lines wait for it, up to a
bound. Further ones are dropped, and the log says how many as soon as it is read again.
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
"""The most lines that wait: some megabytes."""
ENOUGH = 3072
"""Bytes of lines that are written at once. A pipe keeps up to 4,096 together, which leaves room for the last line."""
NAP = 0.02
"""Seconds to let new lines gather after a write, so that the thread wakes rarely in busy times."""
LAST = 2.0
"""Seconds that an ending process waits for its last lines to be read."""


class LogLines(logging.Handler):
    """A logging handler that queues lines, and a thread that writes them to a descriptor."""

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
        """The number of lines that are still to be written."""
        return self._lines.qsize()

    def close(self) -> None:
        """Wait up to `LAST` seconds for the thread to write all lines."""
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
        """Wait for a line. Return it with the lines after it, and False if the handler was closed."""
        taken, line = b"", self._lines.get()
        with contextlib.suppress(Empty):
            while line is not None:
                taken += line
                if len(taken) > ENOUGH:
                    break
                line = self._lines.get_nowait()
        return taken, line is not None

    def _write(self, text: bytes) -> None:
        # The service goes on when the reader of its log has ended. Another process that shares the descriptor may have
        # made it non-blocking.
        with contextlib.suppress(OSError):
            while text:
                try:
                    text = text[os.write(self._descriptor, text) :]
                except BlockingIOError:
                    time.sleep(NAP)


_NAME = __name__.encode()


def quiet_logging() -> None:
    """Log warnings, errors and requests to standard error, one line each, without uvicorn's on invalid HTTP."""
    # `logging` keeps the handler and its formatter until the interpreter has ended. This module must not import the
    # database's library: it would be freed too late, and report leaked objects.
    lines = LogLines(STDERR)
    lines.setFormatter(ServiceLines("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[lines])
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    # psycopg logs a failure in a pipeline once more after it was raised.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    logging.getLogger(ACCESS).setLevel(logging.INFO)


class ServiceLines(logging.Formatter):
    """Format a request as its JSON alone, and an exception as its class: its text may hold patient data."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name == ACCESS:
            return record.getMessage()
        error = record.exc_info[0] if record.exc_info else None
        record.exc_info = record.exc_text = None
        line = super().format(record)
        return f"{line}: {error.__name__}" if error else line

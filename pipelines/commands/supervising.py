"""The processes of a supervisor: start them, check that they are ready, stop them; and the signals it obeys."""

import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from pipelines.home.dagster_folder import WEB_HOST
from pipelines.home.exits import ExplainedError
from pipelines.home.files import locked_by_name
from pipelines.home.logs import last_line

LOOPBACK, EVERY_ADDRESS = "127.0.0.1", "0.0.0.0"  # noqa: S104 - only on demand
ENDS_WITHIN_SECONDS = 30.0
RESTARTS, RESTARTS_WITHIN_SECONDS = 5, 120.0

Say = Callable[[str], None]


class CannotStart(ExplainedError):
    """A process cannot start or keep running. The message is one line with the reason."""


class FolderRemoved(CannotStart):
    """The folder with the state and logs of Dagster's processes is gone, and the lock with it."""


@dataclass
class ChildProcess:
    """A supervised process.

    * url: answers with status 200 once the process is ready.
    * socket: exists once the process is ready.
    * listens: host and port that accept connections once the process is ready.
    """

    name: str
    command: Sequence[str]
    log: Path
    url: str | None = None
    socket: Path | None = None
    listens: tuple[str, int] | None = None
    process: subprocess.Popen[bytes] | None = None
    began: int = 0
    starts: list[float] = field(default_factory=list)

    def start(self, environ: Mapping[str, str]) -> None:
        """Start the process in its own session, so that Ctrl-C reaches only the supervisor. Output goes to its log.

        Its standard input is a pipe. The process ends when the pipe closes, which happens even if the supervisor is
        killed.
        """
        with self.log.open("ab") as log:
            self.began = log.tell()
            self.starts.append(time.monotonic())
            self.process = subprocess.Popen(  # noqa: S603 - a command of our own, no shell
                self.command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=dict(environ), start_new_session=True
            )

    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def ready(self) -> bool:
        if self.listens:
            return no_answer(*self.listens) is None
        if self.url is None:
            return self.socket is None or self.socket.is_socket()
        try:
            return httpx.get(self.url, timeout=5, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def lived_long(self) -> bool:
        """True if the process began so long ago that its end does not count as a repeated one."""
        return time.monotonic() - self.starts[-1] >= RESTARTS_WITHIN_SECONDS

    def restarts_too_often(self) -> bool:
        return len([at for at in self.starts if time.monotonic() - at < RESTARTS_WITHIN_SECONDS]) > RESTARTS

    def last_words(self) -> str:
        """Return the last line that the process logged since its start."""
        try:
            with self.log.open("rb") as file:
                file.seek(min(self.began, file.seek(0, os.SEEK_END)))
                said = last_line(file.read())
        except OSError as error:
            return f"{self.log} cannot be read: {error.strerror}"
        return said or f"it wrote no message since its start; see {self.log}"

    def stop(self) -> None:
        """Ask the process to end, and wait; then kill the rest of its process group."""
        process = self.process
        if process is None:
            return
        assert process.stdin is not None  # noqa: S101 - a pipe was asked for
        for signal_ in (signal.SIGINT, signal.SIGTERM):
            if process.poll() is None:
                process.send_signal(signal_)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(ENDS_WITHIN_SECONDS)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(OSError):
            process.stdin.close()
        process.wait()


@contextmanager
def only_up(folder: Path, home: Path) -> Iterator[Callable[[], None]]:
    """Hold the lock of this home, since two daemons would run everything twice. Raises CannotStart if it is taken.

    Yields:
        A check that raises Removed if Dagster's folder was replaced, and CannotStart if the home was.
    """

    def taken(holder: str) -> None:
        said = f"process {holder} runs `chartferry up` or `serve` over {home} already: end that process first"
        raise CannotStart(said) from None

    def look() -> None:
        if not _is_still(lock, locked):
            if not _is_still(home, lived):
                raise CannotStart(
                    f"{home} was removed or replaced while its processes ran: put the folder back, and start again"
                )
            raise FolderRemoved(f"{folder} was removed or replaced while Dagster ran in it")

    lock = folder / ".up.lock"
    with locked_by_name(lock, taken):
        locked, lived = lock.stat(), home.stat()
        yield look


def _is_still(path: Path, before: os.stat_result) -> bool:
    """True unless the path is missing or leads to another file. A path that cannot be read counts as unchanged."""
    try:
        return os.path.samestat(path.stat(), before)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def free(port: int, option: str, variable: str) -> int:
    """Return the port, or a free one for 0. Raises CannotStart if it cannot be used."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((LOOPBACK, port))
        except OSError as error:
            raise CannotStart(
                f"port {port} of {LOOPBACK} cannot be used ({error.strerror}): name another by {option} or {variable}"
            ) from None
        return int(tried.getsockname()[1])


def check_web_host(environ: Mapping[str, str], say: Say) -> None:
    """Raise CannotStart if loopback cannot reach the pages at their address; say so if they listen on every address."""
    host = environ.get(WEB_HOST) or LOOPBACK
    if host not in (LOOPBACK, EVERY_ADDRESS):
        raise CannotStart(
            f"{WEB_HOST} is {host!r}: the pages can listen only on {LOOPBACK} or {EVERY_ADDRESS}; set one of them"
        )
    if host == EVERY_ADDRESS:
        say(f"Dagster's pages listen on {host}, without sign-in: all who reach this machine can use them")


def no_answer(host: str, port: int, seconds: float = 5.0) -> str | None:
    """Return why nothing accepts connections at an address; None if something does."""
    try:
        socket.create_connection((host.strip("[]"), port), seconds).close()
    except OSError as error:
        return error.strerror or "it timed out"
    return None


def check_own(host: str, port: int) -> None:
    """Raise CannotStart if this machine cannot listen on an address."""
    try:
        [(family, _, _, _, at), *_] = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        with socket.socket(family) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(at)
    except OSError as error:
        raise CannotStart(
            f"{host}:{port} cannot be used to listen on ({error.strerror}): name a free address of this host"
        ) from None


@contextmanager
def signals() -> Iterator[int]:
    """Yield a file descriptor that becomes readable when SIGINT or SIGTERM arrives."""
    wakes, bell = os.pipe()
    os.set_blocking(bell, False)
    before = {each: signal.signal(each, lambda *_: None) for each in (signal.SIGINT, signal.SIGTERM)}
    rung = signal.set_wakeup_fd(bell)
    try:
        yield wakes
    finally:
        signal.set_wakeup_fd(rung)
        for each, handler in before.items():
            signal.signal(each, handler)
        os.close(wakes)
        os.close(bell)


def asked_to_end(wakes: int, seconds: float) -> bool:
    """Wait until a signal arrives or the time is over; return True for a signal."""
    with selectors.DefaultSelector() as selector:
        selector.register(wakes, selectors.EVENT_READ)
        return bool(selector.select(seconds))

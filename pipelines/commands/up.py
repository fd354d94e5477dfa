"""The supervisor of `chartferry up`: runs the bundled service, and Dagster's code server, web server and daemon.

It starts these processes, prints their addresses, restarts those that end by themselves, and stops all at Ctrl-C.
"""

import fcntl
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from pipelines.commands.definitions import DEFINITIONS, Reloading, reload, stamp_of, write_workspace
from pipelines.home.dagster_folder import INSECURE, dagster_environment, is_set, lacking, prepare_dagster_home
from pipelines.home.logs import rotate
from pipelines.home.preparing import prepare_home
from pipelines.session.bundled import STORE
from pipelines.session.named import NAMES, named_target
from pipelines.session.service_commands import SERVICE

LOOPBACK = "127.0.0.1"
SERVICE_PORT, WEB_PORT = 8400, 3000
REFERENCE = "reference"
READY_WITHIN_SECONDS = 600.0
ENDS_WITHIN_SECONDS = 30.0
RESTARTS, RESTARTS_WITHIN_SECONDS = 5, 120.0

Say = Callable[[str], None]


class CannotStart(Exception):
    """A process cannot start or keep running. The message is one line that says why."""


@dataclass
class Child:
    """A supervised process.

    url: answers with status 200 once it is ready. socket: is there once it is ready. comes_first: the others need it.
    """

    name: str
    command: Sequence[str]
    log: Path
    url: str | None = None
    socket: Path | None = None
    comes_first: bool = False
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
        if self.url is None:
            return self.socket is None or self.socket.is_socket()
        try:
            return httpx.get(self.url, timeout=5, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def restarts_too_often(self) -> bool:
        return len([at for at in self.starts if time.monotonic() - at < RESTARTS_WITHIN_SECONDS]) > RESTARTS

    def last_words(self) -> str:
        """Return the last line that the process logged since its start."""
        with self.log.open("rb") as file:
            file.seek(min(self.began, file.seek(0, os.SEEK_END)))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else f"it said nothing, see {self.log}"

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


def up(home: Path, environ: Mapping[str, str], service_port: int, web_port: int, say: Say) -> None:
    """Run all processes until SIGINT or SIGTERM. Port 0 means any free port. Raises CannotStart and BadTarget."""
    home = home.resolve()
    prepare_home(home)
    folder = prepare_dagster_home(home)
    environ = dagster_environment(home, environ)
    with ExitStack() as stack:
        stack.enter_context(_alone(folder, home))
        if missing := lacking(folder):
            say(f"{folder / 'dagster.yaml'} has no {', '.join(missing)}: move it aside and start again to have them")
        children = []
        if any(environ.get(name) for name in NAMES):
            named_target(environ, is_set(environ, INSECURE))
        else:
            (home / REFERENCE).mkdir(mode=0o700, exist_ok=True)
            children.append(_service(home, free(service_port, "--port", "CHARTFERRY_SERVICE_PORT")))
        runtime = Path(stack.enter_context(TemporaryDirectory(prefix="chartferry-")))
        children += _dagster(folder, runtime, port := free(web_port, "--web-port", "CHARTFERRY_WEB_PORT"))
        reloading = Reloading(lambda: stamp_of(home, environ), lambda: reload(f"http://{LOOPBACK}:{port}"), say)
        wakes = stack.enter_context(_signals())
        for child in children:
            stack.callback(child.stop)
        say("starting ...")
        first = [child for child in children if child.comes_first]
        if _start(first, environ, wakes) and _start([each for each in children if each not in first], environ, wakes):
            _tell(children, home, say)
            _watch(children, environ, wakes, say, reloading.look)
        say("stopping ...")
    say("stopped")


@contextmanager
def _alone(folder: Path, home: Path) -> Iterator[None]:
    """Hold the lock of this home: two daemons would run everything twice. Raises CannotStart if it is taken."""
    file = os.open(folder / ".up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise CannotStart(
                f"process {holder} runs `chartferry up` over {home} already: end that one first"
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(file)


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


def _service(home: Path, port: int) -> Child:
    serve = ("serve", "--store", str(home / STORE), "--host", LOOPBACK, "--port", str(port), "--until-stdin-closes")
    url = f"http://{LOOPBACK}:{port}/health"
    return Child("service", (*SERVICE, *serve), home / "service.log", url, comes_first=True)


def _dagster(folder: Path, runtime: Path, port: int) -> list[Child]:
    """Return Dagster's three processes. runtime: a folder of the owner, for the socket that they share.

    Whoever may write to the code server's socket may have it run any program: it is no port of this machine. The file
    that names it is in the home, since a process that is restarted reads it again: a system may remove old files of
    `/tmp`. The path of a socket must be short, so that the socket itself is there.
    """
    socket, workspace = runtime / "code.sock", folder / "workspace.yaml"
    write_workspace(workspace, socket)
    attended = (sys.executable, "-m", "pipelines.dagster.attended")
    code = (*attended, "code", DEFINITIONS, str(socket))
    web = (*attended, "web", LOOPBACK, str(port), str(workspace))
    daemon = (*attended, "daemon", "run", "-w", str(workspace))
    return [
        Child("code server", code, folder / "code-server.log", socket=socket, comes_first=True),
        Child("Dagster", web, folder / "webserver.log", f"http://{LOOPBACK}:{port}/server_info"),
        Child("daemon", daemon, folder / "daemon.log"),
    ]


@contextmanager
def _signals() -> Iterator[int]:
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


def _asked_to_end(wakes: int, seconds: float) -> bool:
    """Wait until a signal arrives or the time is over; True for a signal."""
    with selectors.DefaultSelector() as selector:
        selector.register(wakes, selectors.EVENT_READ)
        return bool(selector.select(seconds))


def _start(children: Sequence[Child], environ: Mapping[str, str], wakes: int) -> bool:
    """Start processes and wait until all are ready; False if a signal came first. Raises CannotStart."""
    for child in children:
        child.start(environ)
    return _wait_until_ready(children, wakes)


def _wait_until_ready(children: Sequence[Child], wakes: int) -> bool:
    """Wait until all processes are ready; False if a signal came first. Raises CannotStart if one ends or is late."""
    until = time.monotonic() + READY_WITHIN_SECONDS
    waiting = list(children)
    while waiting:
        if _asked_to_end(wakes, 0.2):
            return False
        for child in children:
            if child.ended():
                raise CannotStart(f"{child.name} did not start: {child.last_words()}")
        waiting = [child for child in waiting if not child.ready()]
        if waiting and time.monotonic() > until:
            raise CannotStart(f"{waiting[0].name} does not answer: {waiting[0].last_words()}")
    return True


def _watch(
    children: Sequence[Child], environ: Mapping[str, str], wakes: int, say: Say, look: Callable[[], None]
) -> None:
    """Restart processes that end by themselves, until a signal arrives. Raises CannotStart if one ends too often.

    look: is called once a second.
    """
    while not _asked_to_end(wakes, 1.0):
        look()
        for child in children:
            if rotate(child.log):
                child.began = 0
            if child.ended():
                words = child.last_words()
                child.stop()
                if child.restarts_too_often():
                    raise CannotStart(f"{child.name} ends again and again: {words}")
                say(f"{child.name} ended ({words}); starting it anew")
                child.start(environ)


def _tell(children: Sequence[Child], home: Path, say: Say) -> None:
    for child in children:
        if child.url:
            say(f"{child.name:9} {child.url.rpartition('/')[0]}")
            if child.name == "service":
                say(f"{'chart':9} {child.url.rpartition('/')[0]}/chart")
    is_bundled = any(child.name == "service" for child in children)
    told = {
        "inbox": f"{home / 'inbox'}  (what is put there is imported)",
        "reference": f"{home / REFERENCE}  (patients and the rest, as NDJSON: loaded before any import)",
        "feeds": f"{home / 'feeds'}  (how other exports are read)",
        "batches": f"{home / 'batches'}  (each file, and what became of it)",
        "report": f"{home / 'published' / 'report.html'}  (what needs a look, and the tables beside it)",
        "evidence": f"{home / 'evidence'}  (pages to sign, by chartferry evidence)",
        "metrics": f"{home / 'metrics.prom'}  (figures for Prometheus)",
        "logs": f"{home / 'service.log'}, {home / 'dagster'}/*.log",
    }
    for name, said in told.items():
        if is_bundled or name != "reference":
            say(f"{name:9} {said}")
    say("Ctrl-C ends all of it")

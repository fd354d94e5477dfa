"""Serve the interface: open the socket, run the server, say when it is ready, and end in order."""

import contextlib
import gc
import os
import secrets
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from fhir_service.admin.running_service import Door
from fhir_service.admin.service_door import routes
from fhir_service.app import create_app
from fhir_service.service import Service
from fhir_service.serving.audit_after_kill import put_on_record
from fhir_service.settings import Settings
from fhir_service.web import traces
from fhir_service.web.protocol import HttpProtocol

TURN_SECONDS = 0.001
"""Seconds that a thread may run while another one waits for the interpreter."""
GRACE = 60
"""Seconds for unfinished requests when the service ends: a client that stops sending must not hold it up."""


class StoreEnded(OSError):
    """The database has failed for good in this process. The parent or the operator has to start another."""


class PortTaken(OSError):
    """Nothing can listen on the address, which the message names."""


def serve(settings: Settings, until_stdin_closes: bool = False, shared_socket: int | None = None) -> None:
    """Serve until SIGTERM or SIGINT, or until standard input ends.

    Prints one line with its address once it answers. Raises what `Service.open` raises, and PortTaken or StoreEnded.

    Args:
        shared_socket: the descriptor of a socket on which other processes take connections too.
    """
    if lacking := traces.start(os.environ):
        print(f"fhir-service: {lacking}", file=sys.stderr, flush=True)
    with contextlib.ExitStack() as stack:
        # Bind port 0 before the base URL is made of its number. Bind a given port after the store is opened: a second
        # service over a store then reports the store in use, and not the port.
        listening = stack.enter_context(socket.socket(fileno=shared_socket)) if shared_socket is not None else None
        if settings.port == 0:
            listening = stack.enter_context(listen(settings))
            settings = settings.bound_to(listening.getsockname()[1])
        service = Service.open(settings)
        stack.callback(service.close)
        put_on_record(service)
        service.audit.works()  # else it would be known, and said in the log, at the first request alone
        listening = listening or stack.enter_context(listen(settings))
        secret = secrets.token_urlsafe(32)
        app = create_app(service, routes(service, secret))
        stack.enter_context(_collecting_rarely())
        stack.enter_context(_taking_short_turns())
        dialect = service.store.dialect
        server = _Server(app, lambda: stack.enter_context(_ready(settings, secret)), lambda: dialect.broken)
        if until_stdin_closes:
            stack.enter_context(watching_stdin(server.stop))
        server.run([listening])
    if dialect.broken:
        raise StoreEnded(
            "the database ended after a failure of its disk; every acknowledged write is stored: check the disk,"
            " and start the service again"
        )


@contextlib.contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Freeze the objects that are there, and look for cycles rarely: bodies make many objects and no cycles."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(500_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextlib.contextmanager
def _taking_short_turns() -> Iterator[None]:
    """Let threads take turns after shorter times: a read waits for such a turn several times."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextlib.contextmanager
def _ready(settings: Settings, secret: str) -> Iterator[None]:
    """Say that the service answers, and leave its run file until it ends. A database server needs none."""
    path = settings.store_path
    door = Door.open(path, settings.url, secret) if path else None
    print(f"listening on {settings.url}", flush=True)
    try:
        yield
    finally:
        if door and path:
            door.shut(path)


def listen(settings: Settings) -> socket.socket:
    """Return a socket that is bound to the address of the settings. Raises PortTaken."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((settings.host, settings.port))
    except OSError as error:
        bound.close()
        raise PortTaken(f"cannot listen on {settings.host} port {settings.port}: {error.strerror}") from None
    return bound


@contextlib.contextmanager
def watching_stdin(stop: Callable[[], None]) -> Iterator[None]:
    """Within, ask for the end once the pipe that the parent holds closes, however the parent ends.

    The thread that waits for it ends too: what it holds would be left when the interpreter ends.
    """
    wakes, wake = os.pipe()
    watching = threading.Thread(target=_watch_stdin, args=[stop, wakes], name="stdin", daemon=True)
    watching.start()
    try:
        yield
    finally:
        os.close(wake)
        watching.join()
        os.close(wakes)


def _watch_stdin(stop: Callable[[], None], wakes: int) -> None:
    with contextlib.suppress(OSError):
        stdin = sys.stdin.fileno()
        while wakes not in select.select([stdin, wakes], [], [])[0]:
            if not os.read(stdin, 4096):
                break
    stop()


class _Server(uvicorn.Server):
    """uvicorn, which says when it is ready and ends without raising the signal again."""

    def __init__(self, app: Any, ready: Callable[[], object], broken: Callable[[], bool]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=HttpProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE,
            )
        )
        self._ready, self._broken = ready, broken

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._broken()

    def stop(self) -> None:
        """Finishes what is under way and ends. From any thread."""
        self.should_exit = True

    def interrupt(self) -> None:
        """Handle Ctrl-C: stop, or end at once if it is pressed again."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handlers of uvicorn: they raise the signal again at the end, and the exit code would not be 0."""
        with asked_by_signals(self.stop, self.interrupt):
            yield


@contextlib.contextmanager
def asked_by_signals(stop: Callable[[], None], interrupt: Callable[[], None]) -> Iterator[None]:
    """Within, let SIGTERM and SIGINT ask for the end. Afterwards ignore them: the rest is short.

    Handlers of the event loop would be gone by then, and a second SIGTERM could end the process while it closes its
    store.
    """
    for number, ask in ((signal.SIGTERM, stop), (signal.SIGINT, interrupt)):
        signal.signal(number, lambda *_, ask=ask: ask())
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

"""The service over the store of a home: a command starts it where none runs, and it ends with the command."""

import json
import os
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

import httpx

from pipelines.client.replies import TargetUnusable
from pipelines.home.files import locked_by_name
from pipelines.home.logs import last_line
from pipelines.home.paths import exists
from pipelines.session import service_commands

STORE = "service.duckdb"
LOCK = ".service.lock"
STARTS_WITHIN_SECONDS = 60.0
ENDS_WITHIN_SECONDS = 30.0
LISTENING = "listening on "

Say = Callable[[str], None]


@contextmanager
def bundled_service(home: Path, environ: Mapping[str, str], say: Say = lambda _: None) -> Iterator[str]:
    """The base URL of the service over the home's store: the running one, else one that ends with this process."""
    store = home / STORE
    with ExitStack() as turn:
        turn.enter_context(_turn(home, say))
        if url := running(store):
            turn.close()
            yield url
            return
        with _child(store, home / "service.log", environ) as url:
            yield url


def _turn(home: Path, say: Say) -> AbstractContextManager[None]:
    """A lock on the home: one command at a time starts a service of its own."""
    waiting = "waiting for process {}, which works with the bundled service of this home"
    return locked_by_name(home / LOCK, lambda holder: say(waiting.format(holder)))


def running(store: Path) -> str | None:
    """The address of a service that runs over the store, if it answers."""
    try:
        note = json.loads(store.with_name(store.name + ".run").read_bytes())
        os.kill(int(note["pid"]), 0)
        url = str(note["url"]).rstrip("/")
        return url if httpx.get(f"{url}/health", timeout=10, trust_env=False).status_code == 200 else None
    except (OSError, ValueError, KeyError, TypeError, httpx.HTTPError, httpx.InvalidURL):
        return None


@contextmanager
def _child(store: Path, log: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """A service of our own. It ends when the pipe to it closes, which it does even when this process is killed."""
    command = [*service_commands.SERVICE, "serve", "--store", str(store), "--port", "0", "--until-stdin-closes"]
    with log.open("ab") as errors:
        began = errors.tell()
        child = subprocess.Popen(  # noqa: S603 - a command of our own, no shell
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=dict(environ),
            start_new_session=True,
        )
    try:
        url = _listening(child)
        if url is None:
            child.kill()
            raise TargetUnusable(f"the bundled service did not start: {_last_line(log, began)}")
        yield url
    finally:
        _end(child)


def _listening(child: subprocess.Popen[bytes]) -> str | None:
    """The address that the child prints; None when it ends or stays silent. What it prints later is dropped."""
    assert child.stdout is not None  # noqa: S101 - a pipe was asked for
    deadline = time.monotonic() + STARTS_WITHIN_SECONDS
    said = b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            part = os.read(child.stdout.fileno(), 4096)
            said += part
            for line in said.decode("utf-8", "replace").splitlines(keepends=True):
                if line.startswith(LISTENING) and line.endswith("\n"):
                    threading.Thread(target=child.stdout.read, daemon=True).start()
                    return line.removeprefix(LISTENING).strip().rstrip("/")
            if not part:
                return None
    return None


def _end(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None  # noqa: S101 - a pipe was asked for
    child.stdin.close()
    for stop in (child.terminate, child.kill):
        try:
            child.wait(ENDS_WITHIN_SECONDS)
            break
        except subprocess.TimeoutExpired:
            stop()
    child.wait()
    if child.stdout:
        child.stdout.close()


def _last_line(log: Path, began: int) -> str:
    with log.open("rb") as file:
        file.seek(began)
        return last_line(file.read()) or "it said nothing"


def copy_store(home: Path, to: Path, environ: Mapping[str, str], say: Say) -> None:
    """A consistent copy of the home's store, through the service that has it open. Raises `TargetUnusable`."""
    store = home / STORE
    starts_elsewhere = not running(store) and exists(home / LOCK)
    with _turn(home, say) if starts_elsewhere else nullcontext():
        service_commands.copy_named_store(str(store), to, environ)

"""The definitions that Dagster's processes share under `chartferry up`: their code server, and its reloads."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from pipelines.home.files import write_whole

DEFINITIONS = "pipelines.definitions"
RELOAD = (sys.executable, "-m", "pipelines.dagster.reload")
RELOADED_WITHIN_SECONDS = 120

Stamp = tuple[tuple[str, int, int], ...]
"""Name, size and time of each file from which the definitions are made."""


def write_workspace(path: Path, locations: Mapping[str, Path | tuple[str, int]]) -> None:
    """Write the file that tells Dagster's processes where the code servers are.

    locations: the socket of each, or its host and port.
    """
    servers = [{**_where(at), "location_name": name} for name, at in locations.items()]
    write_whole(path, yaml.safe_dump({"load_from": [{"grpc_server": server} for server in servers]}).encode())


def _where(at: Path | tuple[str, int]) -> dict[str, str | int]:
    return {"socket": str(at)} if isinstance(at, Path) else {"host": at[0], "port": at[1]}


def stamp_of(home: Path, environ: Mapping[str, str]) -> Stamp:
    """Return the stamp of the files of feeds, crosswalks and views."""
    more = [Path(name) for name in environ.get("CHARTFERRY_FEEDS", "").split(os.pathsep) if name]
    return tuple(sorted(each for folder in (home / "feeds", home / "views", *more) for each in _files(folder)))


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        try:
            about = entry.stat()
        except OSError:  # removed since
            continue
        yield entry.path, about.st_size, about.st_mtime_ns


@dataclass
class DefinitionsReloader:
    """Tells a user if the definitions cannot be used: once at the start, and after each change of their files.

    They are reloaded when two looks in a row found the changed files equal.

    * stamp: returns the present stamp.
    * ask: called in a thread, with True to reload them first, and True if they could not be used before; returns why
      they cannot be used. Raises OSError if nobody answers; it is then tried again after a pause.
    """

    stamp: Callable[[], Stamp]
    ask: Callable[[bool, bool], str | None]
    say: Callable[[str], None]
    pause: float = 10.0
    loaded: Stamp = ()
    before: Stamp = ()
    asked: bool = False
    failed: bool = False
    thread: threading.Thread | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.loaded = self.before = self.stamp()

    def look(self) -> None:
        """Look at the files once; start to ask if that was never done, or to reload if the files have changed."""
        now, before = self.stamp(), self.before
        self.before = now
        anew = now != self.loaded and now == before
        if (anew or not self.asked) and not (self.thread and self.thread.is_alive()):
            of = now if anew else self.loaded
            self.thread = threading.Thread(target=self._ask, args=(anew, of), name="reload", daemon=True)
            self.thread.start()

    def _ask(self, anew: bool, of: Stamp) -> None:
        try:
            why = self.ask(anew, self.failed)
        except OSError:
            time.sleep(self.pause)
            return
        self.loaded, self.asked, self.failed = of, True, bool(why)
        if anew or why:
            self.say(why or "feeds and views were read again")


def definitions_at(address: str, environ: Mapping[str, str], anew: bool, failed: bool) -> str | None:
    """Return why the definitions of a code server cannot be used; pages and daemon notice a reload themselves.

    address: the path of its socket, or `HOST:PORT`. anew: True to reload them first. failed: True if they could not be
    used before; an alert is sent if that changes. Raises OSError if the code server does not answer.
    """
    command = (*RELOAD, address, str(RELOADED_WITHIN_SECONDS if anew else 0), *(["failed"] if failed else []))
    asked = subprocess.run(command, env=dict(environ), capture_output=True, check=False)  # noqa: S603 - no shell
    if asked.returncode:
        raise ConnectionError("the code server does not answer")
    why: str | None = json.loads(asked.stdout)
    return why

"""The definitions that Dagster's processes share under `chartferry up`: their code server, and its reloads."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from pipelines.home.files import write_whole

DEFINITIONS = "pipelines.definitions"
RELOAD = (sys.executable, "-m", "pipelines.dagster.reload")
CLASS_OF_OURS = re.compile(r"^pipelines\.[\w.]+: ")
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
    """Reloads the definitions when their files have changed and two looks in a row found them equal.

    * stamp: returns the present stamp.
    * reload: called in a thread; returns a sentence for the user. Raises OSError if nobody answers; it is then tried
      again.
    """

    stamp: Callable[[], Stamp]
    reload: Callable[[], str]
    say: Callable[[str], None]
    loaded: Stamp = ()
    before: Stamp = ()
    thread: threading.Thread | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.loaded = self.before = self.stamp()

    def look(self) -> None:
        """Look at the files once; start to reload the definitions if the files have changed."""
        now, before = self.stamp(), self.before
        self.before = now
        if now != self.loaded and now == before and not (self.thread and self.thread.is_alive()):
            self.thread = threading.Thread(target=self._reload, args=(now,), name="reload", daemon=True)
            self.thread.start()

    def _reload(self, now: Stamp) -> None:
        try:
            said = self.reload()
        except OSError:
            return
        self.loaded = now
        self.say(said)


def reload_at(address: str, environ: Mapping[str, str]) -> str:
    """Make a code server of this host read its definitions anew; pages and daemon notice it themselves.

    address: the path of its socket, or `HOST:PORT`. Returns a sentence with the result. Raises OSError if the code
    server does not answer.
    """
    command = (*RELOAD, address, str(RELOADED_WITHIN_SECONDS))
    asked = subprocess.run(command, env=dict(environ), capture_output=True, check=False)  # noqa: S603 - no shell
    if asked.returncode:
        raise ConnectionError("the code server does not answer")
    return sentence_of(json.loads(asked.stdout))


def sentence_of(reasons: Sequence[str]) -> str:
    """Return a sentence for the end of a reload. reasons: the errors, the cause last; empty if it succeeded."""
    if not reasons:
        return "feeds and views were read again"
    reason = CLASS_OF_OURS.sub("", reasons[-1].strip())
    return f"a feed or a view cannot be used, and nothing is imported until it is corrected: {reason}"

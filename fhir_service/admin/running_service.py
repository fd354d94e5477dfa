"""Find the service that has a store open, and ask it to do an operation: commands need not stop it.

While it serves, a service leaves `<store>.run` with its process, its address and a secret, readable by the file's owner
alone. Imports next to nothing: a command that goes through a service starts in a blink.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HEADER = "x-door"
Arguments = Mapping[str, Any]
Result = dict[str, Any]


class CommandError(Exception):
    """A command that cannot be done, in one sentence, with the exit code that says so."""

    def __init__(self, sentence: str, exit_code: int = 1) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


def run_file(store: Path) -> Path:
    """Return the path of a store's run file: `<store>.run`."""
    return store.with_name(f"{store.name}.run")


@dataclass(frozen=True)
class Door:
    """The content of a run file: the process, its address, and the secret (`door`) that opens it."""

    pid: int
    url: str
    door: str

    @classmethod
    def of(cls, store: Path | None) -> "Door | None":
        """Return the door of the service that has a store open; None if there is no such process."""
        try:
            found = json.loads(run_file(store).read_bytes()) if store else {}
            door = cls(int(found["pid"]), str(found["url"]), str(found["door"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return door if runs(door.pid) else None

    @classmethod
    def open(cls, store: Path, url: str, secret: str) -> "Door":
        """Leave the run file of this process, mode 0600, in one step."""
        door = cls(os.getpid(), url, secret)
        path = run_file(store)
        part = path.with_name(f".{path.name}.{door.pid}")
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(asdict(door), file)
        part.replace(path)
        return door

    def shut(self, store: Path) -> None:
        """Remove the run file, unless another service has left its own."""
        if Door.of(store) == self:
            run_file(store).unlink(missing_ok=True)

    def ask(self, operation: str, arguments: Arguments) -> Result:
        """Return the result of an operation of the running service. Raises CommandError, ConnectionRefusedError."""
        address = urlsplit(self.url)
        connection = HTTPConnection(address.hostname or "", address.port or 80)
        headers = {"content-type": "application/json", HEADER: self.door}
        try:
            connection.request("POST", f"/_door/{operation}", json.dumps(arguments), headers)
            answer = connection.getresponse()
            status, body = answer.status, json.loads(answer.read())
        except ConnectionRefusedError:
            raise
        except (OSError, HTTPException, ValueError):
            raise CommandError(
                f"process {self.pid} of the service ended before it answered: check whether the command was carried out"
            ) from None
        finally:
            connection.close()
        if status == 200:
            result: Result = body
            return result
        if "error" not in body:
            raise CommandError(
                f"process {self.pid} of the service refused the command with HTTP {status}:"
                " restart it if it runs another version"
            )
        raise CommandError(body["error"], body["exit"])


def runs(pid: int) -> bool:
    """True if there is a process of this number, of any user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return pid > 0

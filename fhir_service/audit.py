"""Who did what to whose data: one line of JSON for each write, read and search, appended to a file beside the store.

Ids, codes and times only; never content. A line is written before the answer that it tells of goes out.
"""

import json
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request


@dataclass(slots=True)
class Touch:
    """One act on data: what was done to which type, to which resource where it is one, and whose data it was.

    `status` is the HTTP status of this part where it has its own (an entry of a batch).
    """

    interaction: str
    type: str
    id: str | None = None
    patients: tuple[str, ...] = ()
    status: int | None = None


def touch(request: Request, interaction: str, resource_type: str, resource_id: str | None = None) -> Touch:
    """Notes what a request does, for the line that its answer writes. What is known later is set on the result."""
    noted = Touch(interaction, resource_type, resource_id)
    request.scope.setdefault("touched", []).append(noted)
    return noted


class Audit:
    """Appends to the audit file; from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._lock = threading.Lock()

    def write(
        self, touches: Iterable[Touch], time: datetime, client: str | None, status: int, correlation: str
    ) -> None:
        """Adds a line for each touch, in one write."""
        about = {"time": time.isoformat(timespec="milliseconds"), "client": client, "correlation": correlation}
        ending = b"," + orjson.dumps(about)[1:] + b"\n"
        lines = b"".join(orjson.dumps(_record(one, status))[:-1] + ending for one in touches)
        if lines:
            with self._lock:
                os.write(self._opened(), lines)

    def _opened(self) -> int:
        """The file, made with the first line: a command that touches no data leaves none behind."""
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)


def _record(one: Touch, status: int) -> dict[str, Any]:
    record: dict[str, Any] = {"interaction": one.interaction, "type": one.type, "status": one.status or status}
    if one.id:
        record["id"] = one.id
    if one.patients:
        record["patients"] = one.patients
    return record


def read(path: Path, patient: str | None, client: str | None, since: datetime | None) -> Iterator[dict[str, Any]]:
    """The records of an audit file that match, in order. A line cut short by a crash is passed over."""
    patient = patient.removeprefix("Patient/") if patient else None
    with path.open("rb") as file:
        for line in file:
            try:
                record: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            if patient and patient not in record.get("patients", ()):
                continue
            if client and client != record.get("client"):
                continue
            if since and datetime.fromisoformat(record["time"]) < since:
                continue
            yield record

"""The audit: one line of JSON for each write, read and search, appended to a file beside the store.

It holds ids, codes and times only; never content. A line is written before its answer goes out. While that fails, no
further request that touches data is taken.
"""

import heapq
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request

from fhir_service.audit.chain import ChainedFile, files_of, records_of
from fhir_service.audit.unknown_ids import Stranger, shown
from fhir_service.audit.witnesses import Witnesses
from fhir_service.interface.outcomes import NOT_FOUND, UNAVAILABLE, FhirError
from fhir_service.store.changes import Witness

READS = frozenset(("read", "search", "history", "document", "validate"))
"""Interactions whose answers are withheld if they cannot be audited. All others may have been stored already."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Touch:
    """One act on data: what was done to which type, to which resource where it is one, and whose data it was.

    patients: ids; that of a `Stranger` is written as a keyed hash. status: the HTTP status of this part where it has
    its own (an entry of a batch). stored_at: when it was stored, where its record comes after the service was killed.
    """

    interaction: str
    type: str
    id: str | None = None
    patients: tuple[str, ...] = ()
    status: int | None = None
    stored_at: datetime | None = None


def touch(request: Request, interaction: str, resource_type: str, resource_id: str | None = None) -> Touch:
    """Note what a request is about to do. Its answer writes the line; the caller adds to the act what it learns later.

    Raises:
        FhirError: the audit cannot be written, so nothing may be done.
    """
    require_audit(request)
    noted = Touch(interaction, resource_type, resource_id)
    request.scope.setdefault("touched", []).append(noted)
    return noted


def require_audit(request: Request) -> None:
    """Raise the 503 of a service whose audit cannot be written."""
    if not request.scope["audit"].ready():
        raise audit_unwritable()


def audit_unwritable() -> FhirError:
    """Return the 503 of a service whose audit cannot be written."""
    return FhirError(UNAVAILABLE, "the audit cannot be written", headers={"retry-after": "5"})


class Audit:
    """Append to the audit file, from any thread. key: the key of the hashes of strangers' ids."""

    def __init__(self, path: Path, key: bytes) -> None:
        self.path = path
        self._key = key
        self._file, self._witnesses = ChainedFile(path), Witnesses(path)
        self._failing = False
        self._lock = threading.Lock()

    def write(
        self,
        touches: Sequence[Touch],
        clock: Callable[[], datetime],
        client: str | None,
        status: int,
        correlation: str | None,
    ) -> bool:
        """Add a line for each touch, in one write. Return False for reads alone that could not be put on record.

        The lines of writes, which may have been stored, wait until they can be written.
        """
        records = [orjson.dumps(self._record(one, status))[:-1] for one in touches]
        keep = any(one.interaction not in READS for one in touches)
        with self._lock:
            # Read the clock under the lock, so that the lines of a file are in the order of their times.
            time = clock().isoformat(timespec="milliseconds")
            ending = b"," + orjson.dumps({"time": time, "client": client, "correlation": correlation})[1:]
            return self._done(lambda: self._file.append([record + ending for record in records], keep)) or keep

    def ready(self) -> bool:
        """True unless the last write failed and another attempt fails now. Never waits for another thread's write."""
        return (self._file.is_open and not self._failing) or self.works()

    def works(self) -> bool:
        """True if the file exists and can be written, and no lines wait to be written."""
        with self._lock:
            return self._done(self._file.flush)

    def _done(self, work: Callable[[], None]) -> bool:
        """Run a function that writes. Log when writing begins to fail, and when it works again."""
        try:
            work()
        except OSError as error:
            self._fail(error)
            return False
        if self._failing:
            log.warning("the audit can be written again")
        self._failing = False
        return True

    def _fail(self, error: OSError) -> None:
        if not self._failing:
            log.error("the audit %s cannot be written: %s", self.path, error.strerror)
        self._failing = True

    def witness(self, versions: Sequence[Witness]) -> None:
        """Write down what is about to be stored beside other processes. From one thread.

        Raises:
            FhirError: it cannot be written, so nothing may be stored.
        """
        try:
            self._witnesses.note(versions)
        except OSError as error:
            with self._lock:
                self._fail(error)
            raise audit_unwritable() from None

    def close(self) -> None:
        with self._lock:
            if not self._failing:
                self._witnesses.remove()
            self._file.close()

    def _record(self, one: Touch, status: int) -> dict[str, Any]:
        status = one.status or status
        record: dict[str, Any] = {"interaction": one.interaction, "type": one.type, "status": status}
        if one.id:
            # An id that is not in the store may be anything, such as a name that was typed into the address.
            record["id"] = shown(Stranger(one.id) if status == NOT_FOUND.status else one.id, self._key)
        if one.patients:
            record["patients"] = [shown(patient, self._key) for patient in one.patients]
        if one.stored_at:
            record["stored_at"] = one.stored_at.astimezone(UTC).isoformat(timespec="milliseconds")
        return record


def read(path: Path, patient: str | None, client: str | None, since: datetime | None) -> Iterator[dict[str, Any]]:
    """Yield the records that match of all processes under this name, by time."""
    patient = patient.removeprefix("Patient/") if patient else None
    for record in heapq.merge(*map(records_of, files_of(path)), key=lambda record: str(record.get("time"))):
        if patient and patient not in record.get("patients", ()):
            continue
        if client and client != record.get("client"):
            continue
        if since and datetime.fromisoformat(record["time"]) < since:
            continue
        yield record

"""After a kill: what a service had stored without a record in the audit is put on record by the next one.

Who stored what, and when, is in the store. A service that was killed leaves its run file, by which that is known. Of a
store that several processes write to, nobody can tell whose a write without a record is.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import select

from fhir_service.admin.asking import run_file
from fhir_service.audit.chain import goes_on, head_file, records_of, records_since
from fhir_service.audit.records import Touch
from fhir_service.interactions.history import versions_of
from fhir_service.interface.json_text import parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.reference.storing import CLIENT
from fhir_service.service import Service
from fhir_service.store.store import Store

REACH = timedelta(minutes=5)
"""Time before the last record from which on what is stored may lack one: no request takes longer."""

TICK = timedelta(milliseconds=20)
"""The time of a file may be so much too early."""
_STATUS = {"create": 201, "update": 200}
"""The statuses of what was stored. A conditional create that found something stored nothing."""

log = logging.getLogger(__name__)


class _Write(NamedTuple):
    """A stored version of a resource: who stored it, and when."""

    type: str
    id: str
    version: int
    at: datetime
    client: str

    @property
    def interaction(self) -> str:
        return "create" if self.version == 1 else "update"

    @property
    def status(self) -> int:
        return _STATUS[self.interaction]


class _Records:
    """The times of the records of writes, in order, by what was done to which resource by whom."""

    def __init__(self, path: Path, since: datetime) -> None:
        self._times: dict[tuple[str, str, str, str], list[datetime]] = defaultdict(list)
        for record in records_since(path, since):
            if record["status"] == _STATUS.get(record["interaction"]):
                key = record["interaction"], record["type"], record["id"], record["client"]
                self._times[key].append(datetime.fromisoformat(record.get("stored_at") or record["time"]))

    def take(self, write: _Write) -> bool:
        """True if there is a record of a write. No other write has that then: ask for those of a resource in order."""
        times = self._times.get((write.interaction, write.type, write.id, write.client), [])
        at = write.at.replace(microsecond=write.at.microsecond // 1000 * 1000)
        while times and times[0] < at:
            times.pop(0)
        return bool(times and times.pop(0))


def put_on_record(service: Service) -> None:
    """Add the records that the audit lacks where the service before was killed. It has not left a run file since."""
    path, store = service.audit.path, service.settings.store_path
    try:
        since = _since(path, run_file(store)) if store else None
        lacking = _lacking(service.store, path, since) if since else []
    except Exception as error:  # noqa: BLE001 - an audit that somebody changed keeps no service from starting
        log.error("the audit %s cannot be completed: %s", path, type(error).__name__)  # noqa: TRY400
        return
    for write in lacking:
        touch = Touch(write.interaction, write.type, write.id, _patients(service.store, write), write.status, write.at)
        service.audit.write([touch], service.clock, write.client, write.status, None)
    if lacking:
        log.warning("writes that had no record in the audit, as the service was killed, have one now: %d", len(lacking))


def _lacking(store: Store, path: Path, since: datetime) -> list[_Write]:
    """Return the writes since then that have no record, in the order in which they were stored."""
    records = _Records(path, since)
    return sorted((write for write in _writes(store, since) if not records.take(write)), key=lambda write: write.at)


def _since(path: Path, run: Path) -> datetime | None:
    """Return from when on writes may lack a record in a file; None where the service ended by itself."""
    began, noted = _changed(run), _changed(head_file(path))
    if began is None or (path.exists() and not path.is_file()):
        # What a pipe or a device took cannot be read again.
        return None
    if noted is None:
        return began
    since = max(began, noted - REACH)
    if goes_on(path):
        # What was before is in a file that was moved away.
        first = next(records_of(path), None)
        since = max(since, datetime.fromisoformat(first["time"]) if first else noted + TICK)
    return since


def _changed(path: Path) -> datetime | None:
    with suppress(FileNotFoundError):
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return None


def _writes(store: Store, since: datetime) -> Iterator[_Write]:
    """Yield what clients have stored since, the versions of each resource in order."""
    with store.read() as connection:
        for name, resource in RESOURCES.items():
            if "create" not in resource.interactions:
                continue
            versions = versions_of(resource)
            own = versions.c.updated_at >= since, versions.c.client != CLIENT
            columns = versions.c.id, versions.c.version, versions.c.updated_at, versions.c.client
            for row in connection.execute(select(*columns).where(*own).order_by(versions.c.id, versions.c.version)):
                yield _Write(name, *row)


def _patients(store: Store, write: _Write) -> tuple[str, ...]:
    """Return the ids of the patients whose the resource is by a write, and whose it was before."""
    resource = RESOURCES[write.type]
    versions = versions_of(resource, write.id)
    which = versions.c.version.in_((write.version, write.version - 1))
    with store.read() as connection:
        bodies = connection.execute(select(versions.c.body).where(which).order_by(versions.c.version.desc())).scalars()
        patients = [resource.patient(parse_json(body)) for body in bodies]
    return tuple(dict.fromkeys(filter(None, patients)))

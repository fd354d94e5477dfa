"""After a kill: add the audit records of writes that a service had stored without a record.

The store tells which client stored each version, and when. A run file that was left behind tells that its service was
killed. If several processes write to a store, the witnesses of a killed one tell its writes from those of the others.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

from sqlalchemy import select

from fhir_service.admin.running_service import run_file
from fhir_service.audit.chain import files_of, goes_on, head_file, records_of, records_since
from fhir_service.audit.records import Touch
from fhir_service.audit.witnesses import LeftWitnesses, left_beside
from fhir_service.interactions.history import versions_of
from fhir_service.interface.json_text import parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.paths import exists, is_file
from fhir_service.reference.storing import CLIENT
from fhir_service.service import Service
from fhir_service.store.changes import Witness
from fhir_service.store.store import Store

REACH = timedelta(minutes=5)
"""Versions stored so long before the last record may lack one: no request takes longer."""

TICK = timedelta(milliseconds=20)
"""The modification time of a file may be so much too early."""
_AT_ONCE = 1000
"""The versions that one statement looks for."""
_STATUS = {"create": 201, "update": 200}
"""The statuses of writes that stored something. A conditional create that found a resource stored nothing."""

log = logging.getLogger(__name__)


def _interaction(write: Witness) -> str:
    return "create" if write.version == 1 else "update"


class _Records:
    """The times of the records of writes, in order, by interaction, resource and client."""

    def __init__(self, paths: Iterable[Path], since: datetime) -> None:
        self._times: dict[tuple[str, str, str, str], list[datetime]] = defaultdict(list)
        for record in chain.from_iterable(records_since(path, since) for path in paths):
            if record["status"] == _STATUS.get(record["interaction"]):
                key = record["interaction"], record["type"], record["id"], record["client"]
                self._times[key].append(datetime.fromisoformat(record.get("stored_at") or record["time"]))

    def take(self, write: Witness) -> bool:
        """True if a write has a record, which is then used up. Ask for the versions of a resource in order."""
        times = self._times.get((_interaction(write), write.type, write.id, write.client), [])
        at = write.updated_at.replace(microsecond=write.updated_at.microsecond // 1000 * 1000)
        while times and times[0] < at:
            times.pop(0)
        return bool(times and times.pop(0))


def put_on_record(service: Service) -> None:
    """Complete the audit if the service before was killed. Call it before this service leaves a run file."""
    path, store = service.audit.path, service.settings.store_path
    try:
        if store and (since := _since(path, run_file(store))):
            _complete(service, [path], since, _writes(service.store, since))
        for left in left_beside(path):
            _complete_beside_others(service, path, left)
    except Exception as error:  # noqa: BLE001 - an audit that somebody changed keeps no service from starting
        log.error("the audit %s may lack records of a killed service's writes: %s", path, type(error).__name__)  # noqa: TRY400


def _complete_beside_others(service: Service, path: Path, left: LeftWitnesses) -> None:
    """Complete the audit by the witnesses of a process that was killed."""
    if witnesses := left.versions():
        # The lock of this transaction waits for a commit of the killed process that is still under way.
        service.writer.transact(lambda _: None)
        files = files_of(path)
        since = max([witnesses[-1].updated_at - REACH, *filter(None, map(_moved, files))])
        _complete(service, files, since, _stored(service.store, [one for one in witnesses if one.updated_at >= since]))
    left.remove()


def _complete(service: Service, files: Iterable[Path], since: datetime, writes: Iterable[Witness]) -> None:
    """Add a record for each write that has none in these files. The versions of a resource come in order."""
    records = _Records(files, since)
    lacking = sorted((write for write in writes if not records.take(write)), key=lambda write: write.updated_at)
    for write in lacking:
        interaction, patients = _interaction(write), _patients(service.store, write)
        status = _STATUS[interaction]
        touch = Touch(interaction, write.type, write.id, patients, status, write.updated_at)
        service.audit.write([touch], service.clock, write.client, status, None)
    if lacking:
        log.warning("audit records added for writes before the service was killed: %d", len(lacking))


def _since(path: Path, run: Path) -> datetime | None:
    """Return the time since which writes may lack a record; None if the service ended by itself."""
    began, noted = _changed(run), _changed(head_file(path))
    if began is None or (exists(path) and not is_file(path)):
        # The lines that a pipe or a device took cannot be read again.
        return None
    return max(began, noted - REACH if noted else began, _moved(path) or began)


def _moved(path: Path) -> datetime | None:
    """Return the time until which records may be in a file that was moved away; None if no file was."""
    noted = _changed(head_file(path))
    if noted is None or not goes_on(path):
        return None
    first = next(records_of(path), None)
    return datetime.fromisoformat(first["time"]) if first else noted + TICK


def _changed(path: Path) -> datetime | None:
    with suppress(FileNotFoundError):
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return None


def _writes(store: Store, since: datetime) -> Iterator[Witness]:
    """Yield what clients have stored since a time, the versions of each resource in order."""
    with store.read() as connection:
        for name, resource in RESOURCES.items():
            if "create" not in resource.interactions:
                continue
            versions = versions_of(resource)
            own = versions.c.updated_at >= since, versions.c.client != CLIENT
            columns = versions.c.id, versions.c.version, versions.c.updated_at, versions.c.client
            for row in connection.execute(select(*columns).where(*own).order_by(versions.c.id, versions.c.version)):
                yield Witness(name, *row)


def _stored(store: Store, witnesses: Sequence[Witness]) -> Iterator[Witness]:
    """Yield the versions that are stored, in order. Those of a failed batch are not."""
    for first in range(0, len(witnesses), _AT_ONCE):
        some = witnesses[first : first + _AT_ONCE]
        there = {one for name in {one.type for one in some} for one in _there(store, name, [one.id for one in some])}
        yield from (one for one in some if one in there)


def _there(store: Store, name: str, ids: Sequence[str]) -> Iterator[Witness]:
    """Yield all versions of some resources of a type."""
    versions = versions_of(RESOURCES[name], ids)
    columns = versions.c.id, versions.c.version, versions.c.updated_at, versions.c.client
    with store.read() as connection:
        for row in connection.execute(select(*columns)):
            yield Witness(name, *row)


def _patients(store: Store, write: Witness) -> tuple[str, ...]:
    """Return the ids of the resource's patients after a write and before it."""
    resource = RESOURCES[write.type]
    versions = versions_of(resource, [write.id])
    which = versions.c.version.in_((write.version, write.version - 1))
    with store.read() as connection:
        bodies = connection.execute(select(versions.c.body).where(which).order_by(versions.c.version.desc())).scalars()
        patients = [resource.patient(parse_json(body)) for body in bodies]
    return tuple(dict.fromkeys(filter(None, patients)))

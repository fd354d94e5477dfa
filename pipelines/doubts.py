"""Settling rows in doubt: looked up at the target, those found adopted in the ledger, the others told apart.

Used by the load of a batch and by `chartferry doubts resolve`.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pipelines.ledger.doubts import Doubtful, doubtful, known_resources, sightings
from pipelines.ledger.former import standing
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import Outcome
from pipelines.loading.accepted import rows_in
from pipelines.loading.outcomes import outcomes_in, short
from pipelines.loading.sending import Identity, Row
from pipelines.loading.settling import ABSENT, FOUND, UNREADABLE, Doubt, Finding, due, look_up
from pipelines.on_record import run_of
from pipelines.target.client import FhirClient


class Found(NamedTuple):
    """A row whose resource the target has, with the state that the row has now."""

    row: Row
    state: str
    resource_id: str


@dataclass
class Settled:
    """adopted: rows that were found. resend: rows that may go again by themselves. left: the rest, with why."""

    adopted: list[Found] = field(default_factory=list)
    resend: list[Row] = field(default_factory=list)
    left: list[tuple[Row, str]] = field(default_factory=list)


def settle_doubts(
    ledger: Ledger,
    client: FhirClient,
    target: str,
    of: tuple[str, str, str],
    accepted: Sequence[Path],
    *,
    safe: bool,
    settling_seconds: float,
    apart_from: Path | None = None,
) -> Settled:
    """Settles what can be told of the doubts `of` a source, resource type and batch, whose rows are in `accepted`.

    safe: whether the target can be asked by key, and what it does not have may therefore go again at once.
    apart_from: a file with rows that are no matter here.
    Rows that were to change a resource (which the ledger knows) are settled by reading it when they are sent again.
    """
    source, resource_type, batch_id = of
    records = [r for r in doubtful(ledger, target, batch_id) if r[:2] == (source, resource_type) and not r.resource_id]
    settled = Settled()
    if apart_from and records:
        others = rows_in([apart_from], {record.key: record.content_hash for record in records})
        records = [record for record in records if record.key not in others]
    if not records:
        return settled
    doubts = as_doubts(ledger, target, resource_type, records, accepted)
    ours = known_resources(ledger, target, resource_type, {doubt.row.patient_id for doubt in doubts})
    findings = _on_record(client, target, resource_type, records, accepted, set().union(*ours.values()))
    asked = [doubt for doubt in doubts if doubt.row.key not in findings]
    findings |= look_up(client, Identity(source, resource_type), asked, ours, safe)
    now = datetime.now(UTC)
    for doubt in doubts:
        finding = findings[doubt.row.key]
        if finding.state == FOUND and finding.resource_id:
            state = _adopt(ledger, target, source, resource_type, doubt.row, finding)
            settled.adopted.append(Found(doubt.row, state, finding.resource_id))
        elif finding.state == ABSENT and (safe or due(doubt, resource_type, now, settling_seconds)):
            settled.resend.append(doubt.row)
        else:
            settled.left.append((doubt.row, finding.why or "the target does not have it"))
    return settled


def as_doubts(
    ledger: Ledger, target: str, resource_type: str, records: Sequence[Doubtful], accepted: Sequence[Path]
) -> list[Doubt]:
    """Records in doubt with their rows and what was known before; those whose row is not in the file are left out."""
    rows = rows_in(accepted, {record.key: record.content_hash for record in records})
    seen = sightings(ledger, target, resource_type, records)
    return [
        Doubt(
            rows[record.key]._replace(
                generation=record.generation, first_attempt_at=record.first_attempt_at or "", known=True, intended=True
            ),
            record.asked_at,
            *seen[record.key],
        )
        for record in records
        if record.key in rows
    ]


def _on_record(
    client: FhirClient,
    target: str,
    resource_type: str,
    records: Sequence[Doubtful],
    accepted: Sequence[Path],
    taken: Collection[str],
) -> dict[str, Finding]:
    """By key, the resources that runs have left on record and that are there: who is killed before the ledger has such
    an outcome leaves a doubt. These may look otherwise by now, or like others. taken: the resources of other rows.
    """
    wanted, made = {record.key: record for record in records}, dict[str, str]()
    runs = [folder for folder in sorted({path.parent for path in accepted}) if run_of(folder, target)]
    for told in (told for folder in runs for told in outcomes_in(folder) if told.resource_id and told.key in wanted):
        record = wanted[told.key]
        if (told.generation, told.content) == (record.generation, short(record.content_hash)):
            made[told.key] = str(told.resource_id)
    found: dict[str, Finding] = {}
    for key, resource_id in made.items():
        with suppress(*UNREADABLE):  # it is looked up as if nothing were on record
            if resource_id not in taken and client.read(resource_type, resource_id) is not None:
                found[key] = Finding(FOUND, resource_id)
    return found


def _adopt(ledger: Ledger, target: str, source: str, resource_type: str, row: Row, finding: Finding) -> str:
    replaces = row.generation > 1 and standing(ledger, target, source, resource_type, [row.key])
    state = "superseded" if replaces else "adopted"
    ledger.settle(target, source, resource_type, [Outcome(row.key, row.generation, state, finding.resource_id, None)])
    return state

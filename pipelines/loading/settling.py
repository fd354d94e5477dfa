"""Settling rows in doubt: looked up at the target, those found adopted in the ledger, the others told apart.

Used by the load of a batch and by `chartferry doubts resolve`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pipelines.client.client import FhirClient
from pipelines.client.steps import Step
from pipelines.ledger.doubts import Doubtful, doubtful, known_resources, sightings
from pipelines.ledger.former import earlier_versions
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import Outcome
from pipelines.loading.accepted import rows_in
from pipelines.loading.identity import Identity
from pipelines.loading.lookup import ABSENT, FOUND, Doubt, Finding, due, look_up
from pipelines.loading.row import Row

NOT_YET = "the target does not have it yet: once the settling time has passed, the next import sends it again"


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
    step: Step,
    settling_seconds: float,
    apart_from: Path | None = None,
) -> Settled:
    """Settle what can be told of the doubts `of` a source, resource type and batch, whose rows are in `accepted`.

    step: how rows reach the target. Where it names them, what was sent with its key is looked up by that.
    apart_from: a file of rows that are sent again where they were sent with their keys.
    Rows that were to change a task (which the ledger knows) are settled by reading it when they are sent again.
    """
    source, resource_type, batch_id = of
    records = [r for r in doubtful(ledger, target, batch_id) if r[:2] == (source, resource_type) and not r.is_change]
    settled = Settled()
    if not records:
        return settled
    doubts = as_doubts(ledger, target, resource_type, records, accepted, step.named)
    if apart_from:
        others = rows_in([apart_from], {record.key: record.content_hash for record in records})
        doubts = [doubt for doubt in doubts if not (doubt.named and doubt.row.key in others)]
    ours = known_resources(ledger, target, resource_type, records)
    findings = look_up(client, Identity(source, resource_type), doubts, ours)
    now = datetime.now(UTC)
    with ledger.transaction():  # one commit for all: each flushes the journal
        for doubt in doubts:
            finding = findings[doubt.row.key]
            if finding.state == FOUND and finding.resource_id:
                state = _adopt(ledger, target, source, resource_type, doubt.row, finding)
                settled.adopted.append(Found(doubt.row, state, finding.resource_id))
            elif finding.state == ABSENT and due(doubt, resource_type, now, settling_seconds, step):
                settled.resend.append(doubt.row)
            else:
                waits = step.conditional and doubt.named and finding.state == ABSENT
                settled.left.append((doubt.row, finding.why or (NOT_YET if waits else "the target does not have it")))
    return settled


def as_doubts(
    ledger: Ledger, target: str, resource_type: str, records: Sequence[Doubtful], accepted: Sequence[Path], named: bool
) -> list[Doubt]:
    """Records in doubt with their rows and what was known before; those whose row is not in the file are left out.

    named: whether the target can be asked by key.
    """
    rows = rows_in(accepted, {record.key: record.content_hash for record in records})
    seen = sightings(ledger, target, resource_type, records)
    return [
        Doubt(
            rows[record.key]._replace(
                generation=record.generation, first_attempt_at=record.first_attempt_at or "", known=True, intended=True
            ),
            record.asked_at,
            *(seen[record.key] or (None, None)),
            named=named and seen[record.key] is None,
        )
        for record in records
        if record.key in rows
    ]


def _adopt(ledger: Ledger, target: str, source: str, resource_type: str, row: Row, finding: Finding) -> str:
    replaces = row.generation > 1 and earlier_versions(ledger, target, source, resource_type, [row.key])
    state = "superseded" if replaces else "adopted"
    ledger.settle(target, source, resource_type, [Outcome(row.key, row.generation, state, finding.resource_id, None)])
    return state

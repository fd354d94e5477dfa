"""Settle rows in doubt: look them up at the target, adopt those found in the ledger, and sort the others.

Used by the load of a batch and by `chartferry doubts resolve`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from pipelines.client.client import FhirClient
from pipelines.client.steps import Step
from pipelines.ledger.doubts import doubtful, known_resources, made_before, sightings
from pipelines.ledger.former_versions import earlier_versions
from pipelines.ledger.lease import utc_text
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import Outcome, RecordRow
from pipelines.loading.accepted import rows_in
from pipelines.loading.lookup import ABSENT, FOUND, Doubt, due, look_up
from pipelines.loading.row import AcceptedRow, Identity
from pipelines.loading.target_clock import TargetClock

ROWS_A_COMMIT = 1_000
"""Rows settled in one transaction, for which other writers wait. After a kill, earlier transactions stay settled."""
A_MINUTE = timedelta(minutes=1)
"""Correct clocks differ by less than this."""
NOT_YET = "the target does not have it yet: the next import after the settling time sends it again"
NOT_BY_ITSELF = (
    "the target does not have it: if you are sure, chartferry doubts resend lets the next import send it again"
)


class AdoptedRow(NamedTuple):
    """A row whose resource the target has, with the row's new state."""

    row: AcceptedRow
    state: str
    resource_id: str


class Present:
    """The present time, from which the age of a missed outcome is measured.

    It is the ledger's clock, or the target's clock if less time has passed by that: a ledger's clock that was behind
    may have been set right meanwhile.
    """

    def __init__(self, ledger: Ledger, client: FhirClient, batch_id: str, noted: TargetClock) -> None:
        self._now, self._shown, self._batch_id, self._noted = ledger.clock(), client.server_time(), batch_id, noted

    def __call__(self, doubt: Doubt) -> datetime:
        by = self._noted.ahead_at(self._batch_id, utc_text(doubt.asked_at))
        if by is None or self._shown is None:
            return self._now
        by_target = self._shown - by
        return by_target if doubt.asked_at - A_MINUTE < by_target < self._now - A_MINUTE else self._now


@dataclass
class SettledRows:
    """The result of settling rows in doubt.

    adopted: rows that were found. resend: rows that may be sent again by themselves. left: the others, with reasons.
    """

    adopted: list[AdoptedRow] = field(default_factory=list)
    resend: list[AcceptedRow] = field(default_factory=list)
    left: list[tuple[AcceptedRow, str]] = field(default_factory=list)


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
) -> SettledRows:
    """Settle the doubts `of` a source, resource type and batch, as far as possible. accepted: the files with their
    rows.

    step: how rows reach the target. If it names rows, those sent with their key are looked up by it.
    apart_from: a file of rows; those that were sent with their keys are not looked up, as they are sent again.
    Rows that were to change a task known to the ledger are left out: they are settled by reading the task when they
    are sent again.
    """
    source, resource_type, batch_id = of
    records = [r for r in doubtful(ledger, target, batch_id) if r[:2] == (source, resource_type) and not r.is_change]
    settled = SettledRows()
    if not records:
        return settled
    doubts = as_doubts(ledger, target, resource_type, records, accepted, step.named)
    if apart_from:
        others = rows_in([apart_from], {record.key: record.content_hash for record in records})
        doubts = [doubt for doubt in doubts if not (doubt.named and doubt.row.key in others)]
    ours = known_resources(ledger, target, resource_type, records)
    made = None if step.repeats else made_before(ledger, target, source, resource_type, batch_id)
    findings = look_up(client, Identity(source, resource_type), doubts, ours, made)
    noted = TargetClock.in_runs({each.parent for each in accepted}, target)
    found, present = list[tuple[AcceptedRow, str]](), Present(ledger, client, batch_id, noted)
    for doubt in doubts:
        finding = findings[doubt.row.key]
        if finding.state == FOUND and finding.resource_id:
            found.append((doubt.row, finding.resource_id))
        elif finding.state == ABSENT and due(doubt, resource_type, present(doubt), settling_seconds, step):
            settled.resend.append(doubt.row)
        else:
            later = doubt.asked_at + timedelta(seconds=settling_seconds)
            waits = due(doubt, resource_type, later, settling_seconds, step)
            settled.left.append((doubt.row, finding.why or (NOT_YET if waits else NOT_BY_ITSELF)))
    settled.adopted = _adopt(ledger, (target, source, resource_type), found)
    return settled


def as_doubts(
    ledger: Ledger,
    target: str,
    resource_type: str,
    records: Sequence[RecordRow],
    accepted: Sequence[Path],
    named: bool,
) -> list[Doubt]:
    """Return records in doubt with their rows and what was known before; leave out records whose row is not in a file.

    named: True if the target can be asked by key.
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


def _adopt(ledger: Ledger, of: tuple[str, str, str], found: Sequence[tuple[AcceptedRow, str]]) -> list[AdoptedRow]:
    """Adopt rows whose resources the target has, some in each commit. One query finds those that replace a version."""
    replaced = {each.key for each in earlier_versions(ledger, *of, [row.key for row, _ in found if row.generation > 1])}
    states = ("superseded" if row.key in replaced else "adopted" for row, _ in found)
    adopted = [AdoptedRow(row, state, name) for (row, name), state in zip(found, states, strict=True)]
    for at in range(0, len(adopted), ROWS_A_COMMIT):
        some = adopted[at : at + ROWS_A_COMMIT]
        ledger.settle(*of, [Outcome(row.key, row.generation, state, name, None) for row, state, name in some])
    return adopted

"""The rows that the ledger takes and gives: plain tuples, so that a hundred thousand of them cost little."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Intent(NamedTuple):
    """One record about to be sent. Times are UTC text as `utc_text` makes it.

    first_attempt_at: None for now, or, of a known record, for the one it has.
    """

    key: str
    generation: int
    batch_id: str
    line: int
    content_hash: str
    feed_hash: str
    patient_id: str | None = None
    source_at: str | None = None
    amount_cents: int | None = None
    first_attempt_at: str | None = None


class Outcome(NamedTuple):
    """The outcome of an intent: a row state, and the resource's id and HTTP status where there is one."""

    key: str
    generation: int
    state: str
    resource_id: str | None = None
    http_status: int | None = None


class SoFar(NamedTuple):
    """The counts of an unfinished run, by the names of the run's columns."""

    batch_id: str
    run: int
    counts: Mapping[str, int]


class KnownRecord(NamedTuple):
    """The newest generation of a record that the ledger knows.

    content_hash: its beginning alone of a record that a lost ledger got back without its row.
    """

    key: str
    generation: int
    batch_id: str
    line: int
    content_hash: str
    feed_hash: str
    state: str
    resource_id: str | None
    patient_id: str | None
    source_at: str | None
    amount_cents: int | None
    attempts: int
    http_status: int | None
    first_attempt_at: str | None
    finished_at: str | None

    def holds(self, content_hash: str) -> bool:
        """True if this is what the record says."""
        return content_hash.startswith(self.content_hash)


class Repeat(NamedTuple):
    """A later appearance of a known record: `unchanged` or `skipped`, with the known record's resource."""

    line: int
    key: str
    state: str
    resource_id: str | None = None
    patient_id: str | None = None
    source_at: str | None = None
    amount_cents: int | None = None


class Sighting(NamedTuple):
    """A patient's resources at a bare target at a moment (UTC text): ids with blanks between; None where they cannot be
    read.

    ahead_us: microseconds that the target's clock is ahead of ours, at least; None if it shows no clock.
    """

    patient_id: str
    noted_at: str
    ahead_us: int | None
    ids: str | None


class Reason(NamedTuple):
    """Why a record was set aside: rule, FHIRPath, source column, a sentence, and whether another try may help.

    line: the row that it is about, of a record that has several.
    """

    rule_id: str
    expression: str | None
    column_name: str | None
    message: str
    retryable: bool
    line: int | None = None


class Reject(NamedTuple):
    """One record set aside, with every reason. `stage` is parse, map, rule or load.

    answers: the ids of rejects that the record was to answer: where they are open it is these, met again.
    content_hash: of a record that was mapped.
    """

    line: int
    lines: int
    source_key: str | None
    stage: str
    patient_id: str | None
    source_at: str | None
    amount_cents: int | None
    reasons: Sequence[Reason]
    answers: Sequence[str] = ()
    content_hash: str | None = None


def reject_id(target: str, batch_id: str, line: int, source_key: str | None) -> str:
    """The name of a reject: the same for the same record of the same file, whatever stage sets it aside."""
    return hashlib.sha256(f"{target}|{batch_id}|{line}|{source_key or ''}".encode()).hexdigest()[:16]

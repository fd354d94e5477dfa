"""The rows that the ledger takes and returns: plain tuples, so that a hundred thousand of them cost little."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple


class Intent(NamedTuple):
    """One record about to be sent. Times are UTC text in the form of `utc_text`.

    first_attempt_at: None for now, or for the known moment if the record is known.
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
    """The outcome of an intent: a row state, and the resource's id and HTTP status if there is one."""

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

    content_hash: only the beginning of the hash if a lost ledger got the record back without its row.
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
    first_attempt_at: str | None
    finished_at: str | None

    def holds(self, content_hash: str) -> bool:
        """True if the record has this content."""
        return content_hash.startswith(self.content_hash)


class RecordRow(NamedTuple):
    """A record as it is now, with its source and type. Times are UTC text.

    resource_id: of a task in doubt, the task that was to be changed; of another record in doubt, the resource that the
    row may have made.
    """

    source: str
    resource_type: str
    key: str
    generation: int
    batch_id: str
    line: int
    state: str
    content_hash: str
    resource_id: str | None
    patient_id: str | None
    attempts: int
    first_attempt_at: str | None
    finished_at: str | None
    first_sent_at: str | None

    @property
    def name(self) -> str:
        """Return the row's name for people: `<batch>:<line>`."""
        return f"{self.batch_id}:{self.line}"

    @property
    def resource(self) -> str:
        return f"{self.resource_type}/{self.resource_id}"

    @property
    def is_change(self) -> bool:
        """True if a resource was to be changed, not created."""
        return self.resource_type == "Task" and self.resource_id is not None

    @property
    def asked_at(self) -> datetime:
        """Return the time when the row's outcome was last missed."""
        return datetime.fromisoformat(max(self.first_attempt_at or "", self.finished_at or "") or "1970-01-01T00:00Z")


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
    """A patient's resources at a bare target at a moment (UTC text): ids separated by blanks; None if they could not
    be read.

    ahead_us: microseconds that the target's clock is ahead of ours, at least; None if it shows no clock.
    """

    patient_id: str
    noted_at: str
    ahead_us: int | None
    ids: str | None


class Reason(NamedTuple):
    """A reason why a record was set aside: rule, FHIRPath, source column, a sentence, and True if another try may
    help.

    line: the row that the reason is about, if the record has several rows.
    """

    rule_id: str
    expression: str | None
    column_name: str | None
    message: str
    retryable: bool
    line: int | None = None


class Reject(NamedTuple):
    """One record set aside, with every reason. `stage` is parse, map, rule or load.

    answers: the rejects that the record was to answer. If they are open, the record is set aside under their ids.
    content_hash: None unless the record was mapped.
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
    """Return the id of a reject: equal for one record of one file, whatever stage sets it aside."""
    return hashlib.sha256(f"{target}|{batch_id}|{line}|{source_key or ''}".encode()).hexdigest()[:16]

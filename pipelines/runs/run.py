"""One run of one batch, and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import ReceivedFile
from pipelines.ledger.standing import ended_at
from pipelines.ledger.states import NOT_LOADED
from pipelines.ledger.tables import LedgerError, NotPossible
from pipelines.session.session import Session

Lines = Mapping[int, Sequence[str]]
"""The ids of rejects by the physical line on which the record that answers them begins."""
UNDER_WAY, FINISHED = "running", "finished"
"""States of a batch that goes on, and of one whose rows all have an outcome."""
ENDED = (FINISHED, *NOT_LOADED)
"""States of a batch without a run under way."""
ENDED_BY_UNDO = "undo ended it before it was finished: no more of it is sent unless chartferry import --again {} is run"


@dataclass(frozen=True)
class Run:
    """One run of one batch. before: the batch's state before it, None if the batch is new.

    only: for a run over some records, their first lines with the rejects that they answer; None for the whole file.
    remap: apply the feed's policy also to rows that changed only because the feed did. taken_back: load records that
    were taken back.
    """

    received: ReceivedFile
    feed: Feed
    number: int
    folder: Path
    before: str | None
    began: float
    started_at: str
    only: Lines | None = None
    remap: bool = False
    taken_back: bool = False


@dataclass
class RunResult:
    """The result of a run over one file. Amounts are in cents.

    waiting: accepted records without an outcome. waits_for: other batches whose rows go before some of these. sent_by:
    what sends the waiting ones.
    reasons: records set aside, by rule or answer.
    refused_by: those of them that passed the rules and were set aside during the load.
    taken_back: records that were skipped because an undo took them back after this file had made them.
    amounts, amounts_accepted: the number of amounts received and accepted, each record once; 0 if not counted.
    without_claim: number and cents of the accepted payments that are not copayments; None if not counted.
    found_in: the folder of an earlier run whose findings this one took over; None if it checked the file itself.
    """

    batch_id: str | None
    run: int | None
    feed: str
    file: str
    state: str
    counts: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    seconds: float = 0.0
    message: str | None = None
    unusable: bool = False
    reasons: dict[str, int] = field(default_factory=dict)
    refused_by: dict[str, int] = field(default_factory=dict)
    warnings: dict[str, int] = field(default_factory=dict)
    unnamed_columns: list[str] = field(default_factory=list)
    taken_back: int = 0
    waits_for: list[str] = field(default_factory=list)
    sent_by: str = "the next import"
    amounts: int = 0
    amounts_accepted: int = 0
    without_claim: Sequence[int] | None = None
    found_in: str | None = None

    @classmethod
    def failed(cls, feed: str, file: str, message: str, unusable: bool = False) -> "RunResult":
        """Return the result of a file without a batch, because the file or the target could not be read."""
        return cls(None, None, feed, file, "failed", message=message, unusable=unusable)

    def count(self, name: str) -> int:
        return self.counts.get(name, 0)


class HasEnded(LedgerError):
    """Another process, which had the target before this one, has ended the run."""


def refuse_ended(session: Session, run: Run) -> None:
    """Raise `HasEnded` if the ledger has the end of a run, because another load would overwrite it. Raise
    `LedgerError` if a person has taken the batch back since the run began.
    """
    batch_id = run.received.batch_id
    runs = session.ledger.runs(session.target, batch_id)
    if any(each["run"] == run.number and each["finished_at"] for each in runs):
        raise HasEnded(f"{batch_id}: run {run.number} was ended by another process meanwhile")
    if ended_at(session.ledger, session.target, batch_id) > run.started_at:
        raise LedgerError(f"{batch_id}: {ENDED_BY_UNDO.format(batch_id)}")


def refuse_ended_by_undo(session: Session, batch_id: str) -> None:
    """Raise `NotPossible` for a batch that undo has ended."""
    if is_ended_by_undo(session, batch_id):
        raise NotPossible(f"{batch_id}: {ENDED_BY_UNDO.format(batch_id)}")


def is_ended_by_undo(session: Session, batch_id: str) -> bool:
    """True if an undo has ended the batch before it was finished, and it was not loaded again."""
    batch = session.ledger.batch(session.target, batch_id)
    return bool(batch and batch["state"] == "stopped" and ended_at(session.ledger, session.target, batch_id))

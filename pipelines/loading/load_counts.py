"""The batch of a load, and its counts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.client.pace import USUAL, Pace
from pipelines.ledger.states import OUTCOMES, UNDECIDED

if TYPE_CHECKING:
    from pipelines.feeds.files.catalog import Feed
    from pipelines.loading.accepted import LoadPart


@dataclass(frozen=True)
class BatchRun:
    """One run of a batch.

    folder: `run-<n>/`, where stages hand over files. resuming: True if no run of the batch has finished.
    remap: apply the feed's policy also to rows that changed only because the feed did.
    run: its number, if the run's counts are kept up to date; then `validated` has the counts from before the load.
    taken_back: load records that were taken back.
    balances: check payments against the balances from the target's Claims and PaymentNotices.
    part: load only the lanes of that part.
    workers: how many workers load parts of the batch at once, and share the target's pace.
    """

    target: str
    batch_id: str
    feed: "Feed"
    folder: Path
    resuming: bool
    pace: Pace = USUAL
    remap: bool = False
    run: int | None = None
    validated: Mapping[str, int] = field(default_factory=dict)
    taken_back: bool = False
    balances: bool = False
    part: "LoadPart | None" = None
    workers: int = 1


def without_outcome(counts: Mapping[str, int]) -> int:
    """Return the number of accepted rows that have no outcome."""
    return counts["accepted"] - sum(counts[name] for name in OUTCOMES)


COUNTERS = ("counts", "cents", "reasons", "noted")


@dataclass
class LoadCounts:
    """The counts of a load: rows by state, and their cents. `rejected` is other content under a known key.

    reasons: rows that were set aside, by rule or outcome code.
    noted: rows of which more is to be said. `taken back`: counted as adopted, and the resource was taken back at the
    target. `undone`: counted as skipped, since the record was taken back after the same file made it. `read otherwise`:
    counted as unchanged, and today's feed reads them otherwise. `outdated`: skipped by the feed's policy; unless that
    is `skip`, a later file changed their records. `other`: tasks counted as adopted that differ from
    their rows in elements that users of the chart may change.
    waits_for: other batches that hold lanes of rows; those rows are left for a later run.
    unusable: the reason why the load ended early; rows without an outcome are left for the next run.
    is_cut_short: True if the next run has more to do than rows: parts have no outcome, and their counts are those of
    their last heartbeat; or superseded responses could not be taken back, or looked for.
    undecided: states, by key, of counted rows without an outcome, which may get one in this load. Left out of reports.
    """

    counts: Counter[str] = field(default_factory=Counter)
    cents: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    waits_for: set[str] = field(default_factory=set)
    unusable: str | None = None
    is_cut_short: bool = False
    undecided: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def count(self, key: str, state: str, amount_cents: int | None) -> None:
        """Count a row once, by its last state."""
        if before := self.undecided.pop(key, None):
            self.counts[before] -= 1
            self.cents[before] -= amount_cents or 0
            self.counts, self.cents = +self.counts, +self.cents
        self.add(state, amount_cents)
        if state in UNDECIDED:
            self.undecided[key] = state

    def add(self, state: str, amount_cents: int | None) -> None:
        if state == "undone":
            self.noted["taken back"] += 1
            state = "adopted"
        self.add_all(state, 1, amount_cents or 0)

    def add_all(self, outcome: str, rows: int, cents: int) -> None:
        """Add rows of one outcome, and the sum of their cents."""
        self.counts[outcome] += rows
        self.cents[outcome] += cents

    def copy(self) -> "LoadCounts":
        counted = {name: getattr(self, name).copy() for name in (*COUNTERS, "waits_for")}
        copied = replace(self, **counted)
        copied.undecided = self.undecided.copy()
        return copied

    def put_back(self, before: "LoadCounts") -> None:
        """Restore earlier counts. The reason why the load ended stays."""
        for name in (*COUNTERS, "undecided"):
            setattr(self, name, getattr(before, name))

    def take_in(self, part: "LoadCounts") -> None:
        """Add the counts of a part."""
        for name in COUNTERS:
            getattr(self, name).update(getattr(part, name))
        self.waits_for.update(part.waits_for)
        self.unusable = self.unusable or part.unusable
        self.is_cut_short |= part.is_cut_short

    def counts_with(self, validated: Mapping[str, int]) -> dict[str, int]:
        """Return the run's counts for the ledger: those from before the load with this load's outcomes and cents."""
        changed, changed_cents = self.counts["rejected"], self.cents["rejected"]
        return {
            **validated,
            "accepted": validated["accepted"] - changed,
            "rejected": validated["rejected"] + changed,
            "amount_accepted": validated["amount_accepted"] - changed_cents,
            **{name: self.counts[name] for name in OUTCOMES},
            "amount_created": self.cents["created"],
        }

    def has_left(self, counts: Mapping[str, int]) -> bool:
        """True if the next run has something to do. counts: of the run, with this load's outcomes."""
        return bool(self.is_cut_short or self.waits_for or counts["in_doubt"] or without_outcome(counts))

    def in_words(self) -> str:
        """Return the numbers of rows by outcome, in words."""
        counted = ((name, self.counts[name]) for name in (*OUTCOMES, "rejected"))
        said = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in counted if number)
        return said or ("nothing loaded" if self.unusable else "nothing to load")

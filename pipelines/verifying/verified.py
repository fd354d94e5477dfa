"""The result of `verify`: what it compared, and what differs, as JSON and as lines for people."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipelines.home.counted import counted, word_for
from pipelines.home.exits import ALL_LOADED, IN_DOUBT, SET_ASIDE
from pipelines.runs.lines import dollars
from pipelines.verifying.differences import Differences
from pipelines.verifying.dropped import Dropped


@dataclass
class Verified:
    """By resource type: rows that the ledger has there, and cents on both sides. differences: everything else.

    others: what is there beside these. of_doubts: what has the identifier of a row in doubt, and is no other.
    whole: whether all of a type was read, or only what the ledger knows and what may be ours besides.
    elsewhere: of the others, how many an importer made under a source that this home has no feed file and no batch of.
    without_source: of how many rows the content cannot be compared, since their source rows are purged, or damaged.
    lost: batches in the home's folders that the ledger does not know, or knows less of. dropped: elements that the
    target took and does not keep, by the records looked at. file: where all differences are, if that was asked for.
    """

    rows: dict[str, int] = field(default_factory=dict)
    ledger_cents: int = 0
    target_cents: int = 0
    others: dict[str, int] = field(default_factory=dict)
    of_doubts: dict[str, int] = field(default_factory=dict)
    whole: dict[str, bool] = field(default_factory=dict)
    elsewhere: dict[str, int] = field(default_factory=dict)
    without_source: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    differences: Differences = field(default_factory=Differences)
    file: Path | None = None

    @property
    def exit_code(self) -> int:
        kinds = set(self.differences.counts)
        if "in doubt" in kinds:
            return IN_DOUBT
        return SET_ASIDE if self.lost or self.dropped or kinds - {"changed"} else ALL_LOADED

    def as_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "ledger_cents": self.ledger_cents,
            "target_cents": self.target_cents,
            "others": self.others,
            "of_doubts": self.of_doubts,
            "whole": self.whole,
            "elsewhere": self.elsewhere,
            "without_source": self.without_source,
            "lost": self.lost,
            "dropped": [each._asdict() for each in self.dropped],
            "counts": dict(self.differences.counts),
            "differences": [asdict(each) for each in self.differences],
            "file": str(self.file) if self.file else None,
        }

    def lines(self) -> Iterator[str]:
        for kind, rows in self.rows.items():
            read = "" if self.whole.get(kind, True) else " of those read"
            others = counted(self.others.get(kind, 0), f"other{read} is", f"others{read} are")
            yield f"{kind}: {counted(rows, 'row of the ledger is', 'rows of the ledger are')} there, {others} not in it"
        for kind, rows in self.of_doubts.items():
            if rows:
                yield f"{kind}: {counted(rows, 'resource has', 'resources have')} the identifier of a row in doubt"
        for kind, rows in self.elsewhere.items():
            if rows:
                others = counted(rows, "of the others is", "of the others are")
                yield f"{kind}: {others} of sources that no feed file and no batch of this home has"
        yield f"payments: {dollars(self.ledger_cents)} in the ledger, {dollars(self.target_cents)} at the target"
        for kind, rows in self.without_source.items():
            if rows:
                purged = f"{counted(rows, 'row is', 'rows are')} purged or damaged"
                yield f"{kind}: {purged}: only {word_for(rows, 'its', 'their')} patient and amount are compared"
        yield from self.differences.lines()
        if self.file:
            yield f"all differences: {self.file}"
        for name in self.lost:
            yield f"{name}: the ledger does not know it, or not all of it: chartferry verify --adopt"
        for each in self.dropped:
            yield each.line()
        if not (self.differences.counts or self.lost or self.dropped):
            yield "ledger and target agree"

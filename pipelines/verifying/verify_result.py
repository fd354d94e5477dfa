"""The result of `verify`: what was compared, and what differs, as JSON and as lines for people."""

import csv
import json
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

from pipelines.home.counted import counted, word_for
from pipelines.home.exits import ALL_LOADED, IN_DOUBT, SET_ASIDE
from pipelines.home.files import written_whole
from pipelines.runs.lines import dollars, first_of
from pipelines.verifying.dropped_elements import DroppedElement

FILE = "differences.csv"
"""The file of a home with all differences of its last `verify`."""
SHOWN = 10
"""The number of differences of each kind that are shown as text."""
MEANING = {
    "gone": "gone from the target; chartferry import --again BATCH loads them again, or notes their new id",
    "hidden": "at the target, but not shown by its searches, which may hide doubles too; verify again later",
    "differs": "the target's content differs from the row's, or the resource belongs to another record",
    "not updated": "the target lost their update, as a restore does; chartferry import --again BATCH puts it in again",
    "changed": "changed in the chart since; nothing is wrong",
    "taken back": "taken back in the chart; chartferry undo BATCH, then import --again BATCH, loads the batch anew"
    " (not payments: those are entered in the chart)",
    "undo open": "an undo was cut off, and may have taken them back; chartferry undo BATCH finishes it",
    "not taken back": "still at the target, and should be taken back; the import of their feed's next file does so"
    " (after a restore: chartferry undo BATCH)",
    "shared": "several rows of the ledger name one resource",
    "double": "second copies that the ledger does not know; if nobody else made them, take them back in the chart",
    "unknown": (
        "made by an importer, but in no row of this ledger; if the ledger was lost, run chartferry verify --adopt (what"
        " was made of files that were purged before stays unknown)"
    ),
    "not sent": "planned, and not sent yet; chartferry import goes on with their batch",
    "in doubt": "sent, with an unknown outcome; run chartferry doubts resolve",
}
"""The sentence about each kind of difference, and what to do."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between ledger and target. row: `<batch>:<line>`."""

    kind: str
    resource_type: str
    row: str | None
    resource_id: str | None

    def line(self) -> str:
        resource = f"{self.resource_type}/{self.resource_id}" if self.resource_id else self.resource_type
        return f"{self.kind}: {self.row or '-'}: {resource}"


class Differences:
    """Differences in the order in which they were found, in a file, since there may be as many as rows.

    counts: by kind. batches: by kind, for the kinds that a command mends batch by batch.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - it lives as long as this does
        weakref.finalize(self, self._file.close)
        self.counts: Counter[str] = Counter()
        self.batches: dict[str, Counter[str]] = {kind: Counter() for kind, says in MEANING.items() if "BATCH" in says}

    def add(self, each: Difference) -> None:
        self._file.write(json.dumps(astuple(each)) + "\n")
        self.counts[each.kind] += 1
        if each.row and each.kind in self.batches:
            self.batches[each.kind][each.row.rpartition(":")[0]] += 1

    def __iter__(self) -> Iterator[Difference]:
        self._file.seek(0)
        return (Difference(*json.loads(line)) for line in self._file)

    def first(self, most: int) -> Iterator[str]:
        """Yield the first differences of each kind as text, and for each kind the number of further ones."""
        first: dict[str, list[str]] = {kind: [] for kind in self.counts}
        for each in self:
            if len(first[each.kind]) < most:
                first[each.kind].append(each.line())
        for kind, count in self.counts.items():
            yield from first_of(first[kind], most, count, kind)

    def lines(self) -> Iterator[str]:
        """Yield the first differences of each kind, then the number of each kind, also for each batch to mend."""
        yield from self.first(SHOWN)
        for kind, count in self.counts.items():
            yield f"{count:,} {kind}: {MEANING[kind]}"
            if batches := self.batches.get(kind):
                named = [f"{name} ({number:,})" for name, number in sorted(batches.items())]
                yield f"{kind}, by batch: {', '.join(first_of(named, SHOWN, len(named), 'batches'))}"

    def write(self, home: Path) -> Path | None:
        """Write all differences over an earlier `verify`'s; return the file, None if there are no differences."""
        path = home / FILE
        if not self.counts:
            path.unlink(missing_ok=True)
            return None
        with written_whole(path) as part, part.open("w", newline="", encoding="utf-8") as out:
            rows = csv.writer(out, lineterminator="\n")
            rows.writerow(field.name for field in fields(Difference))
            rows.writerows(map(astuple, self))
        return path


@dataclass
class VerifyResult:
    """The result by resource type: rows whose resources are there, and cents on both sides. differences: all that
    differs.

    others: resources beside these. of_doubts: resources with the identifier of a row in doubt, which are not among the
    others. whole: True if all of a type was read; False if only the ledger's resources and those that may be ours.
    elsewhere: of the others, those from importers under a source that this home has no feed file and no batch of.
    without_source: rows whose content cannot be compared, since their source rows are purged, damaged, or in another
    home. lost: batches in the home's folders that the ledger does not know fully. dropped: elements that the target
    accepted and does not keep, by the sample. file: the file of all differences, if one was written.
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
    dropped: list[DroppedElement] = field(default_factory=list)
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
                yield f"{kind}: {others} of a source that no feed file and no batch of this home has"
        yield f"payments: {dollars(self.ledger_cents)} in the ledger, {dollars(self.target_cents)} at the target"
        for kind, rows in self.without_source.items():
            if rows:
                without = (
                    f"{counted(rows, 'row has', 'rows have')} no source here (purged, damaged, or in another home)"
                )
                yield f"{kind}: {without}: only {word_for(rows, 'its', 'their')} patient and amount are compared"
        yield from self.differences.lines()
        if self.file:
            yield f"all differences: {self.file}"
        for name in self.lost:
            yield f"{name}: the ledger lacks this batch or a part of it; run chartferry verify --adopt"
        for each in self.dropped:
            yield each.line()
        if not (self.differences.counts or self.lost or self.dropped):
            yield "ledger and target agree"

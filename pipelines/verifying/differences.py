"""The differences that a `verify` finds: counted by kind, the first of each kind as text, and all of them in a file."""

import csv
import json
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from pipelines.home.files import written_whole
from pipelines.runs.lines import first_of

FILE = "differences.csv"
"""The file of a home that holds all differences of its last `verify`."""
SHOWN = 10
"""Differences of each kind that are shown as text."""
MEANING = {
    "gone": "the target has them no more; chartferry import --again BATCH loads them anew, or notes another id",
    "hidden": "the target has them, and its searches do not show them: they may hide doubles too; verify again later",
    "differs": "the target has other content than the row, or under its id the resource of another record",
    "not updated": "the target lost their update, as a restore does; chartferry import --again BATCH puts it in again",
    "changed": "changed in the chart since; nothing is wrong",
    "taken back": "taken back in the chart; chartferry undo BATCH, then import --again BATCH, loads the batch anew",
    "undo open": "not known whether an undo took them back; chartferry undo BATCH goes on with it",
    "not taken back": "taken back or to be, and there; the next import does it, after a restore chartferry undo BATCH",
    "shared": "one resource stands for several rows",
    "double": "there once more, unknown to the ledger; where nobody else made them, take them back in the chart",
    "unknown": "made by an importer, and no row of this ledger; where it was lost, chartferry verify --adopt",
    "not sent": "planned, and not sent yet; import their file once more, or chartferry import --again BATCH",
    "in doubt": "not known whether the target has them; chartferry doubts resolve",
}
"""Each kind of difference: its sentence, and what to do."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that ledger and target do not agree on. row: `<batch>:<line>`."""

    kind: str
    resource_type: str
    row: str | None
    resource_id: str | None

    def line(self) -> str:
        resource = f"{self.resource_type}/{self.resource_id}" if self.resource_id else self.resource_type
        return f"{self.kind}: {self.row or '-'}: {resource}"


class Differences:
    """Differences in the order in which they were found, in a file: there may be as many as rows.

    counts: by kind. batches: by kind, for those that a command mends batch by batch.
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
        """Yield the first differences of each kind as text, and of each how many more there are."""
        first: dict[str, list[str]] = {kind: [] for kind in self.counts}
        for each in self:
            if len(first[each.kind]) < most:
                first[each.kind].append(each.line())
        for kind, count in self.counts.items():
            yield from first_of(first[kind], most, count, kind)

    def lines(self) -> Iterator[str]:
        """Yield the first differences of each kind, and then how many there are of it, also of each batch to mend."""
        yield from self.first(SHOWN)
        for kind, count in self.counts.items():
            yield f"{count:,} {kind}: {MEANING[kind]}"
            if batches := self.batches.get(kind):
                named = [f"{name} ({number:,})" for name, number in sorted(batches.items())]
                yield f"{kind}, by batch: {', '.join(first_of(named, SHOWN, len(named), 'batches'))}"

    def write(self, home: Path) -> Path | None:
        """Write all of them in the place of those of an earlier `verify`; return the file, None if there are none."""
        path = home / FILE
        if not self.counts:
            path.unlink(missing_ok=True)
            return None
        with written_whole(path) as part, part.open("w", newline="", encoding="utf-8") as out:
            rows = csv.writer(out, lineterminator="\n")
            rows.writerow(field.name for field in fields(Difference))
            rows.writerows(map(astuple, self))
        return path

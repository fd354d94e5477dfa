"""The results of a chunk's records: rows of the four files that a run writes, and the counts."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines.feeds.terms.columns import BuiltRecord
from pipelines.home import arrow
from pipelines.validation.inspection import Ambiguity
from pipelines.validation.outcome import Tally
from pipelines.validation.reasons import Reason
from pipelines.validation.records import MappedRow
from pipelines.validation.tables import FILES

_TIMES = range(-30_610_224_000_000_000, 253_402_214_400_000_000)
"""Microseconds of the years 1000 to 9999, which are all that the ledger's form of a moment can have."""


class CheckedChunk(NamedTuple):
    """The result of a chunk: rows by file, as in `FILES` (`position` counts within the chunk), and the counts."""

    rows: Mapping[str, pa.RecordBatch]
    tally: Tally
    inspected: Mapping[str, tuple[Ambiguity, ...]]


class SortedRecords:
    """The records of one chunk, sorted by their results."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in FILES}

    def checked(self, inspected: Mapping[str, tuple[Ambiguity, ...]]) -> CheckedChunk:
        """Return the result of the chunk. inspected: the ambiguities of its questionnaires."""
        rows = {name: arrow.batch_of_rows(self._rows[name], schema) for name, schema in FILES.items()}
        return CheckedChunk(rows, self.tally, inspected)

    def accept(self, rows: Sequence[MappedRow], built: BuiltRecord, body: str, content: str) -> None:
        """Add an accepted record. content: its hash."""
        first = rows[0]
        lines = first.lines if len(rows) == 1 else sum(row.lines for row in rows)
        self.tally.accepted += 1
        self.tally.amount_accepted += built.cents or 0
        about, accepted = (content, built.patient_id, built.at, built.cents), self._rows["accepted"]
        accepted.append((first.line, lines, first.key, built.lane, len(accepted), *about, body))

    def skip(self, rows: Sequence[MappedRow], built: BuiltRecord, first_line: int) -> None:
        """Add an equal repeat of the record that begins on `first_line`."""
        lines = sum(row.lines for row in rows)
        self.tally.accepted += 1
        self.tally.skipped += 1
        self.tally.amount_accepted += built.cents or 0
        self.tally.amount_skipped += built.cents or 0
        about = (built.patient_id, built.at, built.cents)
        self._rows["skipped"].append((rows[0].line, lines, rows[0].key, first_line, *about))

    def reject(
        self,
        rows: Sequence[MappedRow],
        built: BuiltRecord | None,
        reasons: Sequence[Reason],
        content: str | None = None,
    ) -> None:
        """Add a record that is set aside. content: its hash, if it may only have been misread."""
        first, stages = rows[0], {reason.stage for reason in reasons}
        stage = next(stage for stage in ("parse", "map", "rule") if stage in stages)
        self.tally.rejected += 1
        self.tally.amounts_rejected += bool(built and built.cents and first.first_line in (None, first.line))
        self.tally.reasons.update({reason.rule for reason in reasons})
        about = (built.patient_id, _told(built.at), built.cents) if built else (None, None, None)
        structs = [reason[1:] for reason in reasons]  # in the order of `REASON`
        lines = sum(row.lines for row in rows)
        raw = "".join(row.raw for row in rows)
        self._rows["rejects"].append((first.line, lines, first.key, stage, *about, raw, structs, content))

    def warn(self, line: int, rule: str, expression: str | None, column: str | None, message: str) -> None:
        self.tally.warnings[rule] += 1
        self._rows["warnings"].append((line, rule, expression, column, message))


def _told(at: int | None) -> int | None:
    """Return the time of a record set aside, which no rule may have checked; None if the ledger cannot hold it."""
    return at if at is not None and at in _TIMES else None  # a range compares None with each number

"""Build and check each record's body: it is accepted, skipped as a repeat, or rejected with every reason.

Only the present chunk is used, so that chunks can be checked in any process.
"""

from collections.abc import Collection, Sequence

import pyarrow as pa

from pipelines.feeds.kinds.payments import is_copayment
from pipelines.feeds.kinds.registry import kind_of
from pipelines.feeds.reading.chunks import LineNames
from pipelines.feeds.terms.columns import BuilderContext, BuiltRecord
from pipelines.feeds.terms.schema import FeedFile
from pipelines.validation.bodies import Bodies
from pipelines.validation.chunk_results import CheckedChunk, SortedRecords
from pipelines.validation.faults import Faults
from pipelines.validation.inspection import InspectedSnapshot
from pipelines.validation.reasons import Reason
from pipelines.validation.records import MappedRow, content_of, records, repeated_parts
from pipelines.validation.scoring import INCOMPLETE, Scoring


class Checker:
    """Builder and checker of records, a chunk at a time."""

    def __init__(self, file: FeedFile, around: BuilderContext, strict: bool, places: LineNames) -> None:
        self._kind, self._strict = kind_of(file), strict
        self._inspected = InspectedSnapshot(around.questionnaires)
        self._around = around._replace(questionnaires=self._inspected)
        self._bodies = Bodies(self._kind, self._around)
        self._faults = Faults(file, self._kind, self._around, places)
        is_scored = self._kind.resource == "QuestionnaireResponse"
        self._scoring = Scoring(self._inspected, file.scored, file.scored_questions) if is_scored else None
        self._of_payments = self._kind.resource == "PaymentNotice"
        self._sorted = SortedRecords()

    def __call__(self, chunk: pa.RecordBatch) -> CheckedChunk:
        self._sorted = SortedRecords()
        every = [*records(chunk, self._kind)]
        self._bodies.look_at(every)
        for rows in every:
            if quick := self._bodies.quick(rows):
                self._sorted.tally.amount_received += quick[0].cents or 0
                self._accept(rows, *quick)
            else:
                self._take_any(rows)
        return self._sorted.checked(dict(self._inspected.warnings))

    def _take_any(self, rows: list[MappedRow]) -> None:
        """Take a record of one or several rows, which the file may have more than once as a whole."""
        first, (rows, *repeats) = rows[0], repeated_parts(rows)
        every = [row for part in (rows, *repeats) for row in part]
        values = [self._bodies.values(row) for row in rows if row.record]
        faults = self._faults.of_rows(rows)
        if not first.differs and faults and all(row.is_doubtful for row in rows if row.faults):
            reasons = self._faults.at_places(faults, first.line)
            self._sorted.reject(every, None, reasons, content_of(rows, self._kind))
            return
        missing = self._bodies.stand_in(values) if faults else set()
        built, body = self._bodies.build(first.key, values) if values else None, None
        if built:
            lines = [row.line for row in rows if row.record] if len(rows) > 1 else []
            faults += [self._faults.of_building(fault, lines) for fault in built.faults]
            body = None if faults else self._bodies.sound(built, rows, values[0])
            if body is None:
                faults += self._broken_rules(first.line, built, lines, faults)
            built = _without(built, missing, self._kind.sort)
            self._sorted.tally.amount_received += built.cents or 0
        if faults or built is None:
            self._sorted.reject(every, built, self._faults.at_places(faults, first.line))
        elif first.first_line is not None and first.first_line != first.line:
            self._sorted.skip(rows, built, first.first_line)
        else:
            if body is not None:
                self._bodies.note(rows, values[0], built)
            self._accept(rows, built, body)
            for repeat in repeats:
                self._sorted.skip(repeat, built, first.line)

    def _broken_rules(
        self, line: int, built: BuiltRecord, lines: Sequence[int], told: Sequence[Reason]
    ) -> list[Reason]:
        """Return the problems by the interface's rules. Those of decided rules may only be warnings.

        A payment that is not in whole cents is a reject everywhere: no sum of payments could hold it.
        """
        broken, strict = [], self._strict or (self._of_payments and built.cents is None)
        for reason, is_given in self._faults.of_rules(built, lines, told):
            if is_given or strict:
                broken.append(reason)
            else:
                self._sorted.warn(line, reason.rule, reason.expression, reason.column, reason.message)
        return broken

    def _accept(self, rows: list[MappedRow], built: BuiltRecord, text: str | None) -> None:
        line, tally = rows[0].line, self._sorted.tally
        if self._of_payments and is_copayment(built.body, self._around.site.copayment):
            tally.copayments += 1
            tally.amount_copayments += built.cents or 0
        if self._scoring and (lacking := self._scoring.unanswered(built.body)):
            said = f"answers that a score needs are missing: {', '.join(lacking)}"
            self._sorted.warn(line, INCOMPLETE, f"{self._kind.resource}.item", None, said)
        body = self._bodies.as_sent(built, text)
        self._sorted.accept(rows, built, body, content_of(rows, self._kind))


def _without(built: BuiltRecord, missing: Collection[str], time: str | None) -> BuiltRecord:
    """Return a built record without values that only replace missing ones. time: the column of the record's time."""
    if time in missing:
        built = built._replace(at=None)
    if "patient_id" in missing:
        built = built._replace(patient_id=None)
    return built._replace(cents=None) if "amount" in missing else built

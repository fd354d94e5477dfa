"""Each record's body, built and checked: accepted, skipped as a repeat, or rejected with every reason.

Nothing is known here but the chunk at hand, so that chunks can be checked in any process; `check_records` writes them.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from fhir_service.interface.checking import check
from fhir_service.interface.json_text import parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.vocabulary import Problem
from pipelines.feeds.kinds.payments import is_copayment
from pipelines.feeds.kinds.registry import kind_of
from pipelines.feeds.mapping.origins import Origins
from pipelines.feeds.reading.chunks import Places
from pipelines.feeds.terms.record import Around, Built, Found, Kind, Values
from pipelines.feeds.terms.schema import FeedFile
from pipelines.home import arrow, spill
from pipelines.validation.content import dump, sha
from pipelines.validation.grouping import Row, chunks, records, repeated
from pipelines.validation.inspection import Ambiguity, Inspected
from pipelines.validation.outcome import Tally, Validated
from pipelines.validation.reasons import RETRYABLE, Reason
from pipelines.validation.scoring import INCOMPLETE, Scoring
from pipelines.validation.side_by_side import SideBySide
from pipelines.validation.soundness import SoundByCell, SoundByItem, are_plain
from pipelines.validation.sums import notice_totals
from pipelines.validation.tables import ACCEPTED, ANSWERS, REJECTS, SKIPPED, WARNINGS
from pipelines.validation.wording import in_words


def check_records(
    mapped: Path,
    file: FeedFile,
    around: Around,
    strict: bool,
    found: Validated,
    progress: Callable[[int], None],
    work: SideBySide,
    wanted: "Wanted",
) -> None:
    """Write `accepted.parquet`, `rejects.parquet` and `skipped.parquet`; where there are any, answers and warnings.

    mapped: in a folder where sorting may spill.
    """
    folder, kind = found.folder, kind_of(file)
    inspected: dict[str, tuple[Ambiguity, ...]] = {}
    done = 0
    with (
        spill.sorter(mapped.parent) as database,
        spill.Writer(folder / "warnings.parquet", WARNINGS, needed=False) as warned,
    ):
        with (
            spill.Writer(folder / "accepted.parquet", ACCEPTED) as accepted,
            spill.Writer(folder / "rejects.parquet", REJECTS) as rejects,
            spill.Writer(folder / "skipped.parquet", SKIPPED) as skipped,
        ):
            some = (wanted.of(chunk, kind) for chunk in chunks(database, mapped, kind))
            for checked in work.over(partial(Checker, file, around, strict, found.places), some):
                accepted.add_batch(_numbered(checked.accepted, accepted.count))
                rejects.add_batch(checked.rejects)
                skipped.add_batch(checked.skipped)
                warned.add_batch(checked.warned)
                found.add(checked.tally)
                inspected |= checked.inspected
                done += checked.tally.accepted + checked.tally.rejected
                progress(done)
        if wanted.only is None:
            notice_totals(database, found)
        for ambiguity in chain.from_iterable(inspected.values()):
            found.warnings[ambiguity.rule] += 1
            warned.add(None, ambiguity.rule, None, None, ambiguity.message)
        for notice in found.noticed if wanted.only is None else ():
            found.warnings[notice.rule] += 1
            warned.add(notice.line, notice.rule, None, None, notice.message)
    if wanted.only is not None:
        found.header, found.not_taken, found.lines = 0, 0, wanted.lines
    if wanted.answered:
        with spill.Writer(folder / "answers.parquet", ANSWERS) as out:
            for row in wanted.answered:
                out.add(*row)


def _numbered(accepted: pa.RecordBatch, before: int) -> pa.RecordBatch:
    """Return accepted rows with `position` counted over the whole file: `before` rows came earlier."""
    place = ACCEPTED.get_field_index("position")
    counted = arrow.column(range(before, before + accepted.num_rows), pa.int64())
    return accepted.set_column(place, ACCEPTED.field(place), counted)


class Wanted:
    """The records of a file that are checked, and the rejects that they answer.

    answers: by line, the rejects that rows say they answer. only: the lines that the wanted records begin on, each with
    the rejects that it answers; None for all records. lines: the number of lines of the wanted records.
    """

    def __init__(self, answers: Mapping[int, str], only: Mapping[int, Sequence[str]] | None = None) -> None:
        self.answers, self.only = answers, only
        self.answered: dict[tuple[int, str], None] = {}
        self.lines = 0

    def of(self, chunk: pa.RecordBatch, kind: Kind) -> pa.RecordBatch:
        """The rows of a chunk that are wanted; what they answer is noted."""
        if self.only is None and not self.answers:
            return chunk
        line, begin = (chunk.column(name) for name in ("line", "first_line" if kind.grouped else "line"))
        if self.only is not None:
            chunk = chunk.filter(pc.is_in(begin, arrow.column([*self.only], pa.int64())))
            self.lines += pc.sum(chunk.column("lines")).as_py() or 0
            begins = chunk.column("first_line" if kind.grouped else "line").to_pylist()
            self.answered.update(((first, name), None) for first in begins for name in self.only[first])
        else:
            rows = zip(line.to_pylist(), begin.to_pylist(), strict=True)
            names = ((first, name) for row, first in rows for name in self.answers.get(row, "").split())
            self.answered.update(dict.fromkeys(names))
        return chunk


class Checked(NamedTuple):
    """The result of a chunk: rows of the four files (`position` counts within the chunk), and the counts."""

    accepted: pa.RecordBatch
    rejects: pa.RecordBatch
    skipped: pa.RecordBatch
    warned: pa.RecordBatch
    tally: Tally
    inspected: Mapping[str, tuple[Ambiguity, ...]]


_PART = re.compile(r"\w+\.(?:item|note)\[(\d+)\](?:\.answer\[(\d+)\])?")


def _faults(faults: str, line: int, of_several: bool) -> Iterator[Reason]:
    """Yield the faults of a single row, with its line if the record has several rows."""
    for fault in orjson.loads(faults):
        reason = Reason(*fault)
        yield reason._replace(line=line if of_several else None, retryable=reason.rule.startswith(RETRYABLE))


def _line_of(expression: str, rows: Sequence[Sequence[int]], lines: Sequence[int]) -> int | None:
    """The line of the row that an element came from; None where it came from all of them."""
    part = _PART.match(expression)
    return lines[rows[int(part[1])][int(part[2] or 0)]] if part and rows else None


class Checker:
    """Builds and checks one record after another, a chunk at a time."""

    def __init__(self, file: FeedFile, around: Around, strict: bool, places: Places) -> None:
        self.places = places
        self.kind = kind_of(file)
        self.strict = strict
        self.inspected = Inspected(around.questionnaires)
        self.around = around._replace(questionnaires=self.inspected)
        resource = RESOURCES[self.kind.resource]
        self.check = partial(check, resource, site=around.site, lookup=self.inspected)
        of_items = resource.name == "QuestionnaireResponse"
        self.judged = [column for column in self.kind.columns[1:] if not of_items or column.element != self.kind.member]
        about = (resource, around.site, self.inspected, self.judged)
        self.soundness: SoundByItem | SoundByCell = SoundByItem(*about) if of_items else SoundByCell(*about)
        self.by_cell = of_items or not self.kind.grouped
        self.of_payments = resource.name == "PaymentNotice"
        self.names = [column.name for column in self.kind.columns[1:]]
        self.origins = Origins(file, self.kind)
        self.scoring = Scoring(self.inspected, file.scored, file.scored_questions) if of_items else None

    def __call__(self, chunk: pa.RecordBatch) -> Checked:
        self.tally = Tally()
        self.accepted: list[tuple[Any, ...]] = []
        self.rejects: list[tuple[Any, ...]] = []
        self.skipped: list[tuple[Any, ...]] = []
        self.warned: list[tuple[Any, ...]] = []
        every = [*records(chunk, self.kind)]
        self.is_plain = are_plain([row.record or "" for rows in every for row in rows])
        for rows in every:
            self.take(rows)
        return Checked(
            arrow.batch_of_rows(self.accepted, ACCEPTED),
            arrow.batch_of_rows(self.rejects, REJECTS),
            arrow.batch_of_rows(self.skipped, SKIPPED),
            arrow.batch_of_rows(self.warned, WARNINGS),
            self.tally,
            dict(self.inspected.warnings),
        )

    def take(self, rows: list[Row]) -> None:
        """Take a record: one row, or several of a grouped kind, which may be in the file more than once as a whole."""
        if len(rows) > 1 or not self._take_sound(rows[0]):
            self._take_any(rows)

    def _take_sound(self, row: Row) -> bool:
        """Accept the record of a single row. False, and nothing is done, if there is anything to say about it."""
        if row.faults or row.differs or not row.record or row.first_line not in (None, row.line):
            return False
        values = self._values(row.record, None)
        built = self.kind.build(row.key, (values,), self.around)
        body = None if built.faults else self.soundness.text(built.body, self._cells([row], values))
        if body is None:
            return False
        self.tally.amount_received += built.cents or 0
        self._accept([row], built, body)
        return True

    def _cells(self, rows: list[Row], values: Values) -> list[Any] | None:
        """Return the cells by which a body may be judged; None where it is to be looked at as a whole."""
        if not self.by_cell or "resource" in values:
            return None
        if not (self.is_plain or are_plain([row.record or "" for row in rows])):
            return None
        return [values[column.name] for column in self.judged]

    def _take_any(self, rows: list[Row]) -> None:
        first, (rows, *repeats) = rows[0], repeated(rows)
        body: str | None = None
        values = [self._values(row.record, row.faults) for row in rows if row.record]
        lines = [row.line for row in rows if row.record] if len(rows) > 1 else []
        faults = [reason for row in rows if row.faults for reason in _faults(row.faults, row.line, len(rows) > 1)]
        if first.differs and not self.kind.grouped:
            faults.append(self._differs(first))
        if not first.differs and faults and all(row.is_doubtful for row in rows if row.faults):
            every = [row for part in (rows, *repeats) for row in part]
            self._reject(every, None, faults, self._content(rows))
            return
        missing = self._stand_in(values) if faults else set()
        built = self.kind.build(first.key, values, self.around) if values else None
        if built:
            faults += [self._found(fault, lines) for fault in built.faults]
            body = self.soundness.text(built.body, None if faults else self._cells(rows, values[0]))
            if faults or body is None:
                faults.extend(self._problems(first.line, built, lines, {fault.expression for fault in faults}))
            if "patient_id" in missing:
                built = built._replace(patient_id=None)
            if "amount" in missing:
                built = built._replace(cents=None)
            self.tally.amount_received += built.cents or 0
        if faults or built is None:
            self._reject([row for part in (rows, *repeats) for row in part], built, faults)
        elif first.first_line is not None and first.first_line != first.line:
            self._skip(rows, built, first.first_line)
        else:
            self._accept(rows, built, body or dump(built.body))
            for repeat in repeats:
                self._skip(repeat, built, first.line)

    def _values(self, record: str, faults: str | None) -> Values:
        whole = record[0] == "{"
        values: Values = parse_json(record) if whole else dict(zip(self.names, orjson.loads(record), strict=True))
        if faults:
            values["faulty"] = True
        return values

    def _found(self, found: Found, lines: Sequence[int]) -> Reason:
        """A fault that the builder found: it knows our columns and its rows, a reason names the source's and lines."""
        column = self.origins.labels.get(found.column)
        line = lines[found.row] if lines and found.row is not None else None
        return Reason("map", found.fault.rule, found.element, column, found.fault.message, line=line)

    def _differs(self, row: Row) -> Reason:
        first = self.places.of(row.first_line or row.line)
        message = f"the key stands in this file more than once, first on {first}, with different content"
        key = self.origins.key
        return Reason("map", "LEDGER-13", key.element, self.origins.labels.get(key.name), message)

    def _stand_in(self, values: list[Values]) -> set[str]:
        """Fill in required values that are missing, so that the rules can check the rest; return their columns."""
        filled = set()
        for row in values:
            for column in self.kind.columns:
                if column.stand_in and "resource" not in row and row[column.name] is None:
                    row[column.name] = column.stand_in
                    filled.add(column.name)
        return filled

    def _problems(self, line: int, built: Built, lines: Sequence[int], told: set[str | None]) -> Iterator[Reason]:
        """Yield the problems by the interface's rules, without elements that have a problem already."""
        problems = self.check(body=built.body).problems
        hidden = tuple(element for element in told if element and element != self.kind.member)
        for problem in problems:
            if hidden and problem.expression.startswith(hidden):
                continue
            reason = self._reason(problem, built, lines)
            if problem.given or self.strict:
                yield reason
            else:
                self._warn(line, reason.rule, reason.expression, reason.column, reason.message)

    def _warn(self, line: int, rule: str, expression: str | None, column: str | None, message: str) -> None:
        self.tally.warnings[rule] += 1
        self.warned.append((line, rule, expression, column, message))

    def _reason(self, problem: Problem, built: Built, lines: Sequence[int]) -> Reason:
        retryable, said = problem.rule.startswith(RETRYABLE), problem.message or problem.text
        column = self.origins.of(problem.expression, built.places)
        line = _line_of(problem.expression, built.rows, lines) if lines else None
        return Reason("rule", problem.rule, problem.expression, column, said, retryable, line)

    def _accept(self, rows: list[Row], built: Built, body: str) -> None:
        first, content = rows[0], self._content(rows)
        lines = first.lines if len(rows) == 1 else sum(row.lines for row in rows)
        self.tally.accepted += 1
        self.tally.amount_accepted += built.cents or 0
        if self.of_payments and is_copayment(built.body, self.around.site.copayment):
            self.tally.copayments += 1
            self.tally.amount_copayments += built.cents or 0
        if self.scoring and (lacking := self.scoring.unanswered(built.body)):
            said = f"answers that a score needs are missing: {', '.join(lacking)}"
            self._warn(first.line, INCOMPLETE, f"{self.kind.resource}.item", None, said)
        about = (content, built.patient_id, built.at, built.cents)
        text = self._text(rows)
        body = in_words(body, built.body, self.around.words) if self.around.words else body
        self.accepted.append((first.line, lines, first.key, built.lane, len(self.accepted), *about, body, text))

    def _content(self, rows: list[Row]) -> str:
        return rows[0].hash if not self.kind.grouped else sha("".join(sorted(row.hash for row in rows)))

    def _text(self, rows: list[Row]) -> str | None:
        """Return the hash by which ledgers of older versions know the record, or None."""
        if rows[0].text_hash is None or not self.kind.grouped:
            return rows[0].text_hash
        return sha("".join(sorted(row.text_hash or row.hash for row in rows)))

    def _skip(self, rows: list[Row], built: Built, first_line: int) -> None:
        lines = sum(row.lines for row in rows)
        self.tally.accepted += 1
        self.tally.skipped += 1
        self.tally.amount_accepted += built.cents or 0
        self.tally.amount_skipped += built.cents or 0
        about = (built.patient_id, built.at, built.cents)
        self.skipped.append((rows[0].line, lines, rows[0].key, first_line, *about))

    def _reject(self, rows: list[Row], built: Built | None, reasons: list[Reason], content: str | None = None) -> None:
        first, stages = rows[0], {reason.stage for reason in reasons}
        stage = next(stage for stage in ("parse", "map", "rule") if stage in stages)
        self.tally.rejected += 1
        self.tally.reasons.update({reason.rule for reason in reasons})
        about = (built and built.patient_id, built and built.cents, "".join(row.raw for row in rows))
        if self.places:
            reasons = [each.at(self.places.of(each.line or first.line)) for each in reasons]
        structs = [reason[1:] for reason in reasons]  # in the order of `REASON`
        self.rejects.append((first.line, sum(row.lines for row in rows), first.key, stage, *about, structs, content))

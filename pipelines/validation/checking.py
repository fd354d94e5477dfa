"""Each record's body, built and checked: accepted, skipped as a repeat, or rejected with every reason."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import orjson

from fhir_service.interface.datatypes import parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.vocabulary import Problem, check
from pipelines import spill
from pipelines.feeds.catalog import Feed
from pipelines.feeds.names import source_label
from pipelines.feeds.record import Around, Built, Found, Values
from pipelines.validation.content import dump, sha
from pipelines.validation.grouping import Row, records, repeated
from pipelines.validation.outcome import Validated
from pipelines.validation.reasons import RETRYABLE, Reason
from pipelines.validation.tables import ACCEPTED, ANSWERS, REJECTS, SKIPPED


def check_records(
    mapped: Path,
    feed: Feed,
    around: Around,
    strict: bool,
    found: Validated,
    progress: Callable[[int], None],
    answers: Mapping[int, str],
    only: Mapping[int, Sequence[str]] | None = None,
) -> None:
    """answers: by line, the rejects that rows answer. only: the lines that the records wanted begin on, and theirs."""
    folder = found.folder
    answered: list[tuple[int, str]] = []
    lines = 0
    with (
        spill.sorter(folder / ".spill") as database,
        spill.Writer(folder / "accepted.parquet", ACCEPTED) as accepted,
        spill.Writer(folder / "rejects.parquet", REJECTS) as rejects,
        spill.Writer(folder / "skipped.parquet", SKIPPED) as skipped,
    ):
        checker = Checker(feed, around, strict, found, accepted, rejects, skipped)
        for done, rows in enumerate(records(database, mapped, feed.kind), 1):
            first = rows[0].line
            if only is not None:
                if first not in only:
                    continue
                lines += sum(row.lines for row in rows)
                answered.extend((first, reject_id) for reject_id in only[first])
            elif answers:
                answered.extend((first, name) for row in rows for name in answers.get(row.line, "").split())
            checker.take(rows)
            if done % spill.BATCH == 0:
                progress(done)
    if only is not None:
        found.header, found.not_taken, found.lines = 0, 0, lines
    if answered:
        with spill.Writer(folder / "answers.parquet", ANSWERS) as out:
            for row in dict.fromkeys(answered):
                out.add(*row)


_ITEM = re.compile(r"\w+\.item\[(\d+)\]")


class Checker:
    """Builds, checks and writes one record after another."""

    def __init__(
        self,
        feed: Feed,
        around: Around,
        strict: bool,
        found: Validated,
        accepted: spill.Writer,
        rejects: spill.Writer,
        skipped: spill.Writer,
    ) -> None:
        self.kind = feed.kind
        self.found = found
        self.strict = strict
        self.around = around
        self.accepted, self.rejects, self.skipped = accepted, rejects, skipped
        self.check = partial(check, RESOURCES[feed.resource], site=around.site, lookup=around.questionnaires)
        self.names = [column.name for column in self.kind.columns[1:]]
        self.labels = {name: source_label(value) for name, value in feed.file.columns.items()}
        self.labels |= {f"questions.{name}": source_label(value) for name, value in feed.file.questions.items()}
        if feed.file.comments:
            self.labels["comments"] = ", ".join(source_label(comment.text) for comment in feed.file.comments)
        self.mapped = [column for column in self.kind.columns if column.name in self.labels]

    def take(self, rows: list[Row]) -> None:
        """A record: one row, or several of a grouped kind, which may stand in the file more than once as a whole."""
        first, (rows, *repeats) = rows[0], repeated(rows)
        values = [self._values(row.record) | ({"faulty": True} if row.faults else {}) for row in rows if row.record]
        faults = [Reason(*fault) for row in rows if row.faults for fault in orjson.loads(row.faults)]
        if first.differs and not self.kind.grouped:
            faults.append(self._differs(first))
        missing = self._stand_in(values) if faults else set()
        built = self.kind.build(first.key, values, self.around) if values else None
        if built:
            faults.extend(self._found(fault) for fault in built.faults)
            faults.extend(self._problems(built, {fault.expression for fault in faults}))
            if "patient_id" in missing:
                built = built._replace(patient_id=None)
            if "amount" in missing:
                built = built._replace(cents=None)
            self.found.amount_received += built.cents or 0
        if faults or built is None:
            self._reject([row for part in (rows, *repeats) for row in part], built, faults)
        elif first.first_line is not None and first.first_line != first.line:
            self._skip(rows, built, first.first_line)
        else:
            self._accept(rows, built)
            for repeat in repeats:
                self._skip(repeat, built, first.line)

    def _values(self, record: str) -> Values:
        if record[0] == "{":
            return parse_json(record)  # type: ignore[no-any-return]
        return dict(zip(self.names, orjson.loads(record), strict=True))

    def _found(self, found: Found) -> Reason:
        """A fault that the builder found: it knows our columns, a reason names the source's."""
        return Reason("map", found.fault.rule, found.element, self.labels.get(found.column), found.fault.message)

    def _differs(self, row: Row) -> Reason:
        message = f"the key stands in this file more than once, first on line {row.first_line}, with different content"
        key = self.kind.columns[0]
        return Reason("map", "LEDGER-13", key.element, self.labels.get(key.name), message)

    def _stand_in(self, values: list[Values]) -> set[str]:
        """Fills in what is required and missing, so that the rules can speak of the rest."""
        filled = set()
        for row in values:
            for column in self.kind.columns:
                if column.stand_in and "resource" not in row and row[column.name] is None:
                    row[column.name] = column.stand_in
                    filled.add(column.name)
        return filled

    def _problems(self, built: Built, told: set[str | None]) -> Iterator[Reason]:
        """What the interface's rules say, apart from elements of which something was said already."""
        problems = self.check(body=built.body).problems
        hidden = tuple(element for element in told if element and element != self.kind.member)
        for problem in problems:
            if hidden and problem.expression.startswith(hidden):
                continue
            if problem.given or self.strict:
                yield self._reason(problem, built)
            else:
                self.found.warnings[problem.rule] += 1

    def _reason(self, problem: Problem, built: Built) -> Reason:
        retryable = problem.rule.startswith(RETRYABLE)
        column = self._column(problem.expression, built.places)
        return Reason("rule", problem.rule, problem.expression, column, problem.message or problem.text, retryable)

    def _column(self, expression: str, places: Sequence[str]) -> str | None:
        """The source column that an element came from."""
        if places and (item := _ITEM.match(expression)):
            return self.labels.get(places[int(item[1])])
        near = [column for column in self.mapped if expression.startswith(column.element)]
        exact = [column for column in near if column.tail and column.tail in expression]
        return next((self.labels[column.name] for column in exact or near), None)

    def _accept(self, rows: list[Row], built: Built) -> None:
        first = rows[0]
        content = first.hash if not self.kind.grouped else sha("".join(sorted(row.hash for row in rows)))
        lines = first.lines if len(rows) == 1 else sum(row.lines for row in rows)
        self.found.accepted += 1
        self.found.amount_accepted += built.cents or 0
        body = dump(built.body)
        self.accepted.add(
            first.line,
            lines,
            first.key,
            built.lane,
            self.accepted.count,
            content,
            built.patient_id,
            built.at,
            built.cents,
            body,
            size=len(body),
        )

    def _skip(self, rows: list[Row], built: Built, first_line: int) -> None:
        lines = sum(row.lines for row in rows)
        self.found.accepted += 1
        self.found.skipped += 1
        self.found.amount_accepted += built.cents or 0
        self.found.amount_skipped += built.cents or 0
        self.skipped.add(rows[0].line, lines, rows[0].key, first_line, built.patient_id, built.at, built.cents)

    def _reject(self, rows: list[Row], built: Built | None, reasons: list[Reason]) -> None:
        first = rows[0]
        stages = {reason.stage for reason in reasons}
        self.found.rejected += 1
        self.found.reasons.update({reason.rule for reason in reasons})
        record = "".join(row.raw for row in rows)
        self.rejects.add(
            first.line,
            sum(row.lines for row in rows),
            first.key,
            next(stage for stage in ("parse", "map", "rule") if stage in stages),
            built and built.patient_id,
            built and built.cents,
            record,
            [reason.struct() for reason in reasons],
            size=len(record),
        )

"""Turn the faults of a record into reasons, each with the source's column, the line, and the sentence."""

import re
from collections.abc import Iterator, Sequence
from functools import partial

import orjson

from fhir_service.interface.checking import check
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.vocabulary import Problem
from pipelines.feeds.mapping.origins import Origins
from pipelines.feeds.reading.chunks import LineNames
from pipelines.feeds.terms.columns import BuilderContext, BuiltRecord, RecordFault, RecordKind
from pipelines.feeds.terms.schema import FeedFile
from pipelines.validation.reasons import RETRYABLE, Reason
from pipelines.validation.records import MappedRow

_PART = re.compile(r"\w+\.(?:item|note)\[(\d+)\](?:\.answer\[(\d+)\])?")


class Faults:
    """The faults of the records of one file, by its feed and by the interface's rules."""

    def __init__(self, file: FeedFile, kind: RecordKind, around: BuilderContext, places: LineNames) -> None:
        self._kind, self._places = kind, places
        self._origins = Origins(file, kind)
        self._check = partial(check, RESOURCES[kind.resource], site=around.site, lookup=around.questionnaires)

    def of_rows(self, rows: Sequence[MappedRow]) -> list[Reason]:
        """Return the faults of a record's rows, and that of a key with other content."""
        faults = [reason for row in rows if row.faults for reason in _of_row(row.faults, row.line, len(rows) > 1)]
        if rows[0].differs and not self._kind.grouped:
            faults.append(self._differs(rows[0]))
        return faults

    def of_building(self, found: RecordFault, lines: Sequence[int]) -> Reason:
        """Return a builder's fault as a reason. The builder knows our columns and its rows, a reason the source's
        columns and lines.
        """
        column = self._origins.labels.get(found.column)
        line = lines[found.row] if lines and found.row is not None else None
        rule, said = found.fault.rule, found.fault.message
        return Reason("map", rule, found.element, column, said, rule.startswith(RETRYABLE), line)

    def of_rules(
        self, built: BuiltRecord, lines: Sequence[int], told: Sequence[Reason]
    ) -> Iterator[tuple[Reason, bool]]:
        """Yield the problems by the interface's rules, without elements that have a reported problem already (`told`).

        Each comes with True if the interface gives its rule, False if the rule is decided. For an element that each
        row has, a cell's problem does not hide those of other rows.
        """
        elements = {reason.expression for reason in told}
        hidden = tuple(element for element in elements if element and element != self._kind.member)
        cells = {(reason.column, reason.line) for reason in told if reason.expression == self._kind.member}
        for problem in self._check(body=built.body).problems:
            if hidden and problem.expression.startswith(hidden):
                continue
            reason = self._of_rule(problem, built, lines)
            if (reason.column, reason.line) not in cells:
                yield reason, problem.given

    def at_places(self, reasons: Sequence[Reason], line: int) -> Sequence[Reason]:
        """Return reasons with the places of their rows, in a file whose lines have places. line: of the record."""
        if not self._places:
            return reasons
        return [each.at(self._places.of(each.line or line)) for each in reasons]

    def _differs(self, row: MappedRow) -> Reason:
        first = self._places.of(row.first_line or row.line)
        message = f"this key is in the file more than once, first on {first}, with different content"
        key = self._origins.key
        return Reason("map", "LEDGER-13", key.element, self._origins.labels.get(key.name), message)

    def _of_rule(self, problem: Problem, built: BuiltRecord, lines: Sequence[int]) -> Reason:
        retryable, said = problem.rule.startswith(RETRYABLE), problem.message or problem.text
        column = self._origins.of(problem.expression, built.places)
        line = _line_of(problem.expression, built.rows, lines) if lines else None
        return Reason("rule", problem.rule, problem.expression, column, said, retryable, line)


def _of_row(faults: str, line: int, of_several: bool) -> Iterator[Reason]:
    """Yield the faults of a single row, with its line if the record has several rows."""
    for fault in orjson.loads(faults):
        reason = Reason(*fault)
        yield reason._replace(line=line if of_several else None, retryable=reason.rule.startswith(RETRYABLE))


def _line_of(expression: str, rows: Sequence[Sequence[int]], lines: Sequence[int]) -> int | None:
    """Return the line of the row that an element came from; None if it came from all rows."""
    part = _PART.match(expression)
    return lines[rows[int(part[1])][int(part[2] or 0)]] if part and rows else None

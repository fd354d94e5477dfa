"""Turn the values of search parameters into conditions on the tables: a function for each kind of parameter."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Table, and_, not_, null, or_, select, true

from fhir_service.interface.datatypes import CONTROLS, is_id
from fhir_service.interface.outcomes import INVALID, FhirError
from fhir_service.interface.resources.response_model import questionnaire_id
from fhir_service.interface.site import Site
from fhir_service.interface.times import search_period
from fhir_service.interface.vocabulary import Param, Resource
from fhir_service.store.expressions import contains, equal, starts
from fhir_service.store.tables import BODIES, SIDES, digest

MOST_VALUES = 500
"""The most different values in one query."""
MOST_CONDITIONS = 20
"""The most conditions in one query. One on a side table is a join: PostgreSQL plans 200 of them for minutes."""
MOST_TEXTS, LONGEST_TEXT = 5, 500
"""The most texts without case in one query, and the most characters of each. Each one folds the letters of a column."""
OF_CHANGES = ("modified", "_lastUpdated")
"""The parameters for the time of the last change."""

Clause = ColumnElement[bool]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on rows: a clause on their own columns, or on those of a side table.

    once: True if a resource has at most one row in the side table that meets the condition.
    """

    clause: Clause
    side: Table | None = None
    once: bool = False

    def on(self, table: Table) -> Clause:
        """Return the condition on rows of the resource's table."""
        if self.side is None:
            return self.clause
        return table.c.seq.in_(select(self.side.c.seq).where(self.clause))


def bad(name: str, why: str) -> FhirError:
    """Return the 400 that names a parameter."""
    shown = name if re.fullmatch(r"[\w.:\-$]{1,64}", name, re.ASCII) else "?"
    return FhirError(INVALID, f"{shown}: {why}")


def alternatives(param: Param, value: str, counted: set[tuple[str, str]]) -> list[str]:
    """Return the different values of a parameter, which commas separate. Escapes stay in them.

    Args:
        counted: all values of the query so far, with their parameters. The new ones are added.

    Raises:
        FhirError: there is no value, one has a control character, or the query has more than `MOST_VALUES`.
    """
    if not value or CONTROLS.search(value):
        raise bad(param.name, "a value without control characters is expected")
    found: dict[str, None] = {}
    for part in pieces(value, ",") if param.kind in _OF_ALTERNATIVES else (value,):
        found[part] = None
        counted.add((param.name, part))
        if len(counted) > MOST_VALUES:
            raise bad(param.name, f"a query may have at most {MOST_VALUES} values: send several searches")
    return list(found)


def refuse_too_many(asked: Sequence[Param]) -> None:
    """Raise the 400 of a query with too many conditions on these parameters."""
    texts = [param for param in asked if param.kind in _OF_TEXT]
    for found, most, what in ((asked, MOST_CONDITIONS, "conditions"), (texts, MOST_TEXTS, "texts to look for")):
        if len(found) > most:
            raise bad(found[-1].name, f"a query may have at most {most} {what}: leave some out")


def condition(resource: Resource, param: Param, values: list[str], site: Site) -> Condition:
    found = _KINDS[param.kind](resource, param, values, site)
    return found if isinstance(found, Condition) else Condition(found)


def pieces(value: str, separator: str) -> Iterator[str]:
    """Yield the parts between unescaped separators. Escapes stay in them. Takes linear time."""
    start = at = 0
    while at < len(value):
        if value[at] == separator:
            yield value[start:at]
            start = at + 1
        at += 2 if value[at] == "\\" else 1
    yield value[start:]


def literal(value: str) -> str:
    """Return a value with its escapes `\\,`, `\\|`, `\\$` and `\\\\` replaced by the characters."""
    return re.sub(r"\\([\\,|$])", r"\1", value)


def _id(resource: Resource, param: Param, values: list[str], _: Site) -> Clause:
    ids = [literal(value) for value in values]
    if not all(map(is_id, ids)):
        raise bad(param.name, "an id is expected")
    return BODIES[resource.name].c.id.in_(ids)


def _token(resource: Resource, param: Param, values: list[str], _: Site) -> Clause:
    if not set(values) <= set(param.allowed):
        raise bad(param.name, f"one of {', '.join(param.allowed)} is expected")
    return BODIES[resource.name].c[param.column].in_(values)


def _reference(resource: Resource, param: Param, values: list[str], _: Site) -> Clause:
    ids = [literal(value).removeprefix(f"{param.target}/") for value in values]
    if not all(map(is_id, ids)):
        raise bad(param.name, f"{param.target}/<id> is expected")
    return BODIES[resource.name].c[param.column].in_(ids)


def _uri(resource: Resource, param: Param, values: list[str], site: Site) -> Clause:
    ids = [questionnaire_id(literal(value), site) for value in values]
    if None in ids:
        raise bad(param.name, "an address of the form {base_url}/Questionnaire/<id> is expected")
    return BODIES[resource.name].c[param.column].in_(ids)


def _text(
    compared: Callable[[ColumnElement[Any], str], Clause], resource: Resource, param: Param, values: list[str], _: Site
) -> Clause:
    found = literal(values[0])
    if len(found) > LONGEST_TEXT:
        raise bad(param.name, f"a text of at most {LONGEST_TEXT} characters is expected")
    return compared(BODIES[resource.name].c[param.column], found)


def _exact(resource: Resource, param: Param, values: list[str], _: Site) -> Condition:
    side = SIDES[resource.name, param.name]
    # A resource has a row for each different text.
    return Condition(equal(side.c.code, literal(values[0])), side, once=True)


def _codes(resource: Resource, param: Param, values: list[str], site: Site) -> Condition:
    """Codes in the side table; `through` looks at those of the Questionnaire that a response answers."""
    if not param.through:
        side = SIDES[resource.name, param.name]
        return Condition(_any_code(side, param, values, site), side)
    side, questionnaire = SIDES["Questionnaire", param.through], BODIES["Questionnaire"]
    coded = select(side.c.seq).where(_any_code(side, param, values, site))
    ids = select(questionnaire.c.id).where(questionnaire.c.seq.in_(coded))
    return Condition(BODIES[resource.name].c.questionnaire.in_(ids))


def _any_code(side: Table, param: Param, values: list[str], site: Site) -> Clause:
    codes = [_code_of(param, value, site) for value in values]
    by_system: dict[tuple[str | None, bool], list[str]] = defaultdict(list)
    for one in codes:
        by_system[one.system, one.of_system].append(one.code)
    clause = or_(*(_of_system(side, *system, some) for system, some in by_system.items()))
    if "digest" not in side.c or not all(one.code for one in codes):
        return clause
    # Numbers are compared first: that is faster.
    return and_(side.c.digest.in_({digest(one.code) for one in codes}), clause)


class _Code(NamedTuple):
    """A condition on a code: its system where `of_system`, None for one without; the code, empty for any."""

    system: str | None
    of_system: bool
    code: str


def _code_of(param: Param, value: str, site: Site) -> _Code:
    """Read `code`, `system|code`, `|code` or `system|`."""
    parts = [literal(part) for part in islice(pieces(value, "|"), 3)]
    if len(parts) > 2 or not any(parts):
        raise bad(param.name, "code, system|code, |code or system| is expected")
    if len(parts) == 1:
        return _Code(None, of_system=False, code=parts[0])
    system, code = parts
    return _Code(site.stored_systems.get(system, system) or None, of_system=True, code=code)


def _of_system(side: Table, system: str | None, of_system: bool, codes: list[str]) -> Clause:
    """True where the code is one of these, of this system where `of_system`; an empty code stands for any."""
    same = equal(side.c.code, *codes) if all(codes) else true()
    if not of_system:
        return same
    return and_(side.c.system == system if system else side.c.system.is_(null()), same)


_PREFIX = re.compile(r"(eq|ne|gt|lt|ge|le)?(\d.*)\Z", re.DOTALL)


def _date(resource: Resource, param: Param, values: list[str], _: Site) -> Clause:
    match = _PREFIX.match(values[0])
    if not match:
        raise bad(param.name, "a date is expected, with or without a prefix (eq, ne, gt, lt, ge, le)")
    try:
        start, end = search_period(match[2].replace(" ", "+"))
    except (ValueError, OverflowError):
        raise bad(param.name, "a date, or a datetime with an offset, is expected") from None
    table = BODIES[resource.name]
    if param.name in OF_CHANGES:
        # A change takes a microsecond, the least that there is. It is not added to each: that takes DuckDB long.
        first: Any = table.c.updated_at
        ends_later, ends_in_time = first >= end, first < end
    else:
        first, last = table.c[f"{param.column}_start"], table.c[f"{param.column}_end"]
        ends_later, ends_in_time = last > end, last <= end
    inside = and_(first >= start, ends_in_time)
    matching: dict[str, Clause] = {
        "eq": inside,
        "ne": not_(inside),
        "gt": ends_later,
        "lt": first < start,
        "ge": or_(ends_later, first >= start),
        "le": or_(first < start, ends_in_time),
    }
    return matching[match[1] or "eq"]


_KINDS: dict[str, Callable[[Resource, Param, list[str], Site], Condition | Clause]] = {
    "id": _id,
    "token": _token,
    "codes": _codes,
    "reference": _reference,
    "date": _date,
    "contains": partial(_text, contains),
    "starts": partial(_text, starts),
    "exact": _exact,
    "uri": _uri,
}
_OF_TEXT = ("contains", "starts")
_OF_ALTERNATIVES = ("id", "token", "codes", "reference", "uri")
"""Kinds of parameters whose values are separated by commas; in the others, a comma is part of the one value."""

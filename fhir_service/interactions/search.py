"""Search: a query as conditions on the tables, and the page of stored bodies that answers it.

One function per kind of parameter; which parameters there are is declared with the resources.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, Table, and_, func, not_, null, or_, select, true

from fhir_service.interactions.read import Reader, State
from fhir_service.interface.datatypes import CONTROLS, ID_PATTERN, search_period
from fhir_service.interface.outcomes import INVALID, FhirError
from fhir_service.interface.resources.response_model import questionnaire_id
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Param, Resource
from fhir_service.store.bodies import Found, Question
from fhir_service.store.expressions import contains, equal, starts
from fhir_service.store.snapshots import Snapshot, counted, name_of, taken
from fhir_service.store.tables import BODIES, SIDES, digest

MOST_VALUES = 500
"""So many different values may one query name."""
SNAPSHOT = "_snapshot"
"""A parameter that links carry: the state of the store that their pages show."""
OF_CHANGES = ("modified", "_lastUpdated")
"""Parameters on the time of the last change."""

Pairs = Sequence[tuple[str, str]]
Clause = ColumnElement[bool]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on rows: a clause on their own columns, or on those of a side table."""

    clause: Clause
    side: Table | None = None

    def on(self, table: Table) -> Clause:
        """The clause for the rows of the resource's table."""
        if self.side is None:
            return self.clause
        return table.c.seq.in_(select(self.side.c.seq).where(self.clause))


@dataclass(frozen=True, slots=True)
class Query:
    """A search that was understood: the filters as sent (for the links), conditions, order and page."""

    resource: Resource
    sent: list[tuple[str, str]]
    conditions: list[Condition]
    sort: str | None
    count: int
    offset: int
    stable: bool = False
    """True if all pages show the store as of the first one, by a snapshot in their links."""
    snapshot: Snapshot | None = None

    @property
    def name(self) -> str:
        """A short name of the search itself, whichever page is asked for."""
        return name_of(self.resource.name, self.sent)

    @property
    def question(self) -> Question:
        """The query as the cache of answers knows it."""
        return Question(self.resource.name, tuple(self.sent), self.count, self.offset)


@dataclass(frozen=True, slots=True)
class Page:
    """The resources of one page, with markers, how many match in all, and the ids of the patients on the page.

    snapshot: what its links carry, so that other pages show the same state of the store.
    """

    query: Query
    total: int
    found: list[Found]
    patients: tuple[str, ...]
    snapshot: Snapshot | None = None


def parse(
    resource: Resource,
    pairs: Pairs,
    site: Site,
    count: int,
    most: int,
    additions: bool,
    lenient: bool,
    stable: bool = False,
) -> Query:
    """The query of a search.

    Args:
        count: the page size when none is asked for.
        most: the largest page size.
        stable: True if links carry a snapshot, so that all pages show one state of the store.
    """
    sent: list[tuple[str, str]] = []
    conditions: list[Condition] = []
    control: dict[str, str] = {}
    values: set[tuple[str, str]] = set()
    for name, value in pairs:
        param = resource.param(name)
        if name in ("_count", "_offset") or (name == "_sort" and resource.sorts) or (stable and name == SNAPSHOT):
            _once(control, name, value)
            sent += [(name, value)] if name == "_sort" else []
        elif param is None or (name == "identifier" and not additions):
            if not lenient:
                raise bad(name, "the parameter is not known here")
        else:
            alternatives = _alternatives(param, value, values)
            conditions.append(_condition(resource, param, alternatives, site))
            sent.append((name, value))
    sort = _sort(resource, control.get("_sort"))
    size = min(_whole(control, "_count", count), most)
    snapshot = _snapshot(control[SNAPSHOT]) if SNAPSHOT in control else None
    return Query(resource, sent, conditions, sort, size, _whole(control, "_offset", 0), stable, snapshot)


def _snapshot(text: str) -> Snapshot:
    found = Snapshot.parse(text)
    if found is None:
        raise bad(SNAPSHOT, "the value of a link of a page is expected, as it is there")
    return found


def paging(resource: Resource, pairs: Pairs, count: int, most: int) -> tuple[int, int]:
    """`_count` and `_offset` of a request that takes no other parameters. Raises bad requests."""
    control: dict[str, str] = {}
    for name, value in pairs:
        if name not in ("_count", "_offset"):
            raise bad(name, f"the parameter is not known in a history of {resource.name}")
        _once(control, name, value)
    return min(_whole(control, "_count", count), most), _whole(control, "_offset", 0)


def at_hand(reader: Reader, query: Query) -> Page | None:
    """Return the page of a search whose answer is in memory. Does not wait."""
    found = reader.page_at_hand(query.question)
    return _filled(query, *found) if found else None


def run(reader: Reader, query: Query) -> Page:
    """Return the count, the page's ids, and their bodies, of one state of the store.

    The ids are found first, in narrow columns. Bodies are fetched for the rows of the page alone, and by id: a span of
    rows would unpack every body in it.
    """
    page = _page(query)
    with reader.state() as state:
        total, snapshot = _counted(state, query)
        wanted = query.count and query.offset < total
        ids = list(state.connection.execute(page).scalars()) if wanted else []
        found = state.bodies(query.resource, ids)
        state.keep_page(query.question, total, ids)
    return _filled(query, total, found, snapshot)


def _counted(state: State, query: Query) -> tuple[int, Snapshot | None]:
    """Return how many resources match, and the snapshot for the links of the page. Raises a bad request."""
    if not query.stable:
        return state.connection.execute(_count(query)).scalar_one(), None
    if query.snapshot is None:
        number, seen = state.connection.execute(counted(_count(query))).one()
        return number, taken(state.epoch, query.name, number, seen)
    if query.snapshot.epoch != state.epoch:
        raise bad(SNAPSHOT, "the database has been restored or taken over since this search began: search again")
    if query.snapshot.search == query.name:
        return query.snapshot.total, query.snapshot
    total = state.connection.execute(_count(query)).scalar_one()
    return total, query.snapshot._replace(total=total, search=query.name)


def _filled(query: Query, total: int, found: list[Found], snapshot: Snapshot | None = None) -> Page:
    patients = dict.fromkeys(patient for one in found for patient in one.patients)
    return Page(query, total, found, tuple(patients), snapshot)


def _count(query: Query) -> Select[Any]:
    """Count the rows that match."""
    if side := _only_side(query):
        return select(func.count(func.distinct(side.table.c.seq))).where(side.clause)
    table = BODIES[query.resource.name]
    return select(func.count()).select_from(table).where(*_clauses(query, table))


def _page(query: Query) -> Select[Any]:
    """Select the ids of one page, in order."""
    table = BODIES[query.resource.name]
    if side := _only_side(query):
        seq = side.table.c.seq
        seqs = select(seq).where(side.clause).distinct().order_by(seq).limit(query.count).offset(query.offset)
        return select(table.c.id).where(table.c.seq.in_(seqs)).order_by(table.c.seq)
    rows = select(table.c.id).where(*_clauses(query, table)).order_by(*_order(query, table))
    return rows.limit(query.count).offset(query.offset)


def _clauses(query: Query, table: Table) -> list[Clause]:
    """Return the conditions on the resource's table: those of the search, and that its first page saw the row."""
    found = [one.on(table) for one in query.conditions]
    return [*found, query.snapshot.has_seen(table)] if query.snapshot else found


class _Side(NamedTuple):
    """A side table, and a condition on it."""

    table: Table
    clause: Clause


def _only_side(query: Query) -> _Side | None:
    """Return the side table that answers a query alone, where nothing else is asked."""
    if len(query.conditions) == 1 and not query.sort and not query.snapshot:
        (only,) = query.conditions
        return _Side(only.side, only.clause) if only.side is not None else None
    return None


def bad(name: str, why: str) -> FhirError:
    """The bad request that names a parameter."""
    shown = name if re.fullmatch(r"[\w.:\-$]{1,64}", name, re.ASCII) else "?"
    return FhirError(INVALID, f"{shown}: {why}")


def _once(control: dict[str, str], name: str, value: str) -> None:
    if name in control:
        raise bad(name, "the parameter is given twice")
    control[name] = value


_MOST_OFFSET = 2**31 - 1


def _whole(control: dict[str, str], name: str, default: int) -> int:
    text = control.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"\d+", text, re.ASCII):
        raise bad(name, "a number from 0 on is expected")
    # The beginning of a longer number is above the most already.
    return min(int(text.lstrip("0")[:11] or "0"), _MOST_OFFSET)


def _sort(resource: Resource, text: str | None) -> str | None:
    if text is None:
        return None
    if text.removeprefix("-") not in resource.sorts:
        raise bad("_sort", f"one of {', '.join(sorted(resource.sorts))} is expected, with - in front for descending")
    return text


def _order(query: Query, table: Table) -> list[ColumnElement[Any]]:
    """By the sort key, missing values last, then by creation."""
    if not query.sort:
        return [table.c.seq]
    name = query.resource.sorts[query.sort.removeprefix("-")]
    column = table.c[name] if name in table.c else table.c[f"{name}_start"]
    ordered = column.desc() if query.sort.startswith("-") else column.asc()
    return [ordered.nulls_last(), table.c.seq]


# --- kinds of parameters --------------------------------------------------------------------------


def _alternatives(param: Param, value: str, counted: set[tuple[str, str]]) -> list[str]:
    """Return the different values of a parameter that are separated by commas, with their escapes.

    Args:
        counted: the values of the query so far, by parameter; these are added.

    Raises:
        FhirError: there is none, one has a control character, or the query has more than `MOST_VALUES`.
    """
    if not value or CONTROLS.search(value):
        raise bad(param.name, "a value is expected")
    found: dict[str, None] = {}
    for part in pieces(value, ",") if param.kind in _OF_ALTERNATIVES else (value,):
        found[part] = None
        counted.add((param.name, part))
        if len(counted) > MOST_VALUES:
            raise bad(param.name, f"a query has {MOST_VALUES} values at most: search several times")
    return list(found)


def _condition(resource: Resource, param: Param, values: list[str], site: Site) -> Condition:
    found = _KINDS[param.kind](resource, param, values, site)
    return found if isinstance(found, Condition) else Condition(found)


def pieces(value: str, separator: str) -> Iterator[str]:
    """Yield the parts between separators that no backslash escapes, with their escapes. Takes linear time."""
    start = at = 0
    while at < len(value):
        if value[at] == separator:
            yield value[start:at]
            start = at + 1
        at += 2 if value[at] == "\\" else 1
    yield value[start:]


def literal(value: str) -> str:
    """A value without its escapes: `\\,`, `\\|`, `\\$` and `\\\\` stand for the character itself."""
    return re.sub(r"\\([\\,|$])", r"\1", value)


def _ids(param: Param, values: Iterable[str]) -> list[str]:
    found = list(values)
    if not all(re.fullmatch(ID_PATTERN, value) for value in found):
        raise bad(param.name, "an id is expected")
    return found


def _id(resource: Resource, param: Param, values: list[str], _: Site) -> Clause:
    return BODIES[resource.name].c.id.in_(_ids(param, map(literal, values)))


def _token(resource: Resource, param: Param, values: list[str], _: Site) -> Clause:
    if not set(values) <= set(param.allowed):
        raise bad(param.name, f"one of {', '.join(param.allowed)} is expected")
    return BODIES[resource.name].c[param.column].in_(values)


def _reference(resource: Resource, param: Param, values: list[str], _: Site) -> Clause:
    ids = [literal(value).removeprefix(f"{param.target}/") for value in values]
    if not all(re.fullmatch(ID_PATTERN, found) for found in ids):
        raise bad(param.name, f"{param.target}/<id> is expected")
    return BODIES[resource.name].c[param.column].in_(ids)


def _uri(resource: Resource, param: Param, values: list[str], site: Site) -> Clause:
    ids = [questionnaire_id(literal(value), site) for value in values]
    if None in ids:
        raise bad(param.name, "an address of the form {base_url}/Questionnaire/<id> is expected")
    return BODIES[resource.name].c[param.column].in_(ids)


def _contains(resource: Resource, param: Param, values: list[str], _: Site) -> Clause:
    return contains(BODIES[resource.name].c[param.column], literal(values[0]))


def _starts(resource: Resource, param: Param, values: list[str], _: Site) -> Clause:
    return starts(BODIES[resource.name].c[param.column], literal(values[0]))


def _exact(resource: Resource, param: Param, values: list[str], _: Site) -> Condition:
    side = SIDES[resource.name, param.name]
    return Condition(equal(side.c.code, literal(values[0])), side)


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
    """What is asked of a code: its system where `of_system`, None for one without; the code, empty for any."""

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
        raise bad(param.name, "a date with one of the prefixes eq, ne, gt, lt, ge, le, or none, is expected")
    try:
        start, end = search_period(match[2].replace(" ", "+"))
    except (ValueError, OverflowError):
        raise bad(param.name, "a date, or a datetime with an offset, is expected") from None
    table = BODIES[resource.name]
    if param.name in OF_CHANGES:
        first: Any = table.c.updated_at
        last: Any = table.c.updated_at + timedelta(microseconds=1)
    else:
        first, last = table.c[f"{param.column}_start"], table.c[f"{param.column}_end"]
    inside = and_(first >= start, last <= end)
    matching: dict[str, Clause] = {
        "eq": inside,
        "ne": not_(inside),
        "gt": last > end,
        "lt": first < start,
        "ge": or_(last > end, inside),
        "le": or_(first < start, inside),
    }
    return matching[match[1] or "eq"]


_KINDS: dict[str, Callable[[Resource, Param, list[str], Site], Condition | Clause]] = {
    "id": _id,
    "token": _token,
    "codes": _codes,
    "reference": _reference,
    "date": _date,
    "contains": _contains,
    "starts": _starts,
    "exact": _exact,
    "uri": _uri,
}
_OF_ALTERNATIVES = ("id", "token", "codes", "reference", "uri")
"""Kinds of parameters whose values are separated by commas; in the others, a comma is part of the one value."""

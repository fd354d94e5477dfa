"""Search: turn a query into conditions on the tables, and answer it with a page of stored bodies.

The parameters are declared with the resources; `conditions.py` turns their values into conditions.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, Table, func, literal_column, null, select, text, true

from fhir_service.interactions.conditions import Clause, Condition, alternatives, bad, condition, refuse_too_many
from fhir_service.interactions.far_pages import spans
from fhir_service.interactions.paging import Page, Pairs, put_once, whole_number
from fhir_service.interactions.read import ResourceReader, StoreState, columns_of, found_of
from fhir_service.interface.scopes import unauthenticated
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Param, Resource
from fhir_service.store import page_bytes
from fhir_service.store.bodies import SearchKey, StoredVersion
from fhir_service.store.page_bytes import body_if_it_fits, end_of, that_fit
from fhir_service.store.snapshots import NewestSeen, Snapshot, first_snapshot, name_of, seen_by
from fhir_service.store.tables import BODIES, NOT_REVOKED, TOKEN

SNAPSHOT = "_snapshot"
"""The parameter in links that names the state of the store to show."""
ON_THE_WAY = 500
"""From this offset on, the following pages are read together: a client that came so far reads on."""
_SPREAD = 4
"""A stretch may span so many numbers for each of its rows. A wider one would read too many other rows."""
_Column = ColumnElement[Any]
_HEAD: tuple[_Column, ...] = tuple(map(literal_column, ("head.total", "head.seen", "head.holds")))
_OF_PAGE: _Column = literal_column("page.id")
"""Columns as plain names. SQLAlchemy would make the columns of each subquery under a lock that all threads share."""


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed search: the filters as sent (for the links), the conditions, the order and the page."""

    resource: Resource
    sent: list[tuple[str, str]]
    conditions: list[Condition]
    sort: str | None
    count: int
    offset: int
    stable: bool = False
    """True if several processes write: all pages show the state of the first one, by a snapshot in their links."""
    snapshot: Snapshot | NewestSeen | None = None
    token: str = ""
    """The hash of a token that the statement for the page has to confirm; empty if none."""

    @property
    def name(self) -> str:
        """A short name of the search without its page."""
        return name_of(self.resource.name, self.sent)

    @property
    def question(self) -> SearchKey:
        """The query as a key of the cache."""
        state = [(SNAPSHOT, self.snapshot.text())] if self.snapshot else []
        return SearchKey(self.resource.name, (*self.sent, *state), self.count, self.offset)


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
    """Parse the parameters of a search.

    Args:
        count: the page size when none is asked for.
        most: the largest page size.
        stable: True if links carry a snapshot, so that all pages show one state of the store.
    """
    sent: list[tuple[str, str]] = []
    asked: dict[tuple[str, frozenset[str]], tuple[Param, list[str]]] = {}
    control: dict[str, str] = {}
    values: set[tuple[str, str]] = set()
    known = {"_count", "_offset"} | ({"_sort"} if resource.sorts else set())
    known |= {SNAPSHOT} if stable or any(name == "_sort" for name, _ in pairs) else set()
    for name, value in pairs:
        param = resource.param(name)
        if name in known:
            put_once(control, name, value)
            sent += [(name, value)] if name == "_sort" else []
        elif param is None or (name == "identifier" and not additions):
            if not lenient:
                raise bad(name, "the parameter is not known here")
        else:
            wanted = alternatives(param, value, values)
            asked.setdefault((name, frozenset(wanted)), (param, wanted))
            sent.append((name, value))
    refuse_too_many([param for param, _ in asked.values()])
    conditions = [condition(resource, param, wanted, site) for param, wanted in asked.values()]
    sort = _sort(resource, control.get("_sort"))
    size = min(whole_number(control, "_count", count), most)
    snapshot = _snapshot(control[SNAPSHOT], Snapshot if stable else NewestSeen) if SNAPSHOT in control else None
    return Query(resource, sent, conditions, sort, size, whole_number(control, "_offset", 0), stable, snapshot)


def _snapshot(text: str, kind: type[Snapshot | NewestSeen]) -> Snapshot | NewestSeen:
    found = kind.parse(text)
    if found is None:
        raise bad(SNAPSHOT, "the value from the link of a search page is expected, unchanged")
    return found


def at_hand(reader: ResourceReader, query: Query) -> Page | None:
    """Return the page of a search if it is in memory. Never waits."""
    found = reader.bodies.page(query.question)
    return _filled(query, *found, query.snapshot) if found else None


def run(reader: ResourceReader, query: Query) -> Page:
    """Return the page of a search. Total and resources are of one state of the store."""
    if reader.shared:
        # By one statement: more would be more exchanges with the server, and more than one state.
        return reader.at_once(lambda state: _read_from(state, query))
    return _read_on(reader, query) or _read_alone(reader, query)


def _read_from(state: StoreState, query: Query) -> Page:
    snapshot = query.snapshot
    assert not isinstance(snapshot, NewestSeen)  # noqa: S101 - those are of stores that one process owns
    if snapshot and snapshot.epoch != state.epoch:
        raise bad(SNAPSHOT, "the database has been restored or taken over since this search began: search again")
    is_counted = snapshot is not None and snapshot.search == query.name
    rows = state.connection.execute(_all_of_a_page(query, is_counted)).all()
    total, seen, holds = rows[0][:3]
    if query.token and not holds:
        raise unauthenticated()
    on_it = [row[3:] for row in rows if len(row) > 3 and row[3] is not None]
    found = [found_of(*row) for row in on_it if row[1] is not None]
    is_cut = len(found) < len(on_it)
    if snapshot is None:
        first = first_snapshot(state.epoch, query.name, total, seen) if query.stable else None
        return _filled(query, total, found, first, is_cut)
    if not is_counted:
        snapshot = snapshot._replace(total=total, search=query.name)
    return _filled(query, snapshot.total, found, snapshot, is_cut)


def _all_of_a_page(query: Query, is_counted: bool) -> Select[Any]:
    """Select the resources of a page, one a row, each beside the same three columns.

    These are the number of matches and the snapshot, both null if they are known, and True if the token is valid. An
    empty page has one row without a resource. Ids are selected first: sorting whole rows would move all bodies.
    """
    known = select(null().label("total"), null().label("seen"))
    holding = select(TOKEN.c.hash).where(TOKEN.c.hash == query.token, text(NOT_REVOKED)).exists()
    holds = (holding if query.token else null()).label("holds")
    head = (known if is_counted else seen_by(_count(query))).add_columns(holds).subquery("head")
    if not query.count:
        return select(*_HEAD).select_from(head)
    table, ids = BODIES[query.resource.name], _page(query).subquery("page")
    body, *order = _body_and_order(table, _sorted_by(query, table), _descends(query), page_bytes.MOST)
    columns = [body if name == "body" else table.c[name] for name in columns_of(query.resource)]
    found = head.join(ids, true(), isouter=True).join(table, table.c.id == _OF_PAGE, isouter=True)
    return select(*_HEAD, *columns).select_from(found).order_by(*order)


@cache
def _body_and_order(table: Table, key: _Column | None, descends: bool, most: int) -> tuple[_Column, ...]:
    """Return the column of a body that fits on the page, and the order of the page. Building these is slow: cached."""
    order = _order(table, key, descends)
    return body_if_it_fits(table.c.body, order, most), *order


def _read_alone(reader: ResourceReader, query: Query) -> Page:
    """Read one page.

    Select the ids first, from narrow columns, then the bodies of the page by their ids. Selecting bodies by a range of
    numbers would unpack all bodies in the range.
    """
    snapshot = query.snapshot
    with reader.state() as state:
        total = state.connection.execute(_count(query)).scalar_one()
        ids = [each for _, each in _rows(state, query, total)]
        found = state.first_bodies(query.resource, ids)
        if query.sort and snapshot is None and query.offset + len(found) < total:
            newest = select(func.max(BODIES[query.resource.name].c.seq))
            snapshot = NewestSeen(state.connection.execute(newest).scalar_one())
        if len(found) == len(ids) and snapshot == query.snapshot:
            state.keep_page(query.question, total, ids)
    return _filled(query, total, found, snapshot, is_cut=len(found) < len(ids))


def _read_on(reader: ResourceReader, query: Query) -> Page | None:
    """Read a page by stretches and keep these for the next pages; None if stretches cannot be kept.

    Simultaneous readers wait for one another: the first one reads the stretch for all.
    """
    if query.offset < ON_THE_WAY or query.sort or not reader.bodies.takes_stretches:
        return None
    with reader.one_by_one:
        for each in query.question.stretches:
            if found := at_hand(reader, query):
                return found
            if not reader.bodies.has_stretch(each):
                _read_stretch(reader, replace(query, count=each.count, offset=each.offset))
            if not reader.bodies.has_stretch(each):
                return None  # something was stored meanwhile
        return at_hand(reader, query)


def _read_stretch(reader: ResourceReader, query: Query) -> None:
    """Read a stretch and keep it. It stays empty if its rows are far from each other: these are read by id."""
    with reader.state() as state:
        total = state.connection.execute(_count(query)).scalar_one()
        rows = _rows(state, query, total)
        far = rows and query.conditions and rows[-1][0] - rows[0][0] > _SPREAD * len(rows)
        state.keep_stretch(query.question, query.resource, total, [] if far else rows)


def _rows(state: StoreState, query: Query, total: int) -> list[tuple[int, str]]:
    """Return the numbers and ids of the resources on a page, in order."""
    if not query.count or query.offset >= total:
        return []
    page = _page(query, state.connection)
    return [(seq, found) for seq, found in state.connection.execute(page).all()]


def _filled(
    query: Query,
    total: int,
    found: list[StoredVersion],
    snapshot: Snapshot | NewestSeen | None = None,
    is_cut: bool = False,
) -> Page:
    """Return a page with as many of the resources as fit. is_cut: `found` lacks some already."""
    shown = found[: that_fit([len(one.body) for one in found])]
    end = end_of(query.offset, query.count, len(shown), is_cut or len(shown) < len(found))
    return Page(f"/{query.resource.name}", query.sent, query.count, query.offset, total, end, shown, snapshot)


def _count(query: Query) -> Select[Any]:
    """Return the statement that counts the matches, as `total`."""
    if side := _only_side(query):
        rows = func.count() if side.once else func.count(func.distinct(side.table.c.seq))
        return select(rows.label("total")).select_from(side.table).where(side.clause)
    table = BODIES[query.resource.name]
    return select(func.count().label("total")).select_from(table).where(*_clauses(query, table))


def _page(query: Query, connection: Connection | None = None) -> Select[Any]:
    """Return the statement that selects the numbers and ids of one page, in order.

    connection: used to find the beginning of a page that is far from the first one.
    """
    table = BODIES[query.resource.name]
    if side := _only_side(query):
        seq = side.table.c.seq
        named = select(seq).where(side.clause)
        seqs = (named if side.once else named.distinct()).order_by(seq).limit(query.count).offset(query.offset)
        return select(table.c.seq, table.c.id).where(table.c.seq.in_(seqs)).order_by(table.c.seq)
    rows, offset = select(table.c.seq, table.c.id).where(*_clauses(query, table)), query.offset
    key, descends = _sorted_by(query, table), _descends(query)
    if connection:
        found = spans(connection, rows, table.c.seq if key is None else key, descends, offset, query.count)
        rows, offset = (rows.where(found.clause), offset - found.before) if found else (rows, offset)
    return rows.order_by(*_order(table, key, descends)).limit(query.count).offset(offset)


def _clauses(query: Query, table: Table) -> list[Clause]:
    """Return the conditions on the resource's table: those of the search, and that of its snapshot."""
    found = [one.on(table) for one in query.conditions]
    return [*found, query.snapshot.has_seen(table)] if query.snapshot else found


class _Side(NamedTuple):
    """A side table and a condition on it. For `once` see `Condition`."""

    table: Table
    clause: Clause
    once: bool


def _only_side(query: Query) -> _Side | None:
    """Return the side table of a query that needs no other table; None for other queries."""
    if len(query.conditions) == 1 and not query.sort and not query.snapshot:
        (only,) = query.conditions
        return _Side(only.side, only.clause, only.once) if only.side is not None else None
    return None


def _sort(resource: Resource, text: str | None) -> str | None:
    if text is None:
        return None
    if text.removeprefix("-") not in resource.sorts:
        raise bad("_sort", f"one of {', '.join(sorted(resource.sorts))} is expected, with - in front for descending")
    return text


def _order(table: Table, key: _Column | None, descends: bool) -> list[_Column]:
    """Return the order: by the sort key with missing values last, then by creation."""
    if key is None:
        return [table.c.seq]
    ordered = key.desc() if descends else key.asc()
    return [ordered.nulls_last(), table.c.seq]


def _sorted_by(query: Query, table: Table) -> _Column | None:
    """Return the column of the sort key; None for the order of creation."""
    if not query.sort:
        return None
    name = query.resource.sorts[query.sort.removeprefix("-")]
    return table.c[name] if name in table.c else table.c[f"{name}_start"]


def _descends(query: Query) -> bool:
    return bool(query.sort) and str(query.sort).startswith("-")

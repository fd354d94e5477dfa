"""The changes of a batch: rows that it adds and rows that it changes, collected until they are written together."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, Table

from fhir_service.interface.billing import Account, Charge
from fhir_service.interface.fast.forms import Made
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.vocabulary import Resource
from fhir_service.store.dialect import Dialect, Row
from fhir_service.store.rows import Rows, Sums
from fhir_service.store.tables import (
    ACCOUNT,
    ALLOCATION,
    BODIES,
    CHARGE,
    GUARD,
    HISTORY,
    SIDES,
    STORE,
    columns_of,
    guard_of,
    index_row,
    side_rows,
    side_tables,
)
from fhir_service.store.view import Code, CurrentVersion

if TYPE_CHECKING:
    from fhir_service.store.postgresql import PostgreSql


class Witness(NamedTuple):
    """A version of a resource that only one batch can have stored. If it is stored, the whole batch is."""

    type: str
    id: str
    version: int
    updated_at: datetime
    client: str


class _Replaced(NamedTuple):
    """A changed resource: its number, the rest of its row, its content, and the version that the batch has read."""

    seq: int
    row: Row
    stored: dict[str, Any]
    read: int


class Changes:
    """The rows that a batch adds and changes. `flush` writes each table once."""

    def __init__(self, next_seq: Callable[[], int]) -> None:
        self.next_seq = next_seq
        self._added: dict[Table, list[tuple[Any, ...]]] = defaultdict(list)
        self._new: dict[str, tuple[list[Row], list[list[Row]]]] = {}
        self._accounts: dict[str, Account] = {}
        self._charges: dict[str, Charge] = {}
        self._replaced: dict[str, dict[str, _Replaced]] = defaultdict(dict)
        self._said: dict[str, str] = {}
        self._claimed: dict[Table, set[Code]] = defaultdict(set)
        self._followed: list[Witness] = []

    def __bool__(self) -> bool:
        return bool(self._added or self._accounts or self._replaced or self._said)

    def witnesses(self) -> Iterator[Witness]:
        """Yield all new versions of resources."""
        for name, (rows, _) in self._new.items():
            for row in rows:
                yield Witness(name, *row[1:5])
        yield from self._followed

    def say(self, name: str, value: str) -> None:
        """Set the value of a name that the table `store` has."""
        self._said[name] = value

    def add(self, table: Table, row: dict[str, Any]) -> None:
        """Add a row with all columns of its table."""
        self._added[table].append(tuple(map(row.__getitem__, columns_of(table))))

    def add_resource(self, resource: Resource, stored: dict[str, Any], body: str, client: str, now: datetime) -> None:
        """Add a new resource: its row, and the rows of its side tables."""
        number = self.next_seq()
        row = (number, stored["id"], 1, now, client, *index_row(resource, stored), body)
        self.add_made(resource.name, (row, side_rows(resource, number, stored)))

    def add_made(self, name: str, made: Made) -> None:
        """Add a new resource by the rows that one of `tables.MAKERS` made."""
        row, sides = made
        rows, kept = self._new.get(name) or self._rows_of(name)
        rows.append(row)
        for place, side in zip(kept, sides, strict=True):
            place.extend(side)

    def _rows_of(self, name: str) -> tuple[list[Row], list[list[Row]]]:
        """Return the lists of added rows of a type and of each of its side tables. Some may stay empty."""
        found = self._new[name] = self._added[BODIES[name]], [self._added[table] for table in side_tables(name)]
        return found

    def claim(self, name: str, identifier: Code) -> None:
        """Note that a create was conditional on an identifier that did not exist."""
        self._claimed[SIDES[name, "identifier"]].add(identifier)

    def replace_resource(self, name: str, old: CurrentVersion, stored: dict[str, Any], new: CurrentVersion) -> None:
        """Add a new version of a resource, and move the old one to the history."""
        resource_id, before = stored["id"], self._replaced[name].get(stored["id"])
        self._added[HISTORY].append((f"{name}/{resource_id}", old.version, old.updated_at, old.client, old.body))
        head = (resource_id, new.version, new.updated_at, new.client)
        row = (*head, *index_row(RESOURCES[name], stored), new.body)
        self._replaced[name][resource_id] = _Replaced(new.seq, row, stored, before.read if before else old.version)
        self._followed.append(Witness(name, *head))

    def replaced(self) -> list[tuple[str, str]]:
        """Return type and id of the resources that have a new version."""
        return [(name, resource_id) for name, found in self._replaced.items() for resource_id in found]

    def types(self) -> set[str]:
        """Return the types whose searches may have other answers after the commit."""
        found = {name for name, table in BODIES.items() if table in self._added} | self._replaced.keys()
        return found | {name for name in RESOURCES if "Questionnaire" in found and RESOURCES[name].looks_through}

    def pay(self, payment: str, patient: str, account: Account, parts: Iterable[tuple[Charge, int]]) -> None:
        """Note a payment: the account that it changed, and the charges that it paid, each with its cents."""
        self._accounts[patient] = account
        for charge, cents in parts:
            self._charges[charge.claim] = charge
            self._added[ALLOCATION].append((payment, charge.claim, cents))

    def flush(self, connection: Connection, dialect: Dialect, sums: bool = True) -> Sums:
        """Write into the tables.

        sums: False leaves out the new sums of accounts and charges that exist, and returns them.
        """
        change = dialect.change
        with dialect.at_once(connection):
            self._replace(
                connection, dialect, lambda table, rows, names, _: dialect.change(connection, table, rows, names)
            )
            if self._said:
                change(connection, STORE, list(self._said.items()), ("name", "value"))
            rows = self.rows()
            if sums:
                rows.write(connection, dialect)
                return {}
            rows.add(connection, dialect)
            return rows.changed

    @property
    def plain(self) -> bool:
        """True if `rows` returns all changes: there are no new versions, and `say` was not called."""
        return not self._replaced and not self._said

    def rows(self) -> Rows:
        """Return the added rows, and the sums that payments changed. Call it once."""
        rows = Rows()
        rows.added.update({table.name: added for table, added in self._added.items() if added})
        for patient, account in self._accounts.items():
            if account.fresh:
                rows.added[ACCOUNT.name].append((patient, 0, account.paid))
                account.fresh = False
            else:
                rows.changed[ACCOUNT.name][patient] = account.paid
        for charge in self._charges.values():
            rows.changed[CHARGE.name][charge.claim] = charge.paid
        return rows

    def _replace(
        self,
        connection: Connection,
        dialect: Dialect,
        change: Callable[[Table, Sequence[Row], Sequence[str], Sequence[int]], None],
    ) -> None:
        """Write new versions, and collect the rows of side tables. change: also gets the versions that were read."""
        for name, by_id in sorted(self._replaced.items()):
            found = [by_id[each] for each in sorted(by_id)]
            change(BODIES[name], [one.row for one in found], columns_of(BODIES[name])[1:], [one.read for one in found])
            for table in side_tables(name):
                dialect.remove(connection, table, [one.seq for one in found])
            for one in found:
                for table, rows in zip(side_tables(name), side_rows(RESOURCES[name], one.seq, one.stored), strict=True):
                    self._added[table] += rows

    def flush_beside_others(self, connection: Connection, dialect: "PostgreSql") -> None:
        """Write while other processes may write. Fails if a changed row is no longer as it was read.

        Every batch locks tables, and rows within them, in the same order: batches cannot wait for each other in a ring.
        """
        self._pay_beside_others(connection, dialect)
        self._replace(connection, dialect, partial(dialect.change_as_read, connection))
        added = sorted(self._added.items(), key=lambda item: item[0].name)
        # A table may have no rows: a payment that reaches no charge has no allocation.
        dialect.append(
            connection, [(table, *_guarded(table, rows, self._claimed[table])) for table, rows in added if rows]
        )
        if self._charges:
            dialect.change(connection, CHARGE, [(c.claim, c.paid) for c in self._charges.values()], ("claim", "paid"))
        if self._said:
            dialect.change(connection, STORE, list(self._said.items()), ("name", "value"))

    def _pay_beside_others(self, connection: Connection, dialect: "PostgreSql") -> None:
        accounts = sorted(self._accounts.items())
        known = [(patient, account) for patient, account in accounts if not account.fresh]
        if known:
            paid = [(patient, account.paid) for patient, account in known]
            dialect.change_as_read(connection, ACCOUNT, paid, ("patient", "paid"), [one.read for _, one in known])
        if fresh := [(patient, 0, account.paid) for patient, account in accounts if account.fresh]:
            dialect.append(connection, [(ACCOUNT, fresh, columns_of(ACCOUNT))])


def _guarded(table: Table, rows: list[Row], claimed: set[Code]) -> tuple[list[Row], tuple[str, ...]]:
    """Return rows and columns to add. The first row with an identifier that a create claimed gets a guard."""
    if not claimed:
        return rows, columns_of(table)
    left, guarded = set(claimed), []
    for row in rows:
        code = row[1:3]
        guarded.append((*row, guard_of(code) if code in left else None))
        left.discard(code)
    # Sort by guard: batches that claim the same identifiers then cannot wait for each other in a ring.
    return sorted(guarded, key=lambda row: (row[-1] is None, row[-1], row[0])), (*columns_of(table), GUARD)

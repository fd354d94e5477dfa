"""Stable pages of searches while several processes write: links carry a snapshot of the first page.

A resource gets its number before its transaction ends. Between two pages, a row may therefore appear before one that
was shown already. Later pages show only rows whose transaction the first page saw. The snapshot also holds the number
of matches and a name of the search: later pages do not count again.

Each database cluster numbers its own transactions. Rows that a dump brought from elsewhere have numbers up to the
store's `floor`, and belong to every page. Links from before a restore are refused.
"""

import re
from hashlib import blake2b
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Select, Table, Text, cast, func, literal, literal_column, or_, select
from sqlalchemy.types import UserDefinedType

from fhir_service.store.tables import STORE

MOST_UNDER_WAY = 1000
"""The most unfinished transactions in a snapshot. With more of them, the links of a page have no snapshot."""

_FORM = re.compile(
    r"([0-9a-f]{8})\.([0-9a-f]{8})\.(\d{1,10})\.(\d{1,19})-(\d{1,19})((?:-\d{1,19}){0,1000})\Z", re.ASCII
)

Sent = list[tuple[str, str]]


class Snapshot(NamedTuple):
    """The state that a first page saw: epoch of the database, name of the search, number of matches, transactions."""

    epoch: str
    search: str
    total: int
    seen: str
    """A `pg_snapshot`: the first unfinished transaction, the first not begun, and the unfinished ones in between."""

    def text(self) -> str:
        """Return the snapshot as text for links."""
        first, end, between = self.seen.split(":")
        return f"{self.epoch}.{self.search}.{self.total}." + "-".join([first, end, *filter(None, between.split(","))])

    @classmethod
    def parse(cls, text: str) -> "Snapshot | None":
        """Return the snapshot of a link; None for a text that is not one."""
        found = _FORM.match(text)
        if not found:
            return None
        first, end = int(found[4]), int(found[5])
        between = [int(number) for number in found[6].split("-")[1:]]
        ordered = all(before < after for before, after in zip([first - 1, *between], [*between, end], strict=True))
        if not (0 < first <= end < 2**63 and ordered):
            return None
        seen = f"{first}:{end}:{','.join(map(str, between))}"
        return cls(found[1], found[2], int(found[3]), seen)

    def has_seen(self, table: Table) -> ColumnElement[bool]:
        """Return the condition of the rows in a resource's table that the first page saw."""
        floor = select(cast(STORE.c.value, BigInteger())).where(STORE.c.name == "floor").scalar_subquery()
        # PostgreSQL evaluates the subquery once; the cast alone would be evaluated for each row.
        seen = select(cast(literal(self.seen, Text()), _PgSnapshot())).scalar_subquery()
        xid: ColumnElement[int] = literal_column(f"{table.name}.xid")
        return or_(table.c.seq <= floor, func.pg_visible_in_snapshot(xid, seen))


class NewestSeen(NamedTuple):
    """The number of the newest resource that the first page of a sorted search saw, where one process owns the store.

    Without it, a resource that comes between two pages may go before those shown, which are then shown twice. In the
    order of creation it goes behind them.
    """

    seq: int

    def text(self) -> str:
        """Return the number as text for links."""
        return str(self.seq)

    @classmethod
    def parse(cls, text: str) -> "NewestSeen | None":
        """Return the number in a link; None for a text that is not one."""
        return cls(int(text)) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else None

    def has_seen(self, table: Table) -> ColumnElement[bool]:
        """Return the condition of the rows in a resource's table that the first page saw."""
        seen: ColumnElement[bool] = table.c.seq <= self.seq
        return seen


class _PgSnapshot(UserDefinedType[str]):
    """PostgreSQL's type `pg_snapshot`."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "pg_snapshot"


def seen_by(count: Select[Any]) -> Select[Any]:
    """Return a counting statement that also selects its own `pg_snapshot`."""
    return count.add_columns(literal_column("pg_current_snapshot()::text").label("seen"))


def first_snapshot(epoch: str, search: str, total: int, seen: str) -> Snapshot | None:
    """Return the snapshot of a first page; None if too many transactions were unfinished."""
    return Snapshot(epoch, search, total, seen) if seen.count(",") < MOST_UNDER_WAY else None


def name_of(resource: str, sent: Sent) -> str:
    """Return a short hash of a search: of its type and its filters as sent."""
    return blake2b(repr((resource, sent)).encode(), digest_size=4).hexdigest()

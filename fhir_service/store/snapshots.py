"""Stable pages where several processes write at once: links carry which transactions the first page had seen.

Numbers of resources are taken before their transaction ends, so a row may come to stand before one that was shown
already. Later pages therefore show the rows whose transaction the first page saw, and no others. A snapshot also
carries how many resources matched, and for which search: later pages need not count again.

Transactions are counted by a database server's files. Rows that came there from elsewhere, by a restored dump, stand
below the store's `floor`, and belong to every page. A link of before a restore is refused.
"""

import re
from hashlib import blake2b
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Select, Table, Text, cast, func, literal, literal_column, or_, select
from sqlalchemy.types import UserDefinedType

from fhir_service.store.tables import STORE

MOST_UNDER_WAY = 1000
"""Transactions under way that a snapshot may name. A page that more were beside has links without one."""

_FORM = re.compile(
    r"([0-9a-f]{8})\.([0-9a-f]{8})\.(\d{1,10})\.(\d{1,19})-(\d{1,19})((?:-\d{1,19}){0,1000})\Z", re.ASCII
)

Sent = list[tuple[str, str]]


class Snapshot(NamedTuple):
    """The view of a first page: in which epoch of the database, for which search, how many, and as of when."""

    epoch: str
    search: str
    total: int
    seen: str
    """A `pg_snapshot`: the first transaction under way, the first not begun, and those under way in between."""

    def text(self) -> str:
        """Return the snapshot as links carry it."""
        first, end, between = self.seen.split(":")
        return f"{self.epoch}.{self.search}.{self.total}." + "-".join([first, end, *filter(None, between.split(","))])

    @classmethod
    def parse(cls, text: str) -> "Snapshot | None":
        """Return the snapshot of a link; None for what is none."""
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
        """True for the rows of a resource's table that the first page had seen."""
        floor = select(cast(STORE.c.value, BigInteger())).where(STORE.c.name == "floor").scalar_subquery()
        # In a query of its own, it is read once and not for each row.
        seen = select(cast(literal(self.seen, Text()), _PgSnapshot())).scalar_subquery()
        xid: ColumnElement[int] = literal_column(f"{table.name}.xid")
        return or_(table.c.seq <= floor, func.pg_visible_in_snapshot(xid, seen))


class _PgSnapshot(UserDefinedType[str]):
    """PostgreSQL's type of what a statement has seen."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "pg_snapshot"


def seen_by(count: Select[Any]) -> Select[Any]:
    """Return a statement that counts, and tells which transactions it has seen."""
    return count.add_columns(literal_column("pg_current_snapshot()::text").label("seen"))


def taken(epoch: str, search: str, total: int, seen: str) -> Snapshot | None:
    """Return the snapshot of a first page; None where too many transactions were under way."""
    return Snapshot(epoch, search, total, seen) if seen.count(",") < MOST_UNDER_WAY else None


def name_of(resource: str, sent: Sent) -> str:
    """Return a short name of a search, by its type and its filters as sent."""
    return blake2b(repr((resource, sent)).encode(), digest_size=4).hexdigest()

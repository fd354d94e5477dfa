"""The resources of the target that carry the keys of a batch's records as identifiers."""

from collections.abc import Sequence
from typing import NamedTuple

import duckdb
import orjson

from pipelines.client.comparison import fingerprints, taken_back
from pipelines.ledger.rows import KnownRecord
from pipelines.loading.identity import Identity
from pipelines.loading.row import Row

NEWEST = """
CREATE OR REPLACE TABLE newest AS
SELECT *, coalesce(spelling, record_key) AS today FROM there WHERE system = $1
QUALIFY row_number() OVER (PARTITION BY record_key ORDER BY record_generation DESC) = 1"""
"""Select, by key, the resource of the newest generation that carries it as identifier."""
CARRIES = """
SELECT today, id, record_generation, content, status FROM newest WHERE today IN (SELECT unnest($1))
QUALIFY row_number() OVER (PARTITION BY today ORDER BY spelling IS NOT NULL) = 1"""
"""Select, by key, the resource that carries it as it is written today, else in another spelling."""
STANDS = "SELECT id FROM there WHERE id IN (SELECT unnest($1)) AND status NOT IN ('entered-in-error', 'cancelled')"


class There(NamedTuple):
    """A resource that carries the identifier of a row. content: its fingerprint."""

    resource_id: str
    generation: int
    content: str | None
    status: str | None


class Carried:
    """The resources that carry the keys of some rows, out of table `there`.

    newest: of several that carry a key, the one of the newest generation counts.
    """

    def __init__(self, db: duckdb.DuckDBPyConnection, source: str, resource_type: str) -> None:
        self._db, self._resource_type = db, resource_type
        self._by_key: dict[str, There] = {}
        self._stands: set[str] = set()
        db.execute(NEWEST, [Identity(source, resource_type).system])

    def look_up(self, rows: Sequence[Row], known: Sequence[KnownRecord]) -> None:
        """Look up what carries the keys of rows, and which resources of known records are still in force."""
        carried = self._db.execute(CARRIES, [[row.key for row in rows]]).fetchall()
        self._by_key = {key: There(*rest) for key, *rest in carried}
        made = [record.resource_id for record in known if record.resource_id]
        self._stands = {name for (name,) in self._db.execute(STANDS, [made]).fetchall()}

    def stands(self, resource_id: str | None) -> bool:
        """True if the target has a resource of these records, and it was not taken back."""
        return resource_id in self._stands

    def of(self, row: Row, record: KnownRecord | None) -> There | None:
        """The resource that carries the row's key and has its content."""
        there = self._by_key.get(row.key)
        if there is None or there.content != fingerprints(self._resource_type, orjson.loads(row.body))[0]:
            return None
        return there if record is None or there.generation >= record.generation else None

    def is_of_another(self, row: Row) -> bool:
        """True if a resource carries the row's key and has other content."""
        return row.key in self._by_key and self.of(row, None) is None

    def is_taken_back(self, row: Row, there: There) -> bool:
        """True if a resource was taken back, and the row does not say so itself."""
        return taken_back(self._resource_type, orjson.loads(row.body), {"status": there.status})

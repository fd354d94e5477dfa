"""Read the ledger's tables as Arrow, all as of one moment. Publishing reads them."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlalchemy import Connection, Dialect, Text, select

from pipelines.home import arrow
from pipelines.ledger import tables as t

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ROWS_A_CHUNK = 50_000
_known: dict[tuple[str, str, tuple[str, ...]], str] = {}
"""Queries by dialect, table and columns: compiling one takes longer than reading a small table."""


class Snapshot:
    """Whole tables as of one moment, as Arrow with columns of text (also times) and int64."""

    def __init__(self, connection: Connection):
        self._connection = connection

    def reader(self, name: str, columns: Sequence[str] = ()) -> pa.RecordBatchReader:
        """Return a table, or some of its columns, a chunk at a time."""
        of, columns = t.readable[name].c, tuple(columns or t.readable[name].c.keys())
        schema = pa.schema([(each, pa.string() if isinstance(of[each].type, Text) else pa.int64()) for each in columns])
        query = _query(self._connection.dialect, name, columns)
        return pa.RecordBatchReader.from_batches(schema, self._chunks(schema, query))

    def stage(
        self,
        db: "DuckDBPyConnection",
        table: str,
        name: str,
        columns: Sequence[str] = (),
        which: str = "",
        given: Mapping[str, str] | None = None,
    ) -> None:
        """Copy a table of the ledger, or some of its columns, to a table of a DuckDB.

        which: the clauses after `FROM` that select rows. given: the parameters of these clauses.
        """
        db.register("given", self.reader(name, columns))
        db.execute(f"CREATE OR REPLACE TABLE {table} AS FROM given {which}", given or {})
        db.unregister("given")

    def _chunks(self, schema: pa.Schema, query: str) -> Iterator[pa.RecordBatch]:
        on_the_server = {"name": f"reader_{uuid.uuid4().hex}"} if self._connection.dialect.name == "postgresql" else {}
        cursor = self._connection.connection.cursor(**on_the_server)
        cursor.execute(query)
        while rows := cursor.fetchmany(ROWS_A_CHUNK):
            yield arrow.batch_of_rows(rows, schema)
        # Not in a `finally`: a reader that was given up may be collected after its connection has ended.
        cursor.close()


def _query(dialect: Dialect, name: str, columns: tuple[str, ...]) -> str:
    """Return the query for columns of a table, compiled once."""
    known = (dialect.name, name, columns)
    if known not in _known:
        _known[known] = str(select(*(t.readable[name].c[column] for column in columns)).compile(dialect=dialect))
    return _known[known]

"""The ledger's tables as Arrow, all as of one moment: what publishing reads."""

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Text, select

from pipelines.home import arrow
from pipelines.ledger import tables as t

ROWS_A_CHUNK = 50_000


class Snapshot:
    """Reads whole tables as of one moment, as Arrow: text (times too) and int64 columns."""

    def __init__(self, connection: Connection):
        self._connection = connection

    def reader(self, name: str, columns: Sequence[str] = ()) -> pa.RecordBatchReader:
        """A table, or some columns of it, a chunk at a time."""
        table = t.readable[name]
        chosen = [table.c[column] for column in (columns or table.c.keys())]
        schema = pa.schema([(column.name, _arrow_type(column)) for column in chosen])
        return pa.RecordBatchReader.from_batches(schema, self._chunks(schema, select(*chosen)))

    def _chunks(self, schema: pa.Schema, query: Any) -> Iterator[pa.RecordBatch]:
        on_the_server = {"name": f"reader_{uuid.uuid4().hex}"} if self._connection.dialect.name == "postgresql" else {}
        cursor = self._connection.connection.cursor(**on_the_server)
        cursor.execute(str(query.compile(self._connection.engine)))
        while rows := cursor.fetchmany(ROWS_A_CHUNK):
            yield arrow.batch_of_rows(rows, schema)
        # Not in a `finally`: a reader that was given up may be collected after its connection has ended.
        cursor.close()


def _arrow_type(column: ColumnElement[Any]) -> pa.DataType:
    return pa.string() if isinstance(column.type, Text) else pa.int64()

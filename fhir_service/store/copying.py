"""A store in a database server as one DuckDB file: the same tables, as of one moment."""

from pathlib import Path

from sqlalchemy import select

from fhir_service.store.dialects import DuckDb, dialect_of
from fhir_service.store.store import Store
from fhir_service.store.tables import metadata

ROWS = 5_000


def copy_out(store: Store, target: Path, memory_limit: str = "1GB") -> None:
    """Write the store's tables into a new DuckDB file: a store of the same id. Others go on reading and writing.

    Raises OSError and duckdb.Error; what is there then is no store.
    """
    dialect = dialect_of(str(target), memory_limit)
    engine = dialect.open(create=True)
    try:
        with store.read() as reading, engine.begin() as writing:
            dialect.prepare(writing)
            metadata.create_all(writing)
            dialect.complete(writing)
            for table in metadata.sorted_tables:
                columns = [column.name for column in table.columns]
                found = reading.execution_options(yield_per=ROWS).execute(select(table))
                for rows in found.partitions():
                    dialect.append(writing, [(table, [tuple(row) for row in rows], columns)])
    finally:
        engine.dispose()
    DuckDb.fold(target)

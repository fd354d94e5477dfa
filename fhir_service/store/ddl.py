"""Write the store's DDL as text. `sql/service/schema.sql` is this text; a test compares the two."""

from duckdb_engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from fhir_service.store.tables import SCHEMA_VERSION, metadata

_HEAD = f"""\
-- The service's store, schema version {SCHEMA_VERSION}, as created on DuckDB.
-- Written by `python -m fhir_service.store.ddl`; the tables are declared in fhir_service/store/tables.py.
-- The linter does not know how a column says that it is compressed:
-- noqa: disable=PRS
"""


def ddl() -> str:
    """Return the statements that make an empty store, sorted by table."""
    dialect = Dialect()
    parts = []
    for table in sorted(metadata.tables.values(), key=lambda table: table.name):
        statements: list[CreateTable | CreateIndex] = [CreateTable(table), *map(CreateIndex, table.indexes)]
        parts += [_tidy(str(statement.compile(dialect=dialect))) for statement in statements]
    return "\n".join([_HEAD, *parts])


def _tidy(statement: str) -> str:
    lines = [line.rstrip().replace("\t", "    ") for line in statement.strip().splitlines() if line.strip()]
    return "\n".join(lines) + ";\n"


if __name__ == "__main__":
    print(ddl(), end="")

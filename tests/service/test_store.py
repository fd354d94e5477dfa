"""The store's tables and the schema file that shows them."""

from pathlib import Path

from fhir_service.store.ddl import ddl

SCHEMA = Path(__file__).parents[2] / "sql" / "service" / "schema.sql"


def test_the_schema_file_shows_the_tables_as_they_are_created() -> None:
    assert SCHEMA.read_text() == ddl()

"""Ledgers in the schemas of earlier versions."""

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect, select

from pipelines.ledger import tables as t
from pipelines.ledger.ledger import Ledger

TERMS = ("target", "source", "resource_type", "batch_id", "feed_hash")
KEPT = {"record": "entry", "repeat": "appearance"}
SHOWN = {"record": t.record, "repeat": t.repeat, "former": t.former}
KEYS = {
    "record": "target, source, resource_type, key, generation",
    "former": "target, source, resource_type, key, version",
    "repeat": "target, batch_id, line",
    "batch": "target, batch_id",
}
INDEXES = {"record_sending": "target", "record_by_batch": "target, batch_id, line"}


def make_earlier(ledger: Ledger, version: int) -> None:
    """Give a ledger the tables of version 1 to 8, with the rows that it has; before version 8 it has no journal."""
    with ledger.engine.begin() as connection:
        rows = {name: [dict(row._mapping) for row in connection.execute(select(SHOWN[name]))] for name in SHOWN}
        batches = [dict(row._mapping) for row in connection.execute(select(t.batch))]
        for table in (t.records, t.versions, t.stream, t.feed_version, t.batch):
            table.drop(connection)
        _make(connection, "batch", [column.name for column in t.batch.columns if column.name != "batch_no"], batches)
        for name, shown in SHOWN.items():
            columns = [c for c in shown.c.keys() if c != "first_sent_at" or version > 4]  # noqa: SIM118 - not a dict
            _make(connection, name, columns, rows[name])
        if version > 1:
            _make_terms(connection)
        else:
            for index, indexed in INDEXES.items():
                connection.exec_driver_sql(f"CREATE INDEX {index} ON record ({indexed})")
        connection.execute(t.schema_version.update().values(version=version))
        if version < 8:
            if connection.dialect.name == "sqlite":
                Path(str(ledger.engine.url.database)).with_name("journal.ndjson").unlink(missing_ok=True)
            t.position.drop(connection)
            t.journal.drop(connection)
        if version < 3:
            connection.exec_driver_sql("ALTER TABLE reject_reason DROP COLUMN line")
    ledger.engine.dispose()


def _make(connection: Connection, name: str, columns: list[str], rows: list[dict[str, Any]]) -> None:
    kinds = {**{c.name: str(c.type) for table in (t.records, t.versions, t.batch) for c in table.columns}}
    shown = ", ".join(f"{column} {kinds.get(column, 'TEXT')}" for column in columns)
    connection.exec_driver_sql(f"CREATE TABLE {name} ({shown}, PRIMARY KEY ({KEYS[name]}))")
    mark = "?" if connection.dialect.paramstyle == "qmark" else "%s"
    insert = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join([mark] * len(columns))})"
    for row in rows:
        connection.exec_driver_sql(insert, tuple(row[column] for column in columns))


def _make_terms(connection: Connection) -> None:
    """Move the texts of `record` and `repeat` to `term`, and make views of these names."""
    connection.exec_driver_sql("CREATE TABLE term (term_id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)")
    for view, kept in KEPT.items():
        columns = [str(column["name"]) for column in inspect(connection).get_columns(view)]
        terms = [column for column in columns if column in TERMS]
        for term in terms:
            connection.exec_driver_sql(
                f"INSERT INTO term SELECT row_number() OVER () + (SELECT count(*) FROM term), text FROM"
                f" (SELECT DISTINCT {term} AS text FROM {view}) AS found WHERE text NOT IN (SELECT text FROM term)"
            )
        numbers = (f"(SELECT term_id FROM term WHERE text = {c}) AS {c}" if c in terms else c for c in columns)
        connection.exec_driver_sql(f"CREATE TABLE {kept} AS SELECT {', '.join(numbers)} FROM {view}")
        connection.exec_driver_sql(f"DROP TABLE {view}")
        shown = (f"of_{c}.text AS {c}" if c in terms else f"kept.{c}" for c in columns)
        joins = (f"JOIN term AS of_{c} ON of_{c}.term_id = kept.{c}" for c in terms)
        connection.exec_driver_sql(
            f"CREATE VIEW {view} AS SELECT {', '.join(shown)} FROM {kept} AS kept {' '.join(joins)}"
        )

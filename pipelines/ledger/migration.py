"""Bring the ledger's tables of any earlier version to today's form, within one transaction.

Versions 1 to 8 stored target, source, type, batch and feed of each record as texts. Version 1 had them in every row.
Later versions had numbers of a table `term`, with `record` and `repeat` as views of `entry` and `appearance`.
"""

from sqlalchemy import Connection, Table, inspect
from sqlalchemy.schema import CreateColumn

from pipelines.home.counted import counted
from pipelines.ledger import tables as t
from pipelines.ledger.columns import metadata

TERMS = ("target", "source", "resource_type", "batch_id", "feed_hash")
VIEWS = {"record": "entry", "repeat": "appearance"}
MOVED = ("batch", "former", *VIEWS)
"""Tables whose rows move to tables of another form."""
JOINS = """
JOIN stream ON stream.target = old.target AND stream.source = old.source AND stream.resource_type = old.resource_type
JOIN batch ON batch.target = old.target AND batch.batch_id = old.batch_id"""
NUMBERS = {"stream_id": "stream.stream_id", "batch_no": "batch.batch_no"}
OF_FEED = "\nJOIN feed_version ON feed_version.feed_hash = old.feed_hash"
SHARED = """
INSERT INTO stream (target, source, resource_type)
SELECT target, source, resource_type FROM old_record UNION SELECT target, source, resource_type FROM old_repeat
UNION SELECT target, source, resource_type FROM old_former ORDER BY 1, 2, 3;
INSERT INTO feed_version (feed_hash)
SELECT feed_hash FROM old_record UNION SELECT feed_hash FROM old_former ORDER BY 1;
INSERT INTO batch (target, batch_id, source, resource_type, state, received_at)
SELECT target, batch_id, min(source), min(resource_type), 'running', min(at)
FROM (
  SELECT target, batch_id, source, resource_type, first_attempt_at AS at FROM old_record
  UNION ALL SELECT target, batch_id, source, resource_type, finished_at AS at FROM old_repeat
  UNION ALL SELECT target, batch_id, source, resource_type, first_attempt_at AS at FROM old_former) AS old
WHERE NOT EXISTS (SELECT 1 FROM batch WHERE batch.target = old.target AND batch.batch_id = old.batch_id)
GROUP BY target, batch_id"""
FIRST_ATTEMPTS = """
UPDATE version SET first_sent_at = (
  SELECT min(earlier.first_attempt_at) FROM version AS earlier
  WHERE earlier.stream_id = version.stream_id AND earlier.key = version.key AND earlier.fate IS NOT NULL)
WHERE fate IS NOT NULL AND first_sent_at IS NULL;
UPDATE record SET first_sent_at = COALESCE(
  (SELECT min(version.first_sent_at) FROM version
    WHERE version.stream_id = record.stream_id AND version.key = record.key AND version.fate IS NOT NULL),
  CASE WHEN generation > 1 THEN (SELECT received_at FROM batch WHERE batch.batch_no = record.batch_no) END,
  first_attempt_at)
WHERE first_sent_at IS NULL"""
"""Sets the first attempt of each key, which versions before 5 did not have. If an earlier generation left no trace,
its attempt is not older than the batch.
"""


def bring_to_today(connection: Connection) -> None:
    """Make today's tables, with the rows of the existing ones."""
    there = set(inspect(connection).get_table_names())
    if "stream" not in there:
        _set_aside(connection, there)
    metadata.create_all(connection)
    for table in metadata.sorted_tables:
        if table.name in there:
            _add_columns(connection, table)
    if "stream" not in there:
        _move_rows(connection)
        _drop_old(connection, there)


def _set_aside(connection: Connection, there: set[str]) -> None:
    """Rename the tables that held the rows to `old_...`."""
    for name in MOVED:
        if name in VIEWS and "entry" in there:
            connection.exec_driver_sql(f"DROP VIEW {name}")
            connection.exec_driver_sql(f"CREATE VIEW old_{name} AS {_with_texts(connection, VIEWS[name])}")
        else:
            for index in inspect(connection).get_indexes(name):  # today's tables have some of these names
                connection.exec_driver_sql(f"DROP INDEX {index['name']}")
            connection.exec_driver_sql(f"ALTER TABLE {name} RENAME TO old_{name}")
            there.discard(name)


def _with_texts(connection: Connection, kept: str) -> str:
    columns = _columns(connection, kept)
    terms = [name for name in columns if name in TERMS]
    shown = (f"of_{name}.text AS {name}" if name in terms else f"kept.{name}" for name in columns)
    joins = (f"JOIN term AS of_{name} ON of_{name}.term_id = kept.{name}" for name in terms)
    return f"SELECT {', '.join(shown)} FROM {kept} AS kept {' '.join(joins)}"


def _move_rows(connection: Connection) -> None:
    _move(connection, "batch", t.batch, {}, "", "received_at, batch_id")
    for statement in SHARED.split(";"):
        connection.exec_driver_sql(statement)
    of_feed = NUMBERS | {"feed_no": "feed_version.feed_no"}
    _move(connection, "record", t.records, of_feed, JOINS + OF_FEED, "batch_no, line")
    _move(connection, "former", t.versions, {**of_feed, "is_outcome": "0"}, JOINS + OF_FEED, "version, key")
    _move(connection, "repeat", t.versions, {**NUMBERS, "is_outcome": "1"}, JOINS, "batch_no, line")
    for statement in FIRST_ATTEMPTS.split(";"):
        connection.exec_driver_sql(statement)


def _move(connection: Connection, old: str, new: Table, more: dict[str, str], joins: str, order: str) -> None:
    """Insert the rows of `old_...`: columns that both tables have, and `more` with expressions for further ones."""
    both = {name: f"old.{name}" for name in _columns(connection, f"old_{old}") if name in new.c}
    values = more | both
    names, selected = ", ".join(values), ", ".join(values.values())
    moved = connection.exec_driver_sql(
        f"INSERT INTO {new.name} ({names}) SELECT {selected} FROM old_{old} AS old {joins} ORDER BY {order}"
    )
    before = connection.exec_driver_sql(f"SELECT count(*) FROM old_{old}").scalar()
    if moved.rowcount != before:
        raise t.LedgerError(
            f"the ledger of an earlier version has {counted(int(before or 0), 'row')} of {old};"
            f" {moved.rowcount} can be read"
        )


def _drop_old(connection: Connection, there: set[str]) -> None:
    views = VIEWS if "entry" in there else ()
    for name in views:
        connection.exec_driver_sql(f"DROP VIEW old_{name}")
    tables = [f"old_{name}" for name in MOVED if name not in views]
    for name in (*tables, *(("entry", "appearance", "term") if views else ())):
        connection.exec_driver_sql(f"DROP TABLE {name}")


def _add_columns(connection: Connection, table: Table) -> None:
    """Add the columns of today's table that an existing table lacks."""
    missing = [column for column in table.columns if column.name not in _columns(connection, table.name)]
    for column in missing:
        kind = CreateColumn(column).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {kind}")


def _columns(connection: Connection, table: str) -> list[str]:
    return [str(column["name"]) for column in inspect(connection).get_columns(table)]

"""Stage the tables to compare on disk: the ledger's records, and the contents of batches' rows.

`target.py` stages the target's resources. The use of memory does not grow with their number.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import orjson

from pipelines.client.comparison import fingerprints
from pipelines.home.batch_files import ACCEPTED
from pipelines.home.files import session as tables
from pipelines.home.scratch import throwaway_folder
from pipelines.ledger.states import MADE, UNDECIDED, in_sql
from pipelines.loading.accepted import accepted_files
from pipelines.loading.task_content import element_hashes
from pipelines.session.session import Session
from pipelines.verifying.dropped_elements import Sample

Bodies = dict[str, dict[str, Any]]
ROWS = 10_000
NUMBERS = "generation record_generation line amount_cents cents n".split()
OURS = "source key generation batch_id line state resource_id patient_id amount_cents content_hash"
OURS += " first_attempt_at first_sent_at source_at"
CONTENT = "key content_hash content timed said"
LIVE = f"ours.state IN ({in_sql(MADE)})"
SETTLED = f"state NOT IN ({in_sql(UNDECIDED)})"
FOUND = "CREATE OR REPLACE TABLE found (kind TEXT, id TEXT, patient_id TEXT, status TEXT, cents BIGINT)"


@contextmanager
def workbench(home: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in a temporary folder under the home that only its owner can open. Both are removed at the end."""
    with throwaway_folder(home) as folder, tables(folder / "spill", folder / "tables.duckdb") as db:
        yield db


class StagingTable:
    """A new table of texts and numbers, filled some thousand rows at a time within `with`."""

    def __init__(self, db: duckdb.DuckDBPyConnection, name: str, columns: str, keep: bool = False) -> None:
        typed = (f"{column} {'BIGINT' if column in NUMBERS else 'TEXT'}" for column in columns.split())
        if not keep:
            db.execute(f"CREATE OR REPLACE TABLE {name} ({', '.join(typed)})")
        self._appender, self._rows = db.appender(name), list[tuple[Any, ...]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is None:
            self._flush()

    def add(self, row: tuple[Any, ...]) -> None:
        self._rows.append(row)
        if len(self._rows) >= ROWS:
            self._flush()

    def _flush(self) -> None:
        self._appender.append_rows(self._rows)
        self._appender.flush()
        self._rows.clear()


def number(db: duckdb.DuckDBPyConnection, query: str, given: dict[str, str] | None = None) -> int:
    """Return the single number that a query selects."""
    [[found]] = db.execute(query, given or {}).fetchall()
    return int(found)


# -- the ledger


def stage_ledger(db: duckdb.DuckDBPyConnection, session: Session) -> None:
    """Fill tables `all_ours`, `all_former` and `unnamed`, as of one moment.

    They have the target's records, their earlier versions, and the types with records that were sent without
    identifier.
    """
    about, here = "target resource_type".split(), {"target": session.target}
    tables = (("all_ours", "record", OURS), ("all_former", "former", f"{OURS} fate"), ("unnamed", "sighting", ""))
    with session.ledger.snapshot() as snapshot:
        for name, table, columns in tables:
            snapshot.stage(db, name, table, [*about, *columns.split()], "WHERE target = $target", here)


def stage_sources(db: duckdb.DuckDBPyConnection, session: Session) -> None:
    """Fill table `own` with the sources of this home's feed files and batches.

    Sources of other homes differ, except that of the built-in feeds, which every home has.
    """
    of_batches = (str(row["source"]) for row in session.ledger.batches(session.target))
    with StagingTable(db, "own", "source") as own:
        for source in {*of_batches, *(feed.source for feed in session.catalog.feeds if not feed.builtin)}:
            own.add((source,))


def stage_records_of(db: duckdb.DuckDBPyConnection, kind: str) -> int:
    """Make views `ours`, `former` and `sent`, and table `known`, for one resource type; return the number of records.

    known: the resources of records and of earlier versions. sent: the contents sent for records that are settled now,
    in this version or an earlier one.
    """
    for name in ("ours", "former"):
        db.execute(f"CREATE OR REPLACE VIEW {name} AS FROM all_{name} WHERE resource_type = '{kind}'")
    db.execute(
        "CREATE OR REPLACE TABLE known AS SELECT resource_id FROM ours WHERE resource_id IS NOT NULL"
        " UNION ALL SELECT resource_id FROM former WHERE resource_id IS NOT NULL"
    )
    settled = f"(FROM ours WHERE {SETTLED})"
    earlier = f"SELECT * EXCLUDE (fate) FROM former SEMI JOIN {settled} AS now USING (source, key)"
    db.execute(f"CREATE OR REPLACE VIEW sent AS FROM {settled} UNION ALL BY NAME {earlier}")
    return number(db, "SELECT count(*) FROM ours")


def stage_found(db: duckdb.DuckDBPyConnection, kind: str) -> None:
    """Add to table `found` the type's resources that the ledger knows, now or earlier, with updates in place."""
    db.execute(
        "INSERT INTO found SELECT $kind, id, patient_id, status, cents FROM there"
        " SEMI JOIN known ON known.resource_id = there.id ANTI JOIN behind ON behind.resource_id = there.id",
        {"kind": kind},
    )


# -- the contents of rows


def stage_contents(db: duckdb.DuckDBPyConnection, session: Session, kind: str, sample: Sample) -> Bodies:
    """Fill table `content` with the contents of records, now or earlier, whose rows a batch still holds. Its key is
    key and content hash. Return the bodies of a sample, by id at the target.
    """
    bodies = Bodies()
    batches = [row["batch_id"] for row in session.ledger.batches(session.target) if row["resource_type"] == kind]
    StagingTable(db, "content", CONTENT)
    session.batches.bring(batches, ACCEPTED)
    if batches:
        session.progress.stage("read what was sent", kind)
    for path in (path for name in batches for path in accepted_files(session.batches.path / name)):
        with StagingTable(db, "content", CONTENT, keep=True) as content, db.cursor() as cursor:
            for rows in _rows(cursor, path):
                for key, content_hash, body in rows:
                    read = orjson.loads(body)
                    content.add(
                        (key, content_hash, *fingerprints(kind, read), element_hashes(read) if kind == "Task" else None)
                    )
                    if name := sample.get((key, content_hash)):
                        bodies[name] = read
                session.progress.advance(len(rows))
    session.progress.end()
    return bodies


def _rows(cursor: duckdb.DuckDBPyConnection, path: Path) -> Iterator[list[tuple[str, str, str]]]:
    """Yield rows of a file, many at a time: those known to the ledger, now or earlier, and in no earlier file."""
    found = cursor.sql(
        "SELECT key, content_hash, body FROM read_parquet($path) AS row"
        " SEMI JOIN (SELECT key, content_hash FROM ours UNION ALL SELECT key, content_hash FROM former) AS said"
        " ON said.key = row.key AND said.content_hash = row.content_hash"
        " ANTI JOIN content ON content.key = row.key AND content.content_hash = row.content_hash",
        params={"path": str(path)},
    )
    for part in found.to_arrow_reader(ROWS):
        yield [*zip(*(column.to_pylist() for column in part.columns), strict=True)]

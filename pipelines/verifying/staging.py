"""Stage the tables to compare on disk: the target's resources, the ledger's records, the rows that batches hold.

Memory stays the same however many there are.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import orjson
import pyarrow as pa

from pipelines.client.client import Refused, TargetUnusable
from pipelines.client.comparison import OWN_TIME, fingerprints, referred
from pipelines.client.identifiers import record_of
from pipelines.client.replies import resources_of, total_of
from pipelines.feeds.terms.texts import folded, seen
from pipelines.home import arrow
from pipelines.home.files import session as tables
from pipelines.home.scratch import throwaway_folder
from pipelines.loading.accepted import accepted_files
from pipelines.session.session import Session, reading

ROWS = 10_000
TRIES = 3
LARGE_PAGE = {"_count": "1000"}
"""Asked for first; a target gives pages of its own largest size, or refuses, and is asked as always."""
NUMBERS = "generation record_generation line amount_cents cents n".split()
THERE = "id patient_id status made system record_key record_generation spelling content timed cents"
OURS = "source key generation batch_id line state resource_id patient_id amount_cents content_hash"
OURS += " first_attempt_at first_sent_at source_at"
CONTENT = "key content_hash content timed"
SETTLED = "state NOT IN ('in_doubt', 'sending', 'planned')"
SUBJECTS = ("request", "subject", "for")
FOUND = "CREATE OR REPLACE TABLE found (kind TEXT, id TEXT, patient_id TEXT, status TEXT, cents BIGINT)"


@contextmanager
def workbench(home: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in a folder of its own under the home, for the owner only; both are gone at the end."""
    with throwaway_folder(home) as folder, tables(folder / "spill", folder / "tables.duckdb") as db:
        yield db


class Filling:
    """A new table of texts and numbers that is filled some thousand rows at a time, within `with`."""

    def __init__(self, db: duckdb.DuckDBPyConnection, name: str, columns: str, keep: bool = False) -> None:
        self._db, self._name, self._rows = db, name, list[tuple[Any, ...]]()
        self._schema = pa.schema([(c, pa.int64() if c in NUMBERS else pa.string()) for c in columns.split()])
        if not keep:
            self._insert(self._schema.empty_table(), "CREATE OR REPLACE TABLE {} AS FROM given")

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
        if self._rows:
            self._insert(arrow.batch_of_rows(self._rows, self._schema))
            self._rows.clear()

    def _insert(self, rows: pa.Table | pa.RecordBatch, statement: str = "INSERT INTO {} FROM given") -> None:
        self._db.register("given", rows)
        self._db.execute(statement.format(self._name))
        self._db.unregister("given")


def number(db: duckdb.DuckDBPyConnection, query: str, given: dict[str, str] | None = None) -> int:
    """Return the number that a query gives."""
    [[found]] = db.execute(query, given or {}).fetchall()
    return int(found)


# -- the ledger


def stage_ledger(db: duckdb.DuckDBPyConnection, session: Session) -> None:
    """Tables `all_ours` and `all_former`: the target's records, and their earlier versions, as of one moment."""
    about = "target resource_type".split()
    with session.ledger.snapshot() as snapshot:
        for name, table, columns in (("all_ours", "record", OURS), ("all_former", "former", f"{OURS} fate")):
            db.register("given", snapshot.reader(table, [*about, *columns.split()]))
            db.execute(
                f"CREATE OR REPLACE TABLE {name} AS FROM given WHERE target = $target", {"target": session.target}
            )
            db.unregister("given")


def stage_records_of(db: duckdb.DuckDBPyConnection, kind: str) -> int:
    """Views `ours`, `former`, `known` (the resources of both) and `sent`, of one resource type; number of records.

    sent: what was sent of records that are settled now, in this version or an earlier one.
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


# -- the target


def stage_target(db: duckdb.DuckDBPyConnection, session: Session, kind: str) -> None:
    """Table `there`: every resource of a type, once.

    Raises `TargetUnusable`, also when the pages do not come to what the target counts.
    """
    session.progress.stage("verify", kind)
    for _ in range(TRIES):
        total = _read(db, session, kind)
        found = _each_once(db)
        if found >= total:
            break
    else:
        raise TargetUnusable(f"{kind} could not be read from the target (its pages hold {found:,} of {total:,})")
    session.progress.end()


def stage_found(db: duckdb.DuckDBPyConnection, kind: str) -> None:
    """Add to table `found` the resources of a type that stand for a record of the ledger."""
    db.execute(
        "INSERT INTO found SELECT $kind, id, patient_id, status, cents FROM there"
        " SEMI JOIN ours ON ours.resource_id = there.id",
        {"kind": kind},
    )


def _read(db: duckdb.DuckDBPyConnection, session: Session, kind: str) -> int:
    """Fill `there`; return what the target counted when the reading began."""
    total = None
    with reading(kind), Filling(db, "there", THERE) as there:
        for bundle in _pages(session, kind):
            total = total_of(bundle) if total is None else total
            resources = resources_of(bundle, kind)
            for body in resources:
                there.add(_there(kind, body))
            session.progress.advance(len(resources))
    return total or 0


def _pages(session: Session, kind: str) -> Iterator[dict[str, Any]]:
    pages = session.connection.client.pages(kind, LARGE_PAGE)
    try:
        first = next(pages, None)
    except Refused:
        pages = session.connection.client.pages(kind)
        first = next(pages, None)
    if first is not None:
        yield first
    yield from pages


def _each_once(db: duckdb.DuckDBPyConnection) -> int:
    """Remove what pages repeated, since something was made meanwhile; how many resources there are."""
    found, different = db.execute("SELECT count(*), count(DISTINCT id) FROM there").fetchall()[0]
    if found != different:
        db.execute("DELETE FROM there WHERE rowid NOT IN (SELECT min(rowid) FROM there GROUP BY id)")
    return int(different)


def _there(kind: str, body: dict[str, Any]) -> tuple[Any, ...]:
    subject: dict[str, Any] = next((body[name] for name in SUBJECTS if isinstance(body.get(name), dict)), {})
    identifier = _identifier(body)
    return (
        body["id"],
        referred({"reference": "", **subject}).rpartition("/")[2] or None,
        body.get("status"),
        body.get(OWN_TIME.get(kind, "created")),
        identifier.get("system"),
        *(record := record_of(str(identifier.get("value") or ""))),
        _spelling(record[0]),
        *fingerprints(kind, body),
        _cents(body) if kind == "PaymentNotice" else None,
    )


def _spelling(key: str) -> str | None:
    """Return the key as it is read today, where that is another."""
    today = folded(seen(key))
    return today if today != key else None


def _identifier(body: dict[str, Any]) -> dict[str, Any]:
    """The identifier that an importer gave the resource, which need not be its only one; else its first."""
    found = body.get("identifier")
    named = [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]
    of_importers = (each for each in named if str(each.get("system")).startswith("urn:chartferry:"))
    return next(of_importers, named[0] if named else {})


def _cents(body: dict[str, Any]) -> int | None:
    """The amount; None for what is no whole number of cents."""
    try:
        cents = Decimal(str(body["amount"]["value"])) * 100
        return int(cents) if cents == int(cents) else None
    except (KeyError, TypeError, ArithmeticError, InvalidOperation, ValueError):
        return None


# -- what rows say


def stage_contents(db: duckdb.DuckDBPyConnection, session: Session, kind: str) -> None:
    """Fill table `content`: by key and content hash, the content of records, now or earlier, whose row a batch still
    holds.
    """
    batches = [row["batch_id"] for row in session.ledger.batches(session.target) if row["resource_type"] == kind]
    Filling(db, "content", CONTENT)
    for path in (path for name in batches for path in accepted_files(session.home / "batches" / name)):
        with Filling(db, "content", CONTENT, keep=True) as content, db.cursor() as cursor:
            for key, content_hash, body in _rows(cursor, path):
                content.add((key, content_hash, *fingerprints(kind, orjson.loads(body))))


def _rows(cursor: duckdb.DuckDBPyConnection, path: Path) -> Iterable[tuple[str, str, str]]:
    """Rows of a file that the ledger knows, in this version or an earlier one, and that no earlier file had."""
    found = cursor.sql(
        "SELECT key, content_hash, body FROM read_parquet($path) AS row"
        " SEMI JOIN (SELECT key, content_hash FROM ours UNION ALL SELECT key, content_hash FROM former) AS said"
        " ON said.key = row.key AND said.content_hash = row.content_hash"
        " ANTI JOIN content ON content.key = row.key AND content.content_hash = row.content_hash",
        params={"path": str(path)},
    )
    for part in found.to_arrow_reader(ROWS):
        yield from zip(*(column.to_pylist() for column in part.columns), strict=True)

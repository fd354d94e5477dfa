"""`verify`: ledger against target, to the row and the cent; and rebuilding a lost ledger from what the target has.

The target is read whole, a type at a time, into a table beside the ledger's rows; what differs is asked of both.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

import duckdb
import orjson
import pyarrow as pa
from sqlalchemy import select

from pipelines import ledger_tables as t
from pipelines.accepted import accepted_files, accepted_rows
from pipelines.compare import fingerprint
from pipelines.exits import ALL_LOADED, IN_DOUBT, SET_ASIDE
from pipelines.session import Session, reading
from pipelines.storage import session as tables
from pipelines.summary import dollars

TYPES = ("PaymentNotice", "QuestionnaireResponse", "Task")
THERE = pa.schema(
    [(n, pa.string()) for n in "id patient_id status made system value content timed".split()] + [("cents", pa.int64())]
)
OURS = "source key generation batch_id line state resource_id patient_id amount_cents content_hash first_attempt_at"
SLACK = "INTERVAL 5 MINUTE"
"""By how much the target's clock may be behind ours where only times tell an old equal payment from a late double."""


@dataclass(frozen=True)
class Difference:
    """One thing that ledger and target do not agree on. row: `<batch>:<line>`."""

    kind: str
    resource_type: str
    row: str | None
    resource_id: str | None

    def line(self) -> str:
        resource = f"{self.resource_type}/{self.resource_id}" if self.resource_id else self.resource_type
        return f"{self.kind}: {self.row or '-'}: {resource}"


@dataclass
class Verified:
    """By resource type: rows that the ledger has there, and cents on both sides. differences: everything else."""

    rows: dict[str, int] = field(default_factory=dict)
    ledger_cents: int = 0
    target_cents: int = 0
    others: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        kinds = {each.kind for each in self.differences}
        return IN_DOUBT if "in doubt" in kinds else SET_ASIDE if kinds - {"changed"} else ALL_LOADED

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "exit_code": self.exit_code}

    def lines(self) -> Iterator[str]:
        for kind, rows in self.rows.items():
            yield f"{kind}: {rows:,} rows of the ledger are there, {self.others.get(kind, 0):,} others are not ours"
        yield f"payments: {dollars(self.ledger_cents)} in the ledger, {dollars(self.target_cents)} at the target"
        for each in self.differences:
            yield each.line()
        if not self.differences:
            yield "ledger and target agree"


def verify_target(session: Session, batch_id: str | None = None) -> Verified:
    """Compares the ledger's rows at the target, or those of one batch, with the target. Raises `TargetUnusable`."""
    verified = Verified()
    with tables(session.home / ".verify.spill") as db:
        for kind in TYPES:
            if _stage_ledger(db, session, kind):
                _stage_target(db, session, kind)
                _stage_contents(db, session, kind)
                _compare(db, kind, batch_id, verified)
    return verified


# -- both sides as tables


def _stage_ledger(db: duckdb.DuckDBPyConnection, session: Session, kind: str) -> int:
    """Tables `ours` and `former`; how many records there are."""
    with session.ledger.engine.connect() as connection:
        for name, table, columns in (("ours", t.record, OURS), ("former", t.former, f"{OURS} fate")):
            query = select(*(table.c[column] for column in columns.split()))
            rows = connection.execute(
                query.where(table.c.target == session.target, table.c.resource_type == kind)
            ).fetchall()
            found = [dict(row._mapping) for row in rows]
            types = {"generation": "int64", "line": "int64", "amount_cents": "int64"}
            schema = pa.schema([(column, types.get(column, "string")) for column in columns.split()])
            db.register("given", pa.Table.from_pylist(found, schema))
            db.execute(f"CREATE OR REPLACE TABLE {name} AS FROM given")
            db.unregister("given")
    return _number(db, "SELECT count(*) FROM ours")


def _stage_target(db: duckdb.DuckDBPyConnection, session: Session, kind: str) -> None:
    """Table `there`. Raises `TargetUnusable` when the pages do not come to the target's own count."""
    db.register("given", THERE.empty_table())
    db.execute("CREATE OR REPLACE TABLE there AS FROM given")
    db.unregister("given")
    total = None
    session.progress.stage("verify", kind)
    with reading(kind):
        for bundle in session.connection.client.pages(kind):
            total = bundle.get("total", total)
            page = [_there(kind, entry["resource"]) for entry in bundle.get("entry", ())]
            db.register("given", pa.Table.from_pylist(page, THERE))
            db.execute("INSERT INTO there FROM given")
            db.unregister("given")
            session.progress.advance(len(page))
    session.progress.end()
    db.execute("CREATE OR REPLACE TABLE there AS SELECT DISTINCT ON (id) * FROM there")


def _there(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    subject: dict[str, Any] = next(
        (body[name] for name in ("request", "subject", "for") if isinstance(body.get(name), dict)), {}
    )
    identifier = body.get("identifier")
    first = (identifier[0] if isinstance(identifier, list) and identifier else identifier) or {}
    return {
        "id": body.get("id"),
        "patient_id": str(subject.get("reference", "")).rpartition("/")[2] or None,
        "status": body.get("status"),
        "made": body.get("created"),
        "system": first.get("system"),
        "value": first.get("value"),
        "content": fingerprint(kind, body, timed=False),
        "timed": fingerprint(kind, body),
        "cents": int(Decimal(str(body["amount"]["value"])) * 100) if kind == "PaymentNotice" else None,
    }


def _stage_contents(db: duckdb.DuckDBPyConnection, session: Session, kind: str) -> None:
    """Table `content`: what the rows are that the batches still hold, by key and content hash."""
    schema = pa.schema([(name, pa.string()) for name in ("key", "content_hash", "content", "timed")])
    db.register("given", schema.empty_table())
    db.execute("CREATE OR REPLACE TABLE content AS FROM given")
    db.unregister("given")
    batches = [row["batch_id"] for row in session.ledger.batches(session.target) if row["resource_type"] == kind]
    for name in batches:
        for path in accepted_files(session.home / "batches" / name):
            for rows in accepted_rows(path, ""):
                drawn = []
                for row in rows:
                    body = orjson.loads(row.body)
                    drawn.append(
                        (row.key, row.content_hash, fingerprint(kind, body, timed=False), fingerprint(kind, body))
                    )
                columns = [pa.array(column, pa.string()) for column in zip(*drawn, strict=True)]
                db.register("given", pa.Table.from_arrays(columns, schema=schema))
                db.execute("INSERT INTO content FROM given")
                db.unregister("given")
    db.execute("CREATE OR REPLACE TABLE content AS SELECT DISTINCT ON (key, content_hash) * FROM content")


# -- what differs

LIVE = "ours.state IN ('created', 'adopted', 'updated', 'superseded')"
KNOWN = """(SELECT resource_id FROM ours WHERE resource_id IS NOT NULL
    UNION SELECT resource_id FROM former WHERE resource_id IS NOT NULL)"""
QUERIES: dict[str, str] = {
    "gone": f"""
        SELECT batch_id, line, resource_id FROM ours ANTI JOIN there ON there.id = ours.resource_id WHERE {LIVE}""",
    "differs": f"""
        SELECT batch_id, line, resource_id FROM ours JOIN there ON there.id = ours.resource_id
        LEFT JOIN content USING (key, content_hash)
        WHERE {LIVE} AND $kind <> 'Task' AND (there.patient_id IS DISTINCT FROM ours.patient_id
            OR (ours.amount_cents IS NOT NULL AND there.cents IS DISTINCT FROM ours.amount_cents)
            OR (content.content IS NOT NULL AND content.content <> there.content))""",
    "changed": f"""
        SELECT batch_id, line, resource_id FROM ours JOIN there ON there.id = ours.resource_id
        LEFT JOIN content USING (key, content_hash)
        WHERE {LIVE} AND $kind = 'Task' AND content.content <> there.content""",
    "taken back": f"""
        SELECT batch_id, line, resource_id FROM ours JOIN there ON there.id = ours.resource_id
        WHERE {LIVE} AND there.status = 'entered-in-error'""",
    "not taken back": """
        SELECT batch_id, line, resource_id FROM former JOIN there ON there.id = former.resource_id
        WHERE former.fate IN ('standing', 'withdrawn') AND there.status NOT IN ('entered-in-error', 'cancelled')""",
    "double": f"""
        SELECT arg_min(ours.batch_id, ours.line), min(ours.line), there.id FROM there
        ANTI JOIN {KNOWN} AS known ON known.resource_id = there.id
        JOIN content ON content.timed = there.timed
        JOIN ours ON ours.key = content.key AND ours.content_hash = content.content_hash
        WHERE there.system IS NULL AND there.status <> 'entered-in-error' AND $batch IN ('', ours.batch_id)
            AND ours.state NOT IN ('in_doubt', 'sending', 'planned')
            AND ($kind <> 'PaymentNotice' OR there.made::TIMESTAMPTZ >= ours.first_attempt_at::TIMESTAMPTZ - {SLACK})
        GROUP BY there.id
        UNION ALL
        SELECT min(ours.batch_id), min(ours.line), there.id FROM there
        ANTI JOIN {KNOWN} AS known ON known.resource_id = there.id
        JOIN ours ON there.system = 'urn:chartferry:' || ours.source || ':' || $kind
            AND regexp_replace(there.value, '~[0-9]+$', '') = ours.key
        WHERE there.status <> 'entered-in-error' AND $batch IN ('', ours.batch_id)
            AND ours.state NOT IN ('in_doubt', 'sending', 'planned')
        GROUP BY there.id""",
    "unknown": f"""
        SELECT NULL, NULL, there.id FROM there ANTI JOIN {KNOWN} AS known ON known.resource_id = there.id
        WHERE there.system LIKE 'urn:chartferry:%:' || $kind AND $batch = ''""",
    "in doubt": """
        SELECT batch_id, line, resource_id FROM ours WHERE state IN ('in_doubt', 'sending')""",
}


def _compare(db: duckdb.DuckDBPyConnection, kind: str, batch_id: str | None, verified: Verified) -> None:
    given = {"kind": kind, "batch": batch_id or ""}
    named: set[str] = set()
    for name, query in QUERIES.items():
        used = {each: value for each, value in given.items() if f"${each}" in query}
        for batch, line, resource in db.execute(f"SELECT * FROM ({query}) ORDER BY ALL", used).fetchall():
            if batch_id in (None, batch) and not (name == "unknown" and resource in named):
                named.add(resource)
                row = None if batch is None else f"{batch}:{line}"
                verified.differences.append(Difference(name, kind, row, resource))
    of_batch = {"batch": batch_id or ""}
    joined = f"FROM ours JOIN there ON there.id = ours.resource_id WHERE {LIVE} AND $batch IN ('', ours.batch_id)"
    verified.rows[kind] = _number(db, f"SELECT count(*) {joined}", of_batch)
    verified.others[kind] = _number(
        db, f"SELECT count(*) FROM there ANTI JOIN {KNOWN} AS known ON known.resource_id = there.id"
    )
    if kind == "PaymentNotice":
        verified.target_cents = _number(db, f"SELECT coalesce(sum(there.cents), 0) {joined}", of_batch)
        live = f"FROM ours WHERE {LIVE} AND $batch IN ('', ours.batch_id)"
        verified.ledger_cents = _number(db, f"SELECT coalesce(sum(ours.amount_cents), 0) {live}", of_batch)


def _number(db: duckdb.DuckDBPyConnection, query: str, given: dict[str, str] | None = None) -> int:
    [[number]] = db.execute(query, given or {}).fetchall()
    return int(number)


# -- a lost ledger


@dataclass
class Adopted:
    """By batch: how many of its rows the target has, and how many it has not."""

    batches: dict[str, dict[str, int]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        return SET_ASIDE if self.left or any(each["waiting"] for each in self.batches.values()) else ALL_LOADED

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "exit_code": self.exit_code}

    def lines(self) -> Iterator[str]:
        for name, counts in self.batches.items():
            yield f"{name}: {counts['adopted']:,} rows adopted, {counts['waiting']:,} wait for the next import"
        for name, why in self.left.items():
            yield f"{name}: not adopted: {why}"
        if not self.batches and not self.left:
            yield "the ledger knows every batch of this home"


def adopt_lost(session: Session) -> Adopted:
    """Rebuilds what the ledger lost: rows of batches it does not know, matched by identifier, else by content."""
    from pipelines.adopting import adopt_batch, lost_batches

    adopted, pools = Adopted(), defaultdict[str, Any](dict)
    for waiting in lost_batches(session):
        name = waiting.received.batch_id if waiting.received else waiting.path.name
        counts = adopt_batch(session, waiting, pools)
        if isinstance(counts, str):
            adopted.left[name] = counts
        else:
            adopted.batches[name] = counts
    return adopted

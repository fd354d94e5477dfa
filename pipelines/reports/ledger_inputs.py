"""The published tables' inputs from the ledger, as temporary tables."""

from itertools import islice
from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.home import arrow
from pipelines.home.batch_files import ACCEPTED, MANIFESTS, WARNINGS
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.snapshot import Snapshot
from pipelines.ledger.unanswered_records import unanswered

LEDGER_INPUTS: dict[str, tuple[str, ...]] = {
    "batch": (),
    "run": (),
    "record": (
        *("target", "batch_id", "line", "source", "resource_type", "key", "state", "resource_id", "patient_id"),
        *("source_at", "amount_cents", "attempts", "http_status", "finished_at", "first_sent_at", "content_hash"),
    ),
    "former": (
        *("target", "batch_id", "line", "source", "resource_type", "key", "state", "resource_id", "patient_id"),
        *("source_at", "finished_at", "content_hash", "version", "fate"),
    ),
    "repeat": (),
    "reject": (),
    "reject_reason": (),
    "resubmission": (),
    "publication": ("published_at", "target", "reports_total", "batches", "software_version"),
}
"""The ledger's tables that the SQL reads as `ledger_<name>`, with their columns; no columns means all."""
LINES_AT_ONCE = 20_000
UNANSWERED = pa.schema([("target", pa.string()), ("batch_id", pa.string()), ("line", pa.int64())])


def bring_files(ledger: Ledger, home: Path, target: str) -> None:
    """Fetch the batches' files that the tables are made of, if batches are kept in an object store."""
    if ledger.stored:
        names = [str(row["batch_id"]) for row in ledger.batches(target)]
        ledger.batches_in(home).bring(names, MANIFESTS, ACCEPTED, WARNINGS)


def stage_ledger(db: duckdb.DuckDBPyConnection, snapshot: Snapshot) -> None:
    for name, chosen in LEDGER_INPUTS.items():
        reader = snapshot.reader(name, chosen)
        columns = ", ".join(map(_as_published, reader.schema.names))
        db.register("from_ledger", reader)
        db.execute(f"CREATE TEMP TABLE ledger_{name} AS SELECT {columns} FROM from_ledger")
        db.unregister("from_ledger")


def stage_unanswered(db: duckdb.DuckDBPyConnection, ledger: Ledger, home: Path) -> None:
    """Stage each unanswered record of files that were not loaded, by its first line.

    The line is NULL if the records of a file are unknown.
    """
    kept = ledger.batches_in(home)
    lines = (
        (batch["target"], batch["batch_id"], line)
        for batch in ledger.batches()
        for line in unanswered(ledger, kept, batch)
    )
    db.execute("CREATE TEMP TABLE unanswered (target VARCHAR, batch_id VARCHAR, line BIGINT)")
    while some := list(islice(lines, LINES_AT_ONCE)):
        db.register("rows", arrow.table_of_rows(some, UNANSWERED))
        db.execute("INSERT INTO unanswered FROM rows")
        db.unregister("rows")


def _as_published(column: str) -> str:
    if column == "amount_cents":
        return "dollars(amount_cents) AS amount"
    if column.startswith("amount_"):
        return f"dollars({column}) AS {column}"
    if column.endswith("_at"):
        return f"{column}::TIMESTAMPTZ AS {column}"
    return "retryable::BOOLEAN AS retryable" if column == "retryable" else column

"""The records in exports, read from the batches' own files and not from the ledger.

A run leaves the records of a file in `accepted.parquet` and `rejects.parquet`, and in `known.parquet` the rejects whose
content the target has already.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from pipelines.home.spill import is_whole
from pipelines.ledger.manifests import runs_in
from pipelines.session.session import Session

Batch = Mapping[str, Any]

_EXPORTED = """CREATE OR REPLACE TABLE exported (batch_id TEXT, run BIGINT, line BIGINT, key TEXT, content_hash TEXT,
    text_hash TEXT, patient_id TEXT, source_at TIMESTAMPTZ, amount_cents BIGINT, is_reject BOOLEAN)"""
_READ: Mapping[str, str] = {
    "accepted": """SELECT $batch, $run, line, key, content_hash, {text_hash}, patient_id, source_at, amount_cents, false
        FROM read_parquet($path)""",
    "rejects": """SELECT $batch, $run, line, key, {content_hash}, {text_hash}, patient_id, NULL, amount_cents, true
        FROM read_parquet($path)""",
    "known": """UPDATE exported SET is_reject = false, source_at = known.source_at::TIMESTAMPTZ
        FROM read_parquet($path) AS known
        WHERE exported.batch_id = $batch AND exported.run = $run AND exported.line = known.line""",
}
"""The statement for each file of a run, in this order. Files of older versions lack the columns in braces."""
_BATCHES = """CREATE OR REPLACE TABLE in_scope (batch_id TEXT, feed TEXT, source TEXT, kind TEXT, state TEXT,
    file_name TEXT, received_at TEXT)"""
_COLUMNS = "batch_id feed source resource_type state file_name received_at".split()


def rows_of(found: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Return the rows of an executed query as dictionaries, by column name."""
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def stage_exported(db: duckdb.DuckDBPyConnection, session: Session, batches: Iterable[Batch]) -> None:
    """Fill `in_scope` with these batches, and `exported` with every record that a run of theirs read."""
    db.execute(_BATCHES)
    db.execute(_EXPORTED)
    for batch in batches:
        db.execute(f"INSERT INTO in_scope VALUES ({', '.join('?' * len(_COLUMNS))})", [batch[c] for c in _COLUMNS])
        for number, folder, _ in runs_in(session.batches.folder(str(batch["batch_id"])), session.target):
            for name in _READ:
                _read(db, str(batch["batch_id"]), number, folder / f"{name}.parquet")


def _read(db: duckdb.DuckDBPyConnection, batch_id: str, number: int, path: Path) -> None:
    if not is_whole(path):
        return
    names = set(pq.read_schema(path).names)
    statement = _READ[path.stem].format_map({c: c if c in names else "NULL" for c in ("text_hash", "content_hash")})
    insert = "" if statement.startswith("UPDATE") else "INSERT INTO exported "
    db.execute(insert + statement, {"batch": batch_id, "run": number, "path": str(path)})

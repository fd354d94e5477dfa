"""The files of an evidence: their hashes, then and now, and the software, rules and feed that they were read with.

The records in exports are read from the batches' own files, and not from the ledger. A run leaves the records of a file
in `accepted.parquet` and `rejects.parquet`, and in `known.parquet` the rejects whose content the target has already.
"""

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from pipelines.home.batch import source_in
from pipelines.home.files import sha256_of
from pipelines.home.spill import is_whole
from pipelines.ledger.columns import LARGEST
from pipelines.ledger.manifests import runs_in
from pipelines.session.session import Session

Batch = Mapping[str, Any]

_EXPORTED = """CREATE OR REPLACE TABLE exported (batch_id TEXT, run BIGINT, line BIGINT, key TEXT, content_hash TEXT,
    patient_id TEXT, source_at TIMESTAMPTZ, amount_cents BIGINT, is_reject BOOLEAN)"""
_READ: Mapping[str, str] = {
    "accepted": """SELECT $batch, $run, line, key, content_hash, patient_id, source_at, amount_cents, false
        FROM read_parquet($path)""",
    "rejects": """SELECT $batch, $run, line, key, {content_hash}, patient_id, NULL, amount_cents, true
        FROM read_parquet($path)""",
    "known": """UPDATE exported SET is_reject = false, source_at = known.source_at::TIMESTAMPTZ
        FROM read_parquet($path) AS known
        WHERE exported.batch_id = $batch AND exported.run = $run AND exported.line = known.line""",
}
"""The statement for each file of a run, in this order. Rejects of older versions have no hash of their content."""
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
    hashes = "content_hash" if "content_hash" in pq.read_schema(path).names else "NULL"
    statement = _READ[path.stem].format(content_hash=hashes)
    insert = "" if statement.startswith("UPDATE") else "INSERT INTO exported "
    db.execute(insert + statement, {"batch": batch_id, "run": number, "path": str(path)})


SAME, OTHER, PURGED, MISSING = "the same", "not the same", "purged", "missing"
_OF_FILE = "batch_id feed file_name file_sha256 state received_at finished_at lines not_taken records accepted rejected"
_OF_RUN = "run started_at finished_at state software_version rules_version feed_hash"


def files(session: Session, batches: list[Batch]) -> list[dict[str, Any]]:
    """Return the batches' files and runs.

    hash_now: a comparison of the copy in the batch with the received file. amount_received_cents: None if the ledger
    has no digits for it.
    """
    found, purged = [], session.ledger.decided("purge")
    for batch in batches:
        folder = session.batches.folder(str(batch["batch_id"]))
        runs = session.ledger.runs(session.target, str(batch["batch_id"]))
        received = batch["amount_received"]
        found.append(
            {name: batch[name] for name in _OF_FILE.split()}
            | {"amount_received_cents": received if abs(received) < LARGEST else None}
            | {"hash_now": _hash_now(folder, batch, purged)}
            | {"runs": [{name: run[name] for name in _OF_RUN.split()} for run in runs]}
            | {"questionnaires": _questionnaires(folder, session.target)}
        )
    return found


def _hash_now(folder: Path, batch: Mapping[str, Any], purged: Container[str]) -> str:
    try:
        path = source_in(folder)
    except (OSError, StopIteration):
        return PURGED if batch["batch_id"] in purged else MISSING
    return SAME if sha256_of(path) == batch["file_sha256"] else OTHER


def _questionnaires(folder: Path, target: str) -> dict[str, str]:
    """Return the short hash of each questionnaire that the answers of the newest run were checked by."""
    for _, _, manifest in reversed(runs_in(folder, target)):
        if isinstance(named := manifest.get("questionnaires"), dict):
            return named
    return {}

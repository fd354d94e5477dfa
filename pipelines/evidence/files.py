"""The files of an evidence: their hashes, then and now, and the software, rules and feed that they were read with."""

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from pipelines.evidence.exported import Batch
from pipelines.home.batch import source_in
from pipelines.home.files import sha256_of
from pipelines.ledger.columns import LARGEST
from pipelines.ledger.manifests import runs_in
from pipelines.session.session import Session

SAME, OTHER, PURGED, MISSING = "the same", "not the same", "purged", "missing"
_OF_FILE = "batch_id feed file_name file_sha256 state received_at finished_at lines not_taken records accepted rejected"
_OF_RUN = "run started_at finished_at state software_version rules_version feed_hash"


def files(session: Session, batches: list[Batch]) -> list[dict[str, Any]]:
    """Return the batches' files and runs.

    hash_now: a comparison of the copy in the batch with the received file. amount_received_cents: None if the ledger
    has no digits for it.
    """
    found, decisions = [], session.ledger.decisions()
    purged = {each["subject"] for each in decisions if each["command"] == "purge"}
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

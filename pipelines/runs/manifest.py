"""Write each run's `manifest.json`, when it starts and when it ends."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fhir_service.interface.registry import RESOURCES
from fhir_service.paths import exists
from pipelines.home.files import write_whole
from pipelines.ledger.manifests import manifest_in, put_manifest
from pipelines.loading.target_clock import AHEAD, ahead_now
from pipelines.runs.run import Run, RunResult
from pipelines.session.session import Session

QUESTIONNAIRES = "questionnaires.json"


def write_manifest(session: Session, run: Run, result: RunResult, ended_at: str | None) -> None:
    """Write the run's `manifest.json` in one step: its input, its rules, its target, and its result.

    Counts whose names begin with `amount` are cents. A run under way, or a killed one, has no `ended_at`.
    some_records: True if the run was over some records of a file whose rows had outcomes before. ledger_history: of
    the ledger's server, if a failover may lose its last commits.
    """
    manifest = {
        **asdict(result),
        "amounts_in": "cents",
        "file_sha256": run.received.sha256,
        "file_size": run.received.size,
        "resource": run.feed.resource,
        "source": run.feed.source,
        "feed_hash": run.feed.hash,
        "key_hash": run.feed.key_hash,
        "rules_version": rules_version(),
        "some_records": run.only is not None and run.before == "finished",
        "questionnaires": _questionnaires(run.folder),
        "software_version": software_version(),
        "target": session.target,
        "target_url": session.connection.base_url,
        "started_at": run.started_at,
        AHEAD: _ahead(session, run),
        "ledger_history": session.ledger.losable_history(),
        "ended_at": ended_at,
        "records_per_second": round(result.count("records") / result.seconds) if result.seconds else None,
    }
    put_manifest(run.folder, manifest)


def _ahead(session: Session, run: Run) -> int | None:
    """Return how far the target's clock was ahead when the run began."""
    begun = manifest_in(run.folder) or {}
    return begun[AHEAD] if AHEAD in begun else ahead_now(session)


def write_questionnaires(folder: Path, versions: Mapping[str, str]) -> None:
    """Write short hashes of the questionnaires that a run checks by, if there are any."""
    if versions:
        write_whole(folder / QUESTIONNAIRES, json.dumps(versions).encode())


def _questionnaires(folder: Path) -> dict[str, str]:
    """Return short hashes of the questionnaires that a run's answers were checked by."""
    path = folder / QUESTIONNAIRES
    return dict(json.loads(path.read_bytes())) if exists(path) else {}


@cache
def software_version() -> str:
    try:
        return version("chartferry")
    except PackageNotFoundError:
        return "0+source"


@cache
def rules_version() -> str:
    """Return a name for the set of rules in force. It changes when a rule is added or removed, or changes its kind."""
    rules = sorted(f"{rule.id} {rule.needs} {rule.given}" for r in RESOURCES.values() for rule in r.rules)
    return hashlib.sha256("\n".join(rules).encode()).hexdigest()[:12]

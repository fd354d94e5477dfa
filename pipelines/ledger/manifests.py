"""Read and write `manifest.json`, which each run leaves in its folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fhir_service.paths import matching
from pipelines.home.batch_files import MANIFESTS
from pipelines.home.files import write_whole
from pipelines.ledger.addresses import spelled_alike
from pipelines.ledger.home_batches import HomeBatches
from pipelines.ledger.lease import is_moment

MANIFEST = "manifest.json"
TEXTS = ("target", "started_at", "source", "resource", "feed_hash")
MOST = 1 << 60


def manifest_in(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a run without its damaged values; None if the file is missing or is no manifest."""
    try:
        said = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(said, dict) or not all(map(_is_text, map(said.get, TEXTS))) or not is_moment(said["started_at"]):
        return None
    whole = {name: value for name, value in said.items() if not isinstance(value, str) or _is_text(value)}
    counts, ended_at = said.get("counts"), said.get("ended_at")
    whole["counts"] = {n: c for n, c in counts.items() if _is_count(c)} if isinstance(counts, dict) else {}
    whole["ended_at"] = ended_at if is_moment(ended_at) else None
    return whole


def newest_manifest(batches: HomeBatches, batch_id: str) -> dict[str, Any] | None:
    """Return the manifest of a batch's newest run, of those that are not damaged."""
    found = filter(None, map(manifest_in, matching(batches.renew(batch_id, MANIFESTS), "run-*")))
    return max(found, key=lambda manifest: str(manifest["started_at"]), default=None)


def put_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest of a run in one step."""
    write_whole(folder / MANIFEST, (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())


def run_of(folder: Path, target: str | None) -> dict[str, Any] | None:
    """Return the manifest of a run if the run was for this target, else None."""
    said = manifest_in(folder)
    return said if said and target is not None and is_of(said, target) else None


def is_of_another(folder: Path, target: str) -> bool:
    """True if a run's manifest names another target; False if the manifest is lost or damaged."""
    said = manifest_in(folder)
    return said is not None and not is_of(said, target)


class KeptRun(NamedTuple):
    """A run as its batch's folder keeps it. number: counts the runs of the batch at its target, as in the ledger."""

    number: int
    folder: Path
    manifest: dict[str, Any]


def runs_in(batch: Path, target: str | None) -> list[KeptRun]:
    """Return the runs of a batch for this target, oldest first. After a lost ledger two runs may have one number."""
    told = ((folder, run_of(folder, target)) for folder in matching(batch, "run-*"))
    found = (KeptRun(number_of(folder), folder, said) for folder, said in told if said)
    return sorted(found, key=lambda each: (each.number, each.manifest["started_at"]))


def number_of(run: Path) -> int:
    """Return the number of a run from its folder's name: `run-<number>`, or `run-<number>-2` if that name was taken."""
    number = run.name.split("-")[1]
    return int(number) if number.isdecimal() else 0


def is_of(manifest: dict[str, Any], target: str) -> bool:
    """True if a run was for this target, however its address was spelled."""
    return manifest["target"] == target or spelled_alike(manifest["target"]) == spelled_alike(target)


def _is_text(said: object) -> bool:
    """True if a value is text that any database can store: no NUL and no half of a character."""
    return isinstance(said, str) and "\0" not in said and said == said.encode(errors="replace").decode()


def _is_count(said: object) -> bool:
    return isinstance(said, int) and 0 <= said < MOST

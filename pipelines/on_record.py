"""What a run has left on record beside the ledger, read again: `manifest.json` in its folder."""

import json
from pathlib import Path
from typing import Any

from pipelines.ledger.lease import is_moment

MANIFEST = "manifest.json"
TEXTS = ("target", "started_at", "source", "resource", "feed_hash")
MOST = 1 << 60


def manifest_in(folder: Path) -> dict[str, Any] | None:
    """The manifest of a run; None where there is none, or a file that is none: the ledger then knows of no such run."""
    try:
        said = json.loads((folder / MANIFEST).read_bytes())
        text = json.dumps(said, ensure_ascii=False).encode()  # not of half a character
    except (OSError, ValueError):
        return None
    return said if b"\\u0000" not in text and _is_one(said) else None


def target_of(folder: Path) -> str | None:
    """The target that a run was for; None where that is not told."""
    said = manifest_in(folder)
    return str(said["target"]) if said else None


def _is_one(said: Any) -> bool:
    if not isinstance(said, dict) or not all(isinstance(said.get(name), str) for name in TEXTS):
        return False
    began, ended, counts = said["started_at"], said.get("ended_at"), said.get("counts", {})
    whole = isinstance(counts, dict) and all(isinstance(each, int) and 0 <= each < MOST for each in counts.values())
    return whole and is_moment(began) and (ended is None or is_moment(ended))

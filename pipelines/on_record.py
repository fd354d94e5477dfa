"""What a run has left on record beside the ledger, read again: `manifest.json` in its folder."""

import json
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"


def manifest_in(folder: Path) -> dict[str, Any] | None:
    """The manifest of a run; None where there is none, or a file that is none: the ledger then knows of no such run."""
    try:
        said = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None
    named = isinstance(said, dict) and all(isinstance(said.get(name), str) for name in ("target", "started_at"))
    return said if named else None


def target_of(folder: Path) -> str | None:
    """The target that a run was for; None where that is not told."""
    said = manifest_in(folder)
    return str(said["target"]) if said else None

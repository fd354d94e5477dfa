"""Files that others publish in bulk: fetched into `<home>/bulk` before an import, and removed after it."""

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines.client.bulk import fetch_published

FOLDER = "bulk"


def fetched_files(home: Path, addresses: Sequence[str], environ: Mapping[str, str], insecure: bool) -> list[Path]:
    """Return the files that the manifests at these addresses name. Raises `Unreadable` before anything is imported.

    Those that an earlier try has fetched are not fetched again.
    """
    return [file for url in addresses for file in fetch_published(url, _folder(home, url), environ, insecure)]


def remove_fetched(home: Path, addresses: Sequence[str]) -> None:
    """Remove the files again: the import has kept a copy of each."""
    for url in addresses:
        shutil.rmtree(_folder(home, url), ignore_errors=True)


def _folder(home: Path, url: str) -> Path:
    return home / FOLDER / hashlib.sha256(url.encode()).hexdigest()[:12]

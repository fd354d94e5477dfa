"""Files that servers publish in bulk: fetched into `<home>/bulk` before an import, and removed after it."""

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pipelines.home.batch import UnreadableFile
from pipelines.home.files import lock_now

FOLDER = "bulk"


@contextmanager
def locked_addresses(home: Path, addresses: Sequence[str]) -> Iterator[None]:
    """Lock these addresses against imports by other processes. Raises `UnreadableFile` if another import has one."""
    with ExitStack() as locks:
        for url in sorted(set(addresses)):
            (home / FOLDER).mkdir(parents=True, exist_ok=True, mode=0o700)
            if not locks.enter_context(lock_now(_folder(home, url).with_suffix(".lock"))):
                raise UnreadableFile(
                    "another import from this address is running: repeat the command when it has ended"
                )
        yield


def fetched_files(home: Path, addresses: Sequence[str], environ: Mapping[str, str], insecure: bool) -> list[Path]:
    """Return the files that the manifests at these addresses name. Raises `UnreadableFile` before anything is imported.

    Files that an earlier try has fetched are not fetched again. Call it within `locked_addresses`.
    """
    if not addresses:
        return []
    from pipelines.client.bulk import fetch_published  # imports httpx

    return [file for url in addresses for file in fetch_published(url, _folder(home, url), environ, insecure)]


def remove_fetched(home: Path, addresses: Sequence[str]) -> None:
    """Remove the fetched files: the import has kept a copy of each."""
    for url in addresses:
        shutil.rmtree(_folder(home, url), ignore_errors=True)


def _folder(home: Path, url: str) -> Path:
    return home / FOLDER / hashlib.sha256(url.encode()).hexdigest()[:12]

"""Hashes of files, by which their batches are named. A large file is hashed beside the looks of the sensor."""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from pipelines.dagster.stages.receiving import batch_id_of
from pipelines.feeds.files.catalog import Feed

SECONDS_FOR_ONE_FILE = 5.0
FILES_HASHED_AT_ONCE = 2


class Hashes:
    """Hashes of files, computed in threads: the hash of a large file may be ready only at a later look."""

    def __init__(self, patience: float = SECONDS_FOR_ONE_FILE) -> None:
        self._patience = patience
        self._workers = ThreadPoolExecutor(FILES_HASHED_AT_ONCE, "hash")
        self._under_way: dict[tuple[str, str], Future[str]] = {}

    def batch_id(self, feed: Feed, path: Path, mark: str) -> str | None:
        """Return the id of the file's batch, or None while its hash is not ready. Raises `OSError`."""
        key = (feed.name, mark)
        if key not in self._under_way:
            self._under_way[key] = self._workers.submit(batch_id_of, feed, path)
        hashing = self._under_way[key]
        wait([hashing], self._patience)
        if not hashing.done():
            return None
        del self._under_way[key]
        return hashing.result()

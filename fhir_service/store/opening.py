"""Explain why the DuckDB file of a store cannot be opened."""

import re
from pathlib import Path

import duckdb

from fhir_service.paths import exists


class StoreBusy(Exception):
    """Another process has the store's file open."""

    def __init__(self, path: str, pid: int | None) -> None:
        self.path, self.pid = path, pid
        holder = f"process {pid}" if pid else "another process"
        super().__init__(f"{path} is open in {holder}: stop that process, or wait until it has ended")


def opening_failed(path: str, message: str) -> Exception:
    """Return the exception to raise for DuckDB's message about a path that it cannot open."""
    if "lock on file" in message:
        pid = re.search(r"PID (\d+)", message)
        return StoreBusy(path, int(pid[1]) if pid else None)
    if "Permission denied" in message:
        return OSError(f"{path} cannot be opened: this user may not read and write it")
    if "Out of Memory" in message:
        return OSError(
            f"{path} cannot be opened: what its log has fits neither into memory nor on the disk;"
            " free some room, or give it more memory (FHIR_SERVICE_MEMORY_LIMIT), and start again"
        )
    if exists(wal := Path(f"{path}.wal")):
        return OSError(
            f"{path} cannot be opened as a DuckDB database: if it was put back from a copy, {wal.name} beside it is"
            " of the file that it replaced; move that away and start again"
        )
    return OSError(f"{path} cannot be opened as a DuckDB database")


def refuse_held(path: Path) -> None:
    """Raise StoreBusy if another process has the file of a store open."""
    try:
        duckdb.connect(str(path), read_only=True).close()
    except duckdb.Error as error:
        if isinstance(found := opening_failed(str(path), str(error)), StoreBusy):
            raise found from None

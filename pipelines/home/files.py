"""Files that are only ever replaced whole, locks between processes, and DuckDB sessions with limited memory."""

import fcntl
import hashlib
import os
import secrets
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from fhir_service.leaving import raise_interrupt
from fhir_service.paths import exists

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY = 160
"""Megabytes for a DuckDB session."""
THREADS = 2
"""Threads of a DuckDB session on any machine, since each needs memory of its own."""
FILES_AT_ONCE = 8
"""Files that are written to the disk at once: it takes hardly longer for them than for one."""
READABLE_SINCE = "v1.0.0"
"""Database files are written so that every DuckDB from this version on can read them."""


def replace_whole(part: Path, final: Path, mode: int = 0o600) -> None:
    """Replace `final` by the finished `part` in one step, after writing it to the disk."""
    part.chmod(mode)
    to_disk(part)
    part.replace(final)
    to_disk(final.parent)


def replace_each_whole(finals: Mapping[Path, Path], mode: int = 0o600) -> None:
    """Replace files by finished parts, each in one step, after writing all to the disk. finals: by their parts."""
    for part in finals:
        part.chmod(mode)
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        deque(pool.map(to_disk, finals), maxlen=0)
    for part, final in finals.items():
        part.replace(final)
    for folder in {final.parent for final in finals.values()}:
        to_disk(folder)


def write_whole(final: Path, content: bytes, mode: int = 0o600) -> None:
    part = final.with_name(f"{final.name}.part")
    part.write_bytes(content)
    replace_whole(part, final, mode)


@contextmanager
def written_whole(final: Path, mode: int = 0o600) -> Iterator[Path]:
    """Yield a path beside `final`, for the owner only; at the end, put the file written there in the place of `final`.

    After a failure nothing is left of it. Two writers at once have different paths.
    """
    part = final.with_name(f".{final.name}-{uuid4().hex}.part")
    try:
        part.touch(0o600)
        yield part
        replace_whole(part, final, mode)
    finally:
        part.unlink(missing_ok=True)


def link_or_copy(file: Path, link: Path) -> None:
    """Give a file a second name; if the file system or the file's owner permits no link, copy it."""
    try:
        link.hardlink_to(file)
    except OSError:
        shutil.copy(file, link)


def to_disk(path: Path) -> None:
    """Return once the content of a file, or the names in a folder, would survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def made_once(path: Path, random_bytes: int) -> str:
    """Return the random text in a file, made on the first call. Callers at the same time get one text."""
    if not exists(path):
        with locked(path.with_name(f".{path.name}.lock")):
            if not exists(path):
                write_whole(path, secrets.token_hex(random_bytes).encode())
    return path.read_text(encoding="ascii")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time into the block; others wait. The lock ends with the process, however that ends."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock like `locked`, but the folder itself, so that no lock file remains."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def lock_now(path: Path) -> Iterator[bool]:
    """Yield True with the lock of `locked`, or False without waiting if another process has it."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


@contextmanager
def locked_by_name(path: Path, taken: Callable[[str], None]) -> Iterator[None]:
    """Let one process at a time into the block, with its id in the file.

    taken: is called with the id of the process inside, before this one waits. If it raises, this one does not wait.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            taken(os.pread(file, 32, 0).decode("ascii", "replace").strip() or "unknown")
            fcntl.flock(file, fcntl.LOCK_EX)
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(file)


@contextmanager
def session(spill: Path, database: Path | None = None, megabytes: int = MEMORY) -> Iterator["DuckDBPyConnection"]:
    """A DuckDB session in UTC, in memory or over `database`. It spills into `spill`, which is removed at the end."""
    shutil.rmtree(spill, ignore_errors=True)
    settings: dict[str, str | bool | int] = {
        "memory_limit": f"{megabytes}MB",
        "threads": THREADS,
        "temp_directory": str(spill),
        "preserve_insertion_order": False,
        "storage_compatibility_version": READABLE_SINCE,
    }
    try:
        with _opened(database, settings) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            yield connection
    except RuntimeError as error:
        raise_interrupt(error)
        raise
    finally:
        shutil.rmtree(spill, ignore_errors=True)


def _opened(database: Path | None, settings: dict[str, str | bool | int]) -> "DuckDBPyConnection":
    if database is None:
        return open_in_memory(settings)
    import duckdb  # as in `open_in_memory`

    return _silent(duckdb.connect(str(database), config=dict(settings)))


def open_in_memory(settings: Mapping[str, str | bool | int]) -> "DuckDBPyConnection":
    """Return a connection to a new database in memory, with these settings of DuckDB."""
    import duckdb  # a helper process that only checks chunks does without it

    return _silent(duckdb.connect(":memory:", config=dict(settings)))


def _silent(database: "DuckDBPyConnection") -> "DuckDBPyConnection":
    """Turn off progress bars. In a process started by `python -c`, such as Dagster's runs, DuckDB would draw them for
    queries of some seconds.
    """
    return database.execute("SET enable_progress_bar = false")

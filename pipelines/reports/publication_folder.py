"""The folder of a publication: new files are built beside the old ones, and each replaces its old file in one step."""

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count as numbers
from pathlib import Path
from typing import TypeVar

import duckdb
from sqlalchemy import func, select

from fhir_service.paths import exists, is_folder, matching
from pipelines.home import disk
from pipelines.home.files import MEMORY, link_or_copy, replace_each_whole, replace_whole
from pipelines.ledger import tables as t
from pipelines.ledger.ledger import Ledger
from pipelines.reports.newer_load import PAGE
from pipelines.reports.publication import OutOfMemory, PublicationError, error_sentence
from pipelines.reports.tables import BrokenTable

T = TypeVar("T")
READ_ONLY = 0o444
MEGABYTE = 10**6
GROWTH = 4
BYTES_A_RECORD = 400
"""The bytes of memory a record takes, measured with a million payments of one file."""
CONTAINER = Path("/sys/fs/cgroup/memory.max")
BESIDE = {".html": PAGE, ".json": "datapackage.json", ".yml": "sources.yml"}
"""The files beside `reports.duckdb`, by the suffix that they have while they are built."""


@contextmanager
def being_built(folder: Path) -> Iterator[Path]:
    """Yield the path at which to build a `reports.duckdb`, and remove leftovers at the end.

    Raises `PublicationError` instead of errors whose texts may hold values.
    """
    _remove_leftovers(folder)
    try:
        yield folder / f".reports.{os.getpid()}.duckdb"
    except BrokenTable as error:
        raise PublicationError(f"not published: {error}") from None
    except duckdb.OutOfMemoryException as error:
        if not disk.is_full(error):
            raise OutOfMemory("the tables could not be built: this machine has not enough memory for them") from None
        raise PublicationError(disk.FULL) from None
    except duckdb.Error as error:
        raise PublicationError(error_sentence(error, folder)) from None
    finally:
        _remove_leftovers(folder)


def built(folder: Path, ledger: Ledger, make: Callable[[Path, int], T]) -> T:
    """Build files with memory in proportion to the ledger's records; with four times as much if that was too little.

    The memory is at most half of the machine's or container's. make: builds, given the path of `being_built` and the
    megabytes. Raises as `being_built` does.
    """
    [(records,)] = ledger.read(select(func.count()).select_from(t.record))
    most, megabytes = most_memory(), MEMORY
    while megabytes < most and megabytes * MEGABYTE < records * BYTES_A_RECORD:
        megabytes = min(megabytes * GROWTH, most)
    while True:
        try:
            with being_built(folder) as build:
                return make(build, megabytes)
        except OutOfMemory:
            if megabytes >= most:
                raise
            megabytes = min(megabytes * GROWTH, most)


def most_memory() -> int:
    """Return half of the machine's memory, or of the container's limit if that is lower, in megabytes."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # there is no container, or it has no limit
        found = min(found, int(CONTAINER.read_text()))
    return found // 2 // MEGABYTE


def put_beside(build: Path, tables: Collection[str], beside: Mapping[str, str]) -> None:
    """Replace the Parquet files, and the files beside the database, by the new ones.

    beside: the names of the files beside the database, by the suffix that they have while they are built.
    """
    folder = build.parent
    parts = matching(folder, "parquet/*.part")
    replace_each_whole({part: part.with_suffix("") for part in parts}, READ_ONLY)
    _remove_former(folder / "parquet", tables)
    replace_each_whole({build.with_suffix(suffix): folder / name for suffix, name in beside.items()}, READ_ONLY)


def _remove_leftovers(folder: Path) -> None:
    """Remove the files of a publication that failed or was killed."""
    for left in [*matching(folder, ".reports.*"), *matching(folder, "parquet/*.part")]:
        shutil.rmtree(left) if is_folder(left) else left.unlink()


def _remove_former(parquet: Path, tables: Collection[str]) -> None:
    """Remove Parquet files of tables no longer published. Writable files belong to other programs, and stay."""
    for path in matching(parquet, "*.parquet"):
        if path.stem not in tables and path.stat().st_mode & 0o777 == READ_ONLY:
            path.unlink()


def put_in_place(build: Path, final: Path, published_at: str) -> None:
    """Replace the published file, keep the old one beside it, and move a foreign `.wal` out of the way."""
    if exists(final):
        part = final.with_name(".reports.previous")
        link_or_copy(final, part)
        part.replace(final.with_name("reports.previous.duckdb"))
    _move_foreign_wal(final, published_at)
    replace_whole(build, final, READ_ONLY)
    _move_foreign_wal(final, published_at)


def _move_foreign_wal(final: Path, published_at: str) -> None:
    """Rename a `.wal` that another writer left. DuckDB would apply it to the new file, which has the old name."""
    stamp = published_at.replace(":", "")
    with suppress(FileNotFoundError):
        for number in numbers(1):
            aside = final.with_name(f"reports.foreign-{stamp}{f'-{number}' if number > 1 else ''}.wal")
            if not exists(aside):
                final.with_name(f"{final.name}.wal").rename(aside)

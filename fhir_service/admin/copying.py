"""A consistent copy of the store in one DuckDB file, also while services write."""

import glob
import os
import re
import secrets
from pathlib import Path

import duckdb
from sqlalchemy import select

from fhir_service.admin.running_service import CommandError, runs
from fhir_service.paths import exists, matching
from fhir_service.service import Service
from fhir_service.store.dialects import DuckDb, dialect_of
from fhir_service.store.disk_errors import is_full
from fhir_service.store.schema import TABLES
from fhir_service.store.store import Store

ROWS = 5_000


def copy_store(service: Service, target: Path) -> None:
    """Write the copy. Raises CommandError.

    It has its name once it is whole: one that was cut short may open as a store, without the newest of what is stored.
    Two copies to one name at once have a file each, and the one that is whole first gets the name.
    """
    _refuse(target)
    _remove_left(target)
    part = target.with_name(f"{target.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        _copy_to(service, part)
        _refuse(target)
        part.rename(target)
    except Exception as error:
        if why := _why(error):
            raise CommandError(f"{target} cannot be written: {why}") from None
        raise
    finally:
        _remove(part)


def _refuse(target: Path) -> None:
    if exists(target):
        raise CommandError(f"{target} exists: name a file that does not")


def _remove_left(target: Path) -> None:
    """Remove the unfinished copies to this name whose processes were killed."""
    for part in matching(target.parent, f"{glob.escape(target.name)}.*.part"):
        made_by = re.fullmatch(r"(\d+)-[0-9a-f]{8}", part.name.removeprefix(f"{target.name}.").removesuffix(".part"))
        if made_by and not runs(int(made_by[1])):
            _remove(part)


def _copy_to(service: Service, part: Path) -> None:
    dialect = service.store.dialect
    if isinstance(dialect, DuckDb):
        service.writer.transact(lambda _: dialect.copy(part), resources=False)
        dialect.fold(part)
    else:
        copy_out(service.store, part)


def _why(error: Exception) -> str | None:
    """Return why the copy cannot be written; None for any other failure."""
    if is_full(error):
        return "there is no space left on its disk"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return type(error).__name__ if isinstance(error, duckdb.Error) else None


def _remove(store: Path) -> None:
    """Remove a DuckDB file and its log."""
    for path in (store, store.with_name(f"{store.name}.wal")):
        path.unlink(missing_ok=True)


def copy_out(store: Store, target: Path) -> None:
    """Write the store's tables into a new DuckDB file: a store of the same id. Others go on reading and writing.

    Raises OSError and duckdb.Error; what is there then is no store.
    """
    dialect = dialect_of(str(target), "1GB")
    engine = dialect.open(create=True)
    try:
        with store.read() as reading, engine.begin() as writing:
            dialect.make_store(writing)
            for table in TABLES.values():
                columns = [column.name for column in table.columns]
                found = reading.execution_options(yield_per=ROWS).execute(select(table))
                for rows in found.partitions():
                    dialect.append(writing, [(table, [tuple(row) for row in rows], columns)])
    finally:
        engine.dispose()
    DuckDb.fold(target)

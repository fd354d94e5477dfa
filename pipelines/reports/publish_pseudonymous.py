"""Publish the tables pseudonymously: `<home>/pseudonymous/`, a folder to give away whole; one for each study.

The tables are made as ever in a private file, and copied from it column by column into a new one. Nothing that is left
out was ever in the file that is given away.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from importlib.metadata import version
from os import getpid, utime
from pathlib import Path

import duckdb

from pipelines.home.files import locked, replace_whole, session
from pipelines.home.scratch import throwaway_folder
from pipelines.ledger.ledger import Ledger
from pipelines.reports.building import comment, quoted, write_parquet
from pipelines.reports.dictionary import data_package, dbt_sources
from pipelines.reports.pseudonymous import Study, copy, key_of, set_key, shown
from pipelines.reports.publish import (
    BESIDE,
    READ_ONLY,
    Publication,
    PublicationError,
    make_tables,
    remove_former,
    remove_leftovers,
    rows_of,
    why,
)
from pipelines.reports.settings import settings_of
from pipelines.reports.sweep import Sweep, held
from pipelines.reports.tables import BrokenTable, ReportTable
from pipelines.reports.terms import set_terms

FOLDER = "pseudonymous"
FILES = {suffix: name for suffix, name in BESIDE.items() if suffix != ".html"}


def publish_pseudonymous(home: Path, ledger: Ledger, sweep: Sweep, study: Study) -> Publication:
    """Build, check and publish the pseudonymous tables of the sweep's target. Raises `PublicationError`."""
    folder = home / (f"{FOLDER}-{study.name}" if study.name else FOLDER)
    (folder / "parquet").mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(folder / ".lock"), held(home, sweep.target) as last, throwaway_folder(home) as scratch:
        remove_leftovers(folder)
        build, published_at = folder / f".reports.{getpid()}.duckdb", ledger.now()
        try:
            tables = _make_private(scratch, ledger, last, published_at, home)
            rows = _build(build, scratch, tables, key_of(home, study.name), published_at, study.smallest)
            replace_whole(build, folder / "reports.duckdb", READ_ONLY)
            for part in sorted(folder.glob("parquet/*.part")):
                replace_whole(part, part.with_suffix(""), READ_ONLY)
            remove_former(folder / "parquet", set(rows))
            for suffix, name in FILES.items():
                replace_whole(build.with_suffix(suffix), folder / name, READ_ONLY)
            _forget_times(folder, published_at)
        except BrokenTable as error:
            raise PublicationError(f"not published: {error}") from None
        except duckdb.Error as error:  # its text may hold values
            raise PublicationError(why(error, folder)) from None
        finally:
            remove_leftovers(folder)
    page = folder / FILES[".json"]
    return Publication(folder / "reports.duckdb", page, datetime.fromisoformat(published_at), last.target, rows)


def _month(published_at: str) -> str:
    """Return the first moment of the month: a true day would bound how far the last days were moved."""
    return f"{published_at[:7]}-01T00:00:00Z"


def _forget_times(folder: Path, published_at: str) -> None:
    """Give all files the month for their time, which copies keep."""
    month = datetime.fromisoformat(_month(published_at)).timestamp()
    for path in (*folder.glob("parquet/*"), *folder.iterdir(), folder):
        utime(path, (month, month))


def _make_private(scratch: Path, ledger: Ledger, sweep: Sweep, published_at: str, home: Path) -> list[ReportTable]:
    """Make the tables as they are in `private.duckdb`; return those to be shown, as they will be."""
    with session(scratch / "private.spill", scratch / "private.duckdb") as db:
        settings = replace(settings_of(home), publish_free_text=False)
        return shown(make_tables(db, ledger, sweep, published_at, home, settings, with_sending_times=False))


def _build(
    build: Path, scratch: Path, tables: Sequence[ReportTable], key: str, published_at: str, smallest: int
) -> dict[str, int]:
    with session(scratch / "public.spill", build) as db:
        db.execute(f"ATTACH {quoted(str(scratch / 'private.duckdb'))} AS private (READ_ONLY)")
        db.execute("SET threads = 2")  # a table with many terms needs memory for each thread
        set_key(db, key)
        set_terms(db, tables, "private", smallest)
        for table in tables:
            copy(db, table, "private", smallest)
            comment(db, table)
            write_parquet(db, table, build.parent / "parquet" / f"{table.name}.parquet.part")
        rows = rows_of(db, tables)
        package = data_package(tables, _month(published_at), version("chartferry"))
        build.with_suffix(".json").write_text(package, "utf-8")
        build.with_suffix(".yml").write_text(dbt_sources(tables), "utf-8")
        db.execute("CHECKPOINT")
    return rows

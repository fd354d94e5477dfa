"""Publish the tables pseudonymously: a folder to give away whole, `<home>/pseudonymous/`, or one for each study.

The tables are first made as usual in a private file, and then copied column by column into a new one. So the file that
is given away never held anything that is left out.
"""

from collections.abc import Sequence
from datetime import datetime
from os import utime
from pathlib import Path
from typing import NamedTuple

from fhir_service.paths import matching
from pipelines.home.files import locked, replace_whole, session
from pipelines.home.scratch import throwaway_folder
from pipelines.ledger.ledger import Ledger
from pipelines.reports.making import make_tables, write_files
from pipelines.reports.pseudonymous import Study, copy, key_of, set_key, shown_tables
from pipelines.reports.publication import Publication
from pipelines.reports.publication_folder import BESIDE, READ_ONLY, built, put_beside
from pipelines.reports.settings import settings_of
from pipelines.reports.sweep import Sweep, held_sweep
from pipelines.reports.tables import ReportTable
from pipelines.reports.terms import set_terms
from pipelines.reports.views.values import quoted

FOLDER = "pseudonymous"


class BuildRoom(NamedTuple):
    """A scratch folder, and the memory that the build may use."""

    folder: Path
    megabytes: int


FILES = {suffix: name for suffix, name in BESIDE.items() if suffix != ".html"}


def publish_pseudonymous(home: Path, ledger: Ledger, sweep: Sweep, study: Study) -> Publication:
    """Build, check and publish the pseudonymous tables of the sweep's target. Raises `PublicationError`."""
    folder = home / (f"{FOLDER}-{study.name}" if study.name else FOLDER)
    (folder / "parquet").mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(folder / ".lock"), held_sweep(home, sweep.target) as last:
        published_at = ledger.now()

        def make(build: Path, megabytes: int) -> dict[str, int]:
            with throwaway_folder(home) as scratch:
                room = BuildRoom(scratch, megabytes)
                tables = _make_private(room, ledger, last, published_at, home)
                rows = _build(build, room, tables, key_of(home, study.name), published_at, study.smallest)
                _replace(build, folder / "reports.duckdb")
                put_beside(build, rows, FILES)
                _forget_times(folder, published_at)
            return rows

        rows = built(folder, ledger, make)
    page = folder / FILES[".json"]
    return Publication(folder / "reports.duckdb", page, datetime.fromisoformat(published_at), last.target, rows)


def _replace(build: Path, final: Path) -> None:
    """Put the new file in place. Remove a `.wal` beside it, since DuckDB would apply it to the new file."""
    left = final.with_name(f"{final.name}.wal")
    left.unlink(missing_ok=True)
    replace_whole(build, final, READ_ONLY)
    left.unlink(missing_ok=True)


def _month(published_at: str) -> str:
    """Return the first moment of the month. The true day would limit how far the last days can have been moved."""
    return f"{published_at[:7]}-01T00:00:00Z"


def _forget_times(folder: Path, published_at: str) -> None:
    """Set the times of all files to the month, since copies of a file keep its time."""
    month = datetime.fromisoformat(_month(published_at)).timestamp()
    for path in (*matching(folder, "parquet/*"), *folder.iterdir(), folder):
        utime(path, (month, month))


def _make_private(room: BuildRoom, ledger: Ledger, sweep: Sweep, published_at: str, home: Path) -> list[ReportTable]:
    """Make the tables in `private.duckdb`; return the declarations of the tables and columns to publish."""
    with session(room.folder / "private.spill", room.folder / "private.duckdb", room.megabytes) as db:
        settings = settings_of(home).model_copy(update={"publish_free_text": False})
        return shown_tables(make_tables(db, ledger, sweep, published_at, home, settings, with_sending_times=False))


def _build(
    build: Path, room: BuildRoom, tables: Sequence[ReportTable], key: str, published_at: str, smallest: int
) -> dict[str, int]:
    with session(room.folder / "public.spill", build, room.megabytes) as db:
        db.execute(f"ATTACH {quoted(str(room.folder / 'private.duckdb'))} AS private (READ_ONLY)")
        set_key(db, key)
        set_terms(db, tables, smallest)
        for table in tables:
            copy(db, table, "private", smallest)
        rows = write_files(db, tables, build, _month(published_at))
        db.execute("CHECKPOINT")
    return rows

"""Build the published tables from the ledger and the sweep, check them, and put them in place.

Analysts open `<home>/published/reports.duckdb`, `parquet/*.parquet` and `report.html`. Programs read `datapackage.json`
and `sources.yml`. Nothing is replaced before all checks have passed, and each file is replaced in one step.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import duckdb
from jinja2 import TemplateError

from fhir_service.paths import exists
from pipelines.home.files import locked, session
from pipelines.home.folder import REFERENCE_NOTE
from pipelines.ledger.batch_counts import keep_so_far
from pipelines.ledger.lease import utc_text
from pipelines.ledger.ledger import Ledger
from pipelines.reports.making import make_tables, write_files
from pipelines.reports.newer_load import LOCK, tell_newer
from pipelines.reports.page import page_of
from pipelines.reports.publication import Publication, PublicationError, said_at, told_once
from pipelines.reports.publication_folder import BESIDE, built, put_beside, put_in_place
from pipelines.reports.settings import settings_of
from pipelines.reports.sweep import Sweep, held_sweep


def publish(home: Path, ledger: Ledger, sweep: Sweep) -> Publication:
    """Build, check and publish all tables of the sweep's target, and note the publication in the ledger.

    If a later sweep of the target has ended since, its reports are published. Programs that have the old file open,
    even for writing, do not delay the publication. Raises `PublicationError` before anything is replaced.
    """
    folder = home / "published"
    (folder / "parquet").mkdir(parents=True, exist_ok=True, mode=0o700)
    final, page = folder / "reports.duckdb", folder / BESIDE[".html"]
    with locked(folder / LOCK), held_sweep(home, sweep.target) as last:
        published_at = ledger.now()
        keep_so_far(ledger)

        def make(build: Path, megabytes: int) -> tuple[dict[str, int], list[str]]:
            rows, remarks = _build(build, ledger, last, published_at, home, megabytes)
            put_in_place(build, final, published_at)
            put_beside(build, rows, BESIDE)
            return rows, remarks

        rows, remarks = built(folder, ledger, make)
        ledger.note_publication(
            published_at=published_at,
            target=last.target,
            sweep_started_at=utc_text(last.started_at),
            reports_total=last.total,
            batches=rows["import_batch"],
            software_version=version("chartferry"),
        )
    tell_newer(home, ledger, last.target)  # loads may have ended while the tables were built
    return Publication(final, page, datetime.fromisoformat(published_at), last.target, rows, remarks)


def _build(
    build: Path, ledger: Ledger, sweep: Sweep, published_at: str, home: Path, megabytes: int
) -> tuple[dict[str, int], list[str]]:
    """Build the DuckDB file at `build`, the Parquet files as `*.part`, and the files of `BESIDE` with their suffixes.

    Returns the number of rows of every table, and the remarks on the tables.
    """
    with session(build.with_suffix(".spill"), build, megabytes) as db:
        db.execute("SET checkpoint_threshold = '1B'")  # the commit writes the file itself, and not a log first
        db.begin()
        tables = make_tables(db, ledger, sweep, published_at, home, settings_of(home))
        rows = write_files(db, tables, build, published_at)
        remarks = told_once(tables)
        _write_page(db, build.with_suffix(".html"), [*_older(home, sweep), *remarks])
        db.commit()
        db.execute("CHECKPOINT")
    if exists(build.with_name(f"{build.name}.wal")):
        raise PublicationError("the new file was not closed completely: a .wal is left")
    return rows, remarks


def _older(home: Path, sweep: Sweep) -> Iterator[str]:
    """Yield a sentence if reference data was loaded after the sweep began, so that reports may be missing."""
    try:
        loaded = datetime.fromtimestamp((home / REFERENCE_NOTE).stat().st_mtime, UTC)
    except OSError:
        return
    if sweep.started_at >= loaded:
        return
    read = f"read on {said_at(sweep.started_at)}" if exists(sweep.path) else "not read yet"
    yield (
        f"The reports were {read}. Reference data was loaded on {said_at(loaded)}, and its reports may be missing here."
    )


def _write_page(db: duckdb.DuckDBPyConnection, path: Path, notes: Sequence[str]) -> None:
    try:
        path.write_text(page_of(db, notes), encoding="utf-8")
    except duckdb.OutOfMemoryException:
        raise
    except (duckdb.Error, TemplateError) as error:  # the error's text may hold values
        raise PublicationError(f"not published: report.html could not be made ({type(error).__name__})") from None

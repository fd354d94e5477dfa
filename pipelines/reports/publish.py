"""Builds the published tables from the ledger and the sweep, checks them, and puts them in place.

Analysts open `<home>/published/reports.duckdb`, `parquet/*.parquet` and `report.html`; programs read `datapackage.json`
and `sources.yml`. Nothing is replaced before all
checks have passed, and each file is replaced in one step.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count as numbers
from os import getpid
from pathlib import Path

import duckdb
from jinja2 import TemplateError

from pipelines.home import disk
from pipelines.home.files import locked, replace_whole, session
from pipelines.home.folder import REFERENCE_NOTE
from pipelines.home.strangers import hide_strangers
from pipelines.ledger.ledger import Ledger, utc_text
from pipelines.ledger.so_far import keep_so_far
from pipelines.ledger.states import OUTCOMES
from pipelines.reports.building import FAULTS_OF_THE_TEXT, comment, make, write_parquet
from pipelines.reports.dictionary import data_package, dbt_sources
from pipelines.reports.newer import LOCK, PAGE, tell_newer
from pipelines.reports.page import page_of
from pipelines.reports.settings import ReportSettings, settings_of
from pipelines.reports.staging import (
    FREE_TEXT,
    MACROS,
    READ,
    SENDING_TIMES,
    stage_files,
    stage_ledger,
    stage_publication,
)
from pipelines.reports.sweep import Sweep, held
from pipelines.reports.tables import BrokenTable, ReportTable, report_tables
from pipelines.reports.wide import response_tables

READ_ONLY = 0o444
BESIDE = {".html": PAGE, ".json": "datapackage.json", ".yml": "sources.yml"}
"""The files beside `reports.duckdb`, by their suffix while they are made."""


class PublicationError(Exception):
    """The tables could not be built, or failed a check, so nothing was published. The message holds no data.

    by_table: the statements about single tables that are not true.
    """

    def __init__(self, message: str, by_table: Mapping[str, Sequence[str]] | None = None) -> None:
        super().__init__(message)
        self.by_table = {name: list(untrue) for name, untrue in (by_table or {}).items() if untrue}


@dataclass(frozen=True)
class Publication:
    """A finished publication: its file, its page, its time (UTC), and the number of rows of every table."""

    path: Path
    page: Path
    published_at: datetime
    target: str
    rows: dict[str, int]


def publish(home: Path, ledger: Ledger, sweep: Sweep) -> Publication:
    """Build, check and publish all tables of the sweep's target, and note the publication in the ledger.

    If a later sweep of that target has ended since, its reports are published. The publication does not wait for
    programs that have the old file open, even for writing. Raises `PublicationError` before anything is replaced.
    """
    folder = home / "published"
    (folder / "parquet").mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(folder / LOCK), held(home, sweep.target) as last:
        remove_leftovers(folder)
        build = folder / f".reports.{getpid()}.duckdb"
        final, page = folder / "reports.duckdb", folder / BESIDE[".html"]
        published_at = ledger.now()
        keep_so_far(ledger)
        try:
            rows = _build(build, ledger, last, published_at, home)
            _put_in_place(build, final, published_at)
            for part in sorted(folder.glob("parquet/*.part")):
                replace_whole(part, part.with_suffix(""), READ_ONLY)
            remove_former(folder / "parquet", set(rows))
            for suffix, name in BESIDE.items():
                replace_whole(build.with_suffix(suffix), folder / name, READ_ONLY)
        except BrokenTable as error:
            raise PublicationError(f"not published: {error}") from None
        except duckdb.Error as error:  # its text may hold values
            raise PublicationError(why(error, folder)) from None
        finally:
            remove_leftovers(folder)
        ledger.note_publication(
            published_at=published_at,
            target=last.target,
            sweep_started_at=utc_text(last.started_at),
            reports_total=last.total,
            batches=rows["import_batch"],
            software_version=version("chartferry"),
        )
    tell_newer(home, ledger, last.target)  # of loads that ended while the tables were built
    return Publication(final, page, datetime.fromisoformat(published_at), last.target, rows)


def why(error: duckdb.Error, folder: Path) -> str:
    """Return a sentence about an error whose text may hold values."""
    if disk.is_full(error):
        return disk.FULL
    if "permission denied" in str(error).lower():
        return f"{folder}: this user may not write there"
    return f"the tables could not be built ({type(error).__name__})"


def remove_leftovers(folder: Path) -> None:
    """Remove files of a publication that failed or was killed."""
    for left in [*folder.glob(".reports.*"), *folder.glob("parquet/*.part")]:
        shutil.rmtree(left) if left.is_dir() else left.unlink()


def remove_former(parquet: Path, tables: set[str]) -> None:
    """Remove Parquet files of tables no longer published. Files that others put there are writable, and stay."""
    for path in parquet.glob("*.parquet"):
        if path.stem not in tables and path.stat().st_mode & 0o777 == READ_ONLY:
            path.unlink()


def _build(build: Path, ledger: Ledger, sweep: Sweep, published_at: str, home: Path) -> dict[str, int]:
    """Build the DuckDB file at `build`, the Parquet files as `*.part`, and what is `BESIDE` them with its suffixes.

    Returns the number of rows of every table.
    """
    with session(build.with_suffix(".spill"), build) as db:
        db.begin()
        tables = make_tables(db, ledger, sweep, published_at, home, settings_of(home))
        for table in tables:
            comment(db, table)
            write_parquet(db, table, build.parent / "parquet" / f"{table.name}.parquet.part")
        rows = rows_of(db, tables)
        _write_page(db, build.with_suffix(".html"), _older(home, sweep))
        package = data_package(tables, published_at, version("chartferry"))
        build.with_suffix(".json").write_text(package, encoding="utf-8")
        build.with_suffix(".yml").write_text(dbt_sources(tables), encoding="utf-8")
        db.commit()
        db.execute("CHECKPOINT")
    if build.with_name(f"{build.name}.wal").exists():
        raise PublicationError("the new file was not closed whole: a .wal is left")
    return rows


def make_tables(
    db: duckdb.DuckDBPyConnection,
    ledger: Ledger,
    sweep: Sweep,
    published_at: str,
    home: Path,
    settings: ReportSettings,
    with_sending_times: bool = True,
) -> list[ReportTable]:
    """Make all tables in a database, and check them; return their declarations.

    with_sending_times: False if a time of sending takes the place of no time that is missing.
    """
    tables = report_tables(home)
    for macro in (FREE_TEXT[settings.publish_free_text], SENDING_TIMES[with_sending_times], *MACROS):
        db.execute(macro)
    with ledger.snapshot() as snapshot:
        stage_ledger(db, snapshot)
    stage_publication(db, sweep, published_at)
    stage_files(db, sweep, home, settings.publish_patients)
    hide_strangers(db, home)
    for table in tables:
        make(db, table)
    for table in response_tables(db, settings, {table.name for table in tables}):
        make(db, table)
        tables.append(table)
    for name in READ:
        db.unregister(name)
    _check(db, tables, sweep)
    return tables


def _older(home: Path, sweep: Sweep) -> str:
    """Return a sentence if reference data was loaded after the sweep began, so that reports may be missing."""
    try:
        loaded = datetime.fromtimestamp((home / REFERENCE_NOTE).stat().st_mtime, UTC)
    except OSError:
        return ""
    if sweep.started_at >= loaded:
        return ""
    read = f"read on {sweep.started_at:%d %B %Y, %H:%M UTC}" if sweep.path.exists() else "not read yet"
    return f"The reports were {read}; reference data was loaded on {loaded:%d %B %Y, %H:%M UTC} and may hold others."


def _write_page(db: duckdb.DuckDBPyConnection, path: Path, older: str) -> None:
    try:
        path.write_text(page_of(db, older), encoding="utf-8")
    except (duckdb.Error, TemplateError) as error:  # its text may hold values
        raise PublicationError(f"not published: report.html could not be made ({type(error).__name__})") from None


def rows_of(db: duckdb.DuckDBPyConnection, tables: Sequence[ReportTable]) -> dict[str, int]:
    """Return the number of rows of every table."""
    return {table.name: _count(db, f'SELECT count(*) FROM main."{table.name}"') for table in tables}


def _count(db: duckdb.DuckDBPyConnection, query: str) -> int:
    [[number]] = db.execute(query).fetchall()
    return int(number)


OUTCOMES_SUM = " + ".join(OUTCOMES)
ONE_RUN = "(SELECT target, batch_id FROM ledger_run GROUP BY ALL HAVING count(*) = 1)"
TOTALS: dict[str, str] = {
    "every report is in exactly one row of report_volume_by_month": """
        SELECT (SELECT count(*) FROM diagnostic_report) <> coalesce(sum(reports), 0) FROM report_volume_by_month""",
    "records = accepted + rejected, and accepted = the sum of the outcomes": f"""
        SELECT count(*) FROM ledger_batch
        WHERE state = 'finished' AND (records <> accepted + rejected OR accepted <> {OUTCOMES_SUM})""",
    "a batch of one finished run has as many rows as accepted records": f"""
        SELECT count(*) FROM ledger_batch
        SEMI JOIN {ONE_RUN} AS one_run USING (target, batch_id)
        LEFT JOIN (SELECT target, batch_id, count(*) AS row_count FROM import_row GROUP BY ALL) USING (target, batch_id)
        WHERE state = 'finished' AND accepted <> coalesce(row_count, 0)""",
    "every refused row is a reject": """
        SELECT count(*) FROM import_row ANTI JOIN (
            SELECT target, batch_id, line FROM ledger_reject
            UNION
            SELECT target, batch_id, line FROM ledger_resubmission
        ) AS set_aside USING (target, batch_id, line)
        WHERE import_row.state = 'refused'""",
    "the payments created are those of the ledger, to the cent": """
        SELECT (SELECT coalesce(sum(created), 0) FROM payment_reconciliation) <> coalesce(sum(amount), 0)
        FROM (SELECT * FROM ledger_record UNION ALL BY NAME SELECT * FROM ledger_repeat)
        WHERE state IN ('created', 'adopted') AND resource_type = 'PaymentNotice'
            AND target IN (SELECT target FROM this_publication)""",
}
"""Statements about the tables, each with a query that gives 0 if it is true."""


def _check(db: duckdb.DuckDBPyConnection, tables: list[ReportTable], sweep: Sweep) -> None:
    """Raise `PublicationError` with every statement about the tables that is not true."""
    by_table = {table.name: _false_of(db, table) for table in tables}
    failed = [name for untrue in by_table.values() for name in untrue]
    failed += [name for name, query in TOTALS.items() if _count(db, query) != 0]
    if _count(db, "SELECT count(*) FROM diagnostic_report") != sweep.total:
        failed.append("diagnostic_report has as many rows as the target counts reports")
    if failed:
        raise PublicationError(f"not published, because these are not true: {'; '.join(failed)}", by_table)


def _false_of(db: duckdb.DuckDBPyConnection, table: ReportTable) -> list[str]:
    """Return the statements of the table's header that are not true. Raises `BrokenTable`."""
    try:
        return list(_doubles_and_lost(db, table))
    except FAULTS_OF_THE_TEXT:
        raise BrokenTable(f"{table.file}: its key or references name what is not there") from None


def _doubles_and_lost(db: duckdb.DuckDBPyConnection, table: ReportTable) -> Iterator[str]:
    key = ", ".join(f'"{name}"' for name in table.key)
    if key and _count(
        db, f'SELECT count(*) FROM (FROM main."{table.name}" SELECT 1 GROUP BY {key} HAVING count(*) > 1)'
    ):
        yield f"{table.name} has one row per {key}"
    for column, other in table.references:
        elsewhere = f'SELECT "{column}" FROM main."{other}"'
        lost = f'''SELECT count(*) FROM main."{table.name}"
            WHERE "{column}" IS NOT NULL AND "{column}" NOT IN ({elsewhere})'''
        if _count(db, lost):
            yield f"every {column} of {table.name} is in {other}"


def _put_in_place(build: Path, final: Path, published_at: str) -> None:
    """Replace the published file, keep the old one beside it, and move a foreign `.wal` out of the way."""
    if final.exists():
        part = final.with_name(".reports.previous")
        part.hardlink_to(final)
        part.replace(final.with_name("reports.previous.duckdb"))
    _move_foreign_wal(final, published_at)
    replace_whole(build, final, READ_ONLY)
    _move_foreign_wal(final, published_at)


def _move_foreign_wal(final: Path, published_at: str) -> None:
    """Rename the `.wal` that another writer left: DuckDB would apply it to the new file, which has the same name."""
    stamp = published_at.replace(":", "")
    with suppress(FileNotFoundError):
        for number in numbers(1):
            aside = final.with_name(f"reports.foreign-{stamp}{f'-{number}' if number > 1 else ''}.wal")
            if not aside.exists():
                final.with_name(f"{final.name}.wal").rename(aside)

"""The input of a rehearsal, and its copies: of a store, of the ledger, of unfinished batches."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, ignore_patterns

from sqlalchemy import create_engine, inspect, select

from fhir_service.paths import exists
from pipelines.home.batch import SOURCE, received_before
from pipelines.home.inbox import BATCHES
from pipelines.ledger import tables as t
from pipelines.ledger.columns import metadata
from pipelines.ledger.database import address_of, shown_address
from pipelines.ledger.home_batches import HomeBatches
from pipelines.ledger.ledger import Ledger
from pipelines.session.bundled import STORE, copy_named_store, copy_store, load_store
from pipelines.session.confirmations import without_end
from pipelines.session.ledger import ledger_of
from pipelines.session.session import Session

ROWS_A_COPY = 5_000


@dataclass(frozen=True)
class RehearsalInput:
    """The input of a rehearsal.

    * paths: files and folders; if empty, the inbox and unfinished batches.
    * reference: a folder with reference data for a new store, instead of a copy of the home's store.
    * store: another store to copy, a DuckDB file or a database's URL.
    * out: the path of the report.
    * against: the path of an earlier report to compare with.
    """

    home: Path
    feeds: Sequence[Path] = ()
    paths: Sequence[Path] = ()
    reference: Path | None = None
    out: Path | None = None
    against: Path | None = None
    store: str | None = None


def make_store(wanted: RehearsalInput, folder: Path, environ: Mapping[str, str], say: Callable[[str], None]) -> str:
    """Make the store of a rehearsal in a folder; return the store's description."""
    if wanted.store and not wanted.reference:
        copy_named_store(wanted.store, folder / STORE, environ)
        return f"a copy of {shown_address(address_of(wanted.store))}"
    if wanted.reference is None:
        copy_store(wanted.home, folder / STORE, environ, say)
        return f"a copy of {wanted.home / STORE}"
    refused = folder / "refused.ndjson"
    load_store(folder / STORE, wanted.reference, refused, environ)
    if exists(refused):
        say(f"{len(refused.read_bytes().splitlines()):,} reference records were refused")
    return f"a new store with {wanted.reference}"


def bring_unfinished(home: Path, environ: Mapping[str, str], session: Session) -> None:
    """Copy the files of unfinished batches, which an import without paths would continue. session: that of the copy."""
    with _batches_of(home, environ) as batches:
        for name in without_end(session.ledger, session.target, batches.names(), session.catalog):
            if received_before(batches.renew(name, *SOURCE)):
                copytree(batches.path / name, session.batches.path / name, ignore=ignore_patterns("run-*"))


@contextmanager
def _batches_of(home: Path, environ: Mapping[str, str]) -> Iterator[HomeBatches]:
    """Yield the batches of a home, wherever they are kept."""
    with ledger_of(home, environ) if environ.get(BATCHES) else nullcontext() as ledger:
        yield ledger.batches_in(home) if ledger else HomeBatches(home / "batches")


def copy_ledger(home: Path, environ: Mapping[str, str], to: Path) -> None:
    """Copy the present ledger of the home into a file, without the lease that a loader may hold."""
    with ledger_of(home, environ) as ledger:  # brought up to its journal, and to today's schema
        if ledger is None:
            return
    address = address_of(environ.get("CHARTFERRY_LEDGER") or home / "ledger.db")
    if address.get_backend_name() == "sqlite":
        with closing(sqlite3.connect(str(address.database))) as source, closing(sqlite3.connect(to)) as copy:
            source.backup(copy)
    else:
        _copy_tables(address.render_as_string(hide_password=False), to)
    with closing(Ledger.open(to, journal=False)) as ledger, ledger.transaction() as connection:
        connection.execute(t.lease.delete())
        connection.execute(t.part.delete())


def _copy_tables(url: str, to: Path) -> None:
    source = create_engine(url, hide_parameters=True, isolation_level="REPEATABLE READ")
    try:
        into = Ledger.open(to, journal=False)
        with closing(into), source.connect() as reading, into.transaction() as writing:
            there = set(inspect(reading).get_table_names())
            for table in metadata.sorted_tables:
                if table.name in there and table not in (t.schema_version, t.journal):
                    for rows in reading.execution_options(yield_per=ROWS_A_COPY).execute(select(table)).partitions():
                        writing.execute(table.insert(), [dict(row._mapping) for row in rows])
    finally:
        source.dispose()

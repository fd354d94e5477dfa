"""`chartferry rehearse`: the whole import, against a throw-away store and a copy of the ledger.

The work is done here, in a folder that is removed at the end; `rehearsed.py` makes the report.
"""

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import copytree, ignore_patterns

import pyarrow as pa
from sqlalchemy import Engine, create_engine, inspect, select
from sqlalchemy.engine import make_url

from pipelines.client.client import TargetUnusable
from pipelines.feeds.files.catalog import home_catalog
from pipelines.home.batch import Unreadable, received_before
from pipelines.home.folder import make_private
from pipelines.home.inbox import Inbox
from pipelines.home.preparing import prepare_home
from pipelines.home.progress import Progress
from pipelines.home.scratch import throwaway_folder
from pipelines.home.spill import Writer
from pipelines.ledger import tables as t
from pipelines.ledger.database import address_of
from pipelines.ledger.in_step import InStep
from pipelines.ledger.lease import Clock
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rejects import settle_resubmitted
from pipelines.ledger.rows import Outcome, Reject, Repeat, SoFar
from pipelines.ledger.tables import LedgerError
from pipelines.rehearsing.rehearsed import Earlier, File, Rehearsed, accounts, write_report
from pipelines.runs.batch import import_file
from pipelines.runs.run import Result
from pipelines.runs.summary import Summary
from pipelines.session.connections import STORE, connect, copy_named_store, copy_store, load_store
from pipelines.session.opening import has_ledger, open_ledger
from pipelines.session.queries import asked, with_queries
from pipelines.session.session import Session
from pipelines.session.waiting import Waiting, find_files, unfinished

KEPT = ("FHIR_SERVICE_VENDOR", "FHIR_SERVICE_CUSTOMER", "FHIR_SERVICE_MAX_BODY", "FHIR_SERVICE_MAX_BATCH")
ROWS_A_COPY = 5_000
EVENTS = pa.schema(
    {
        "n": pa.int64(),
        "line": pa.int64(),
        "key": pa.string(),
        "state": pa.string(),
        "http_status": pa.int32(),
        "reasons": pa.string(),
    }
)
"""The facts that a rehearsal's ledger got on a file's rows, in order: by line where that was given, else by key."""


@dataclass(frozen=True)
class Wanted:
    """The input of a rehearsal.

    paths: files and folders (none: the inbox, and batches without an end). reference: a folder for a new store, instead
    of a copy of the home's. store: another one to copy, a DuckDB file or a database's URL. out: the place of the
    report.
    """

    home: Path
    feeds: Sequence[Path] = ()
    paths: Sequence[Path] = ()
    reference: Path | None = None
    out: Path | None = None
    against: Path | None = None
    store: str | None = None


def rehearse(wanted: Wanted, environ: Mapping[str, str], progress: Progress) -> Rehearsed:
    """Import into a copy, and report the outcome of every row. Nothing of the home changes, except the report.

    Raises what an import raises: FeedError, TargetUnusable, LedgerError; and `Unreadable` for a path that leads nowhere
    or an earlier report that is none.
    """
    for path in wanted.paths:
        if not path.exists():
            raise Unreadable(f"{path}: there is no such file or folder")
    earlier = Earlier.read(wanted.against) if wanted.against else None
    home = wanted.home
    if not (wanted.reference or wanted.store or (home / STORE).exists()):
        if not (store := environ.get("FHIR_SERVICE_STORE")):
            raise TargetUnusable(f"{home} has no bundled store to copy: name --reference DIR, or --store of a service")
        wanted = replace(wanted, store=store)
    make_private(home)
    with throwaway_folder(home) as folder:
        prepare_home(folder)
        copy_ledger(home, environ, folder / "ledger.db")
        ours = {name: value for name, value in environ.items() if not name.startswith(("FHIR_", "CHARTFERRY_"))}
        ours |= {name: environ[name] for name in KEPT if environ.get(name)}
        progress.stage("copy", "store")
        label = _make_store(wanted, folder, ours, progress)
        progress.end()
        before = accounts(folder / STORE, folder)
        summary, files = _import(wanted, folder, ours, environ, label, progress)
        after = accounts(folder / STORE, folder)
        return write_report(_report_path(wanted), folder, summary, files, (before, after), earlier)


def _make_store(wanted: Wanted, folder: Path, environ: Mapping[str, str], progress: Progress) -> str:
    if wanted.store and not wanted.reference:
        copy_named_store(wanted.store, folder / STORE, environ)
        shown = make_url(wanted.store).render_as_string(hide_password=True) if "://" in wanted.store else wanted.store
        return f"a copy of {shown}"
    if wanted.reference is None:
        copy_store(wanted.home, folder / STORE, environ, progress.say)
        return f"a copy of {wanted.home / STORE}"
    refused = folder / "refused.ndjson"
    load_store(folder / STORE, wanted.reference, refused, environ)
    if refused.exists():
        progress.say(f"{len(refused.read_bytes().splitlines()):,} reference records were refused")
    return f"a new store with {wanted.reference}"


def _report_path(wanted: Wanted) -> Path:
    if wanted.out:
        return wanted.out
    folder = wanted.home / "rehearsals"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.json"


# -- the import


def _import(
    wanted: Wanted,
    folder: Path,
    ours: Mapping[str, str],
    environ: Mapping[str, str],
    label: str,
    progress: Progress,
) -> tuple[Summary, list[File]]:
    catalog = home_catalog(wanted.home, environ, wanted.feeds)
    watched = Watched.open(folder / "ledger.db", journal=False)
    with closing(watched) as ledger, connect(folder, ours, say=progress.say) as connection:
        inbox = Inbox.of(wanted.home, environ)
        session = Session.at(connection, folder, catalog, ledger, inbox, progress=progress, strict=True)
        summary = Summary(f"{label} ({session.target}), thrown away", session.target)
        found, summary.unmatched = find_files(wanted.paths or [inbox.folder], catalog, ledger, inbox)
        if not wanted.paths:
            _bring_unfinished(wanted.home, folder, ledger, session.target)
            found = [*unfinished(session), *found]
        files: list[File] = []
        for number, waiting in enumerate(_with_queries(session, found, summary, asking=not wanted.paths)):
            events = folder / f"events-{number}.parquet"
            try:
                with ledger.watching(events):
                    result = import_file(session, waiting)
            except LedgerError as error:
                summary.error = str(error)
                break
            summary.results.append(result)
            snapshot = session.snapshot_for(waiting.feed.resource) if result.count("refused") else None
            files.append(File(result, waiting.feed, events, connection.site, snapshot))
            if result.unusable:
                summary.error = result.message
                break
        settle_resubmitted(ledger, session.target)
    return summary, files


def _with_queries(session: Session, found: Sequence[Waiting], summary: Summary, asking: bool) -> Iterator[Waiting]:
    """Files, and behind them what databases have, where they are asked."""
    yield from found
    for feed in with_queries(session) if asking else ():
        try:
            with asked(session, feed) as got:
                if got.waiting:
                    yield got.waiting
                else:
                    summary.nothing_new.append(feed.name)
        except Unreadable as error:
            summary.results.append(Result(None, None, feed.name, feed.name, "failed", message=str(error)))


def _bring_unfinished(home: Path, folder: Path, ledger: Ledger, target: str) -> None:
    """The files of batches that have not ended, as an import without paths would take them up."""
    known = {row["batch_id"] for row in ledger.batches()}
    running = {row["batch_id"] for row in ledger.batches(target) if row["state"] == "running"}
    batches = home / "batches"
    for batch in sorted(batches.iterdir()) if batches.is_dir() else ():
        if (batch.name in running or batch.name not in known) and received_before(batch):
            copytree(batch, folder / "batches" / batch.name, ignore=ignore_patterns("run-*"))


class Watched(Ledger):
    """A ledger that also lists, in order, the facts about rows while a file is imported."""

    def __init__(self, engine: Engine, clock: Clock, in_step: InStep | None = None) -> None:
        super().__init__(engine, clock, in_step)
        self._events: Writer | None = None
        self._turn = threading.Lock()

    @contextmanager
    def watching(self, path: Path) -> Iterator[None]:
        with Writer(path, EVENTS) as self._events:
            yield
        self._events = None

    def _tell(self, line: int | None, key: str | None, state: str, status: int | None = None, why: str = "") -> None:
        with self._turn:
            if self._events:
                self._events.add(self._events.count, line, key, state, status, why or None)

    def settle(
        self, target: str, source: str, resource_type: str, outcomes: Iterable[Outcome], so_far: SoFar | None = None
    ) -> None:
        told = list(outcomes)
        super().settle(target, source, resource_type, told, so_far)
        for each in told:
            self._tell(None, each.key, each.state, each.http_status)

    def note_repeats(
        self,
        target: str,
        source: str,
        resource_type: str,
        batch_id: str,
        repeats: Iterable[Repeat],
        at: str | None = None,
    ) -> None:
        told = list(repeats)
        super().note_repeats(target, source, resource_type, batch_id, told, at)
        for each in told:
            self._tell(each.line, each.key, each.state)

    def reject(
        self, target: str, source: str, resource_type: str, batch_id: str, rejects: Iterable[Reject]
    ) -> list[str]:
        told = list(rejects)
        for each in told:
            state = "refused" if each.stage == "load" else "rejected"
            self._tell(each.line, each.source_key, state, None, json.dumps([list(reason) for reason in each.reasons]))
        return super().reject(target, source, resource_type, batch_id, told)


# -- the ledger


def copy_ledger(home: Path, environ: Mapping[str, str], to: Path) -> None:
    """The ledger of the home as of now, in a file of its own, without the lease that a loader may hold."""
    if not has_ledger(home, environ):
        return
    open_ledger(home, environ).close()  # brought up to its journal, and to today's form
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
            for table in t.metadata.sorted_tables:
                if table.name in there and table not in (t.schema_version, t.journal):
                    for rows in reading.execution_options(yield_per=ROWS_A_COPY).execute(select(table)).partitions():
                        writing.execute(table.insert(), [dict(row._mapping) for row in rows])
    finally:
        source.dispose()

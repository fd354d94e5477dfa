"""`chartferry rehearse`: the whole import, against a throw-away store and a copy of the ledger.

The work is done here, in a folder that is removed at the end; `report.py` makes the report.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from fhir_service.paths import exists
from pipelines.client.replies import TargetUnusable
from pipelines.home.batch import UnreadableFile
from pipelines.home.folder import make_private
from pipelines.home.preparing import prepare_home
from pipelines.home.progress import Progress
from pipelines.home.scratch import throwaway_folder
from pipelines.rehearsing.copying import RehearsalInput, copy_ledger, make_store
from pipelines.rehearsing.rehearsal_session import try_import
from pipelines.rehearsing.report import EarlierOutcomes, RehearsalResult, accounts, write_report
from pipelines.session.bundled import STORE

KEPT = ("FHIR_SERVICE_VENDOR", "FHIR_SERVICE_CUSTOMER", "FHIR_SERVICE_MAX_BODY", "FHIR_SERVICE_MAX_BATCH")


def rehearse(wanted: RehearsalInput, environ: Mapping[str, str], progress: Progress) -> RehearsalResult:
    """Import into a copy, and report the outcome of every row. Nothing of the home changes, except the report.

    Raises the errors of an import: FeedError, TargetUnusable, LedgerError; and `UnreadableFile` for a missing path, or
    for an earlier report that is not one.
    """
    for path in wanted.paths:
        if not exists(path):
            raise UnreadableFile(f"{path}: there is no such file or folder")
    earlier = EarlierOutcomes.read(wanted.against) if wanted.against else None
    home = wanted.home
    if not (wanted.reference or wanted.store or exists(home / STORE)):
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
        label = make_store(wanted, folder, ours, progress.say)
        progress.end()
        before = accounts(folder / STORE, folder)
        summary, files = try_import(wanted, folder, ours, environ, label, progress)
        after = accounts(folder / STORE, folder)
        return write_report(_report_path(wanted), folder, summary, files, (before, after), earlier)


def _report_path(wanted: RehearsalInput) -> Path:
    if wanted.out:
        return wanted.out
    folder = wanted.home / "rehearsals"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.json"

"""The import that a person asks for: of files, of a batch loaded again or confirmed, or of a database's rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines.corrections.reloading import plan_again
from pipelines.importing.all_files import import_all
from pipelines.importing.begin_and_end import summary_of
from pipelines.importing.import_options import ImportOptions
from pipelines.importing.imports import import_paths, import_remapped, import_whole
from pipelines.ledger.tables import NotPossible
from pipelines.runs.lines import aligned
from pipelines.runs.summary import Summary
from pipelines.session.bundled import STORE, load_reference
from pipelines.session.confirmations import COPAYMENTS, NEW, is_confirmed, waits
from pipelines.session.session import Session
from pipelines.session.waiting_files import WaitingFile, received_batches

NOT_LOADED = (
    "the reference data is not loaded, since the target is not the bundled service: chartferry reference load sends it"
)
LOADED = ("type", "created", "unchanged", "updated", "refused", "unresolved")


def carry_out(asked: ImportOptions, session: Session, paths: Sequence[Path]) -> Summary:
    """Run the import, and return its summary. paths: of files and folders; empty for the inbox."""
    if asked.again:
        return import_again(session, asked.again)
    if asked.copayments:
        return import_confirmed(session, asked.copayments, COPAYMENTS)
    if asked.new:
        return import_confirmed(session, asked.new, NEW)
    if asked.whole:
        return import_whole(session, asked.whole, asked.dry_run)
    if asked.remap:
        return import_remapped(session, paths)
    return import_paths(session, paths, asked.dry_run)


def load_first(session: Session, reference: Path, environ: Mapping[str, str]) -> None:
    """Load reference data into the store of the bundled service, and show the counts. Raises `TargetUnusable`.

    To any other target nothing is sent, and that is said.
    """
    if not session.connection.bundled:
        session.progress.say(NOT_LOADED)
        return
    loaded = load_reference(session.home / STORE, [reference], environ, takes_foreign=False)
    rows = [LOADED, *([str(each[name]) for name in LOADED] for each in loaded["counts"])]
    for line in aligned(rows, texts=1):
        session.progress.say(line)
    if loaded["refused_file"]:
        session.progress.say(f"Some reference records were refused, see {loaded['refused_file']}; the import goes on.")


def import_again(session: Session, batch_id: str) -> Summary:
    """Load a batch's records that were taken back or are gone. Raises `NotPossible`, `TargetUnusable`."""
    found = _received(session, batch_id)
    plan_again(session, batch_id)
    return import_all(session, summary_of(session), [found])


def import_confirmed(session: Session, batch_id: str, command: str) -> Summary:
    """Load a file that waits for a confirmation by this command, and record the decision. Raises `NotPossible`."""
    ledger, target, found = session.ledger, session.target, _received(session, batch_id)
    if not is_confirmed(ledger, target, batch_id, command, found.feed):
        if not waits(ledger, target, batch_id, command):
            raise NotPossible(f"{batch_id}: nothing to confirm: it does not wait for {command}")
        session.decide(command, [batch_id])
    return import_all(session, summary_of(session), [found])


def _received(session: Session, batch_id: str) -> WaitingFile:
    session.ledger.known_batch(session.target, batch_id)
    for found in received_batches(session, [batch_id]):
        return found
    raise NotPossible(
        f"{batch_id}: its source rows are not in this home: import its file again, then repeat the command"
    )

"""The import that a person asks for: of files, of a batch loaded again or confirmed, or of a database's rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pipelines.corrections.reloading import plan_again
from pipelines.importing.all_files import import_all
from pipelines.importing.begin_and_end import summary_of
from pipelines.importing.imports import import_paths, import_remapped, import_whole
from pipelines.ledger.tables import NotPossible
from pipelines.runs.summary import Summary
from pipelines.session.confirmations import COPAYMENTS, NEW, is_confirmed, waits
from pipelines.session.session import Session
from pipelines.session.waiting_files import WaitingFile, received_batches


class ImportOptions(NamedTuple):
    """The options that select an import. again, copayments, new: a batch. whole: a feed.

    clock_is_right: True to continue the ledger's times from the clock, although the ledger has later ones.
    """

    again: str | None
    copayments: str | None
    new: str | None
    whole: str | None
    remap: bool
    dry_run: bool
    clock_is_right: bool

    def contradiction(self, places: Sequence[Path | str], why: str | None) -> str | None:
        """Return a sentence about options that exclude each other; None if they are compatible."""
        again, copayments, new, whole, remap, dry_run, clock_is_right = self
        alone = places or dry_run or remap
        contradictions = {
            "--again BATCH excludes paths, --dry-run and --remap": again and alone,
            "--copayments BATCH excludes paths, --dry-run, --remap and --again": copayments and (alone or again),
            "--new BATCH excludes paths, --dry-run, --remap, --again and --copayments": new
            and (alone or again or copayments),
            "--whole FEED excludes paths, --remap, --again, --copayments and --new": whole
            and (places or remap or again or copayments or new),
            "--remap and --dry-run exclude each other": remap and dry_run,
            "--clock-is-right and --dry-run exclude each other": clock_is_right and dry_run,
            "--why needs one of --again, --copayments, --new, --remap and --clock-is-right": why
            and not (again or copayments or new or remap or clock_is_right),
        }
        return next((sentence for sentence, is_there in contradictions.items() if is_there), None)

    def carry_out(self, session: Session, paths: Sequence[Path]) -> Summary:
        """Run the import, and return its summary. paths: of files and folders; empty for the inbox."""
        if self.again:
            return import_again(session, self.again)
        if self.copayments:
            return import_confirmed(session, self.copayments, COPAYMENTS)
        if self.new:
            return import_confirmed(session, self.new, NEW)
        if self.whole:
            return import_whole(session, self.whole, self.dry_run)
        if self.remap:
            return import_remapped(session, paths)
        return import_paths(session, paths, self.dry_run)


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

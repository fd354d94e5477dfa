"""Take in files from the inbox beyond the home, for an import by command."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pipelines.home.counted import counted, word_for
from pipelines.home.file_growth import QUIET
from pipelines.home.objects import ObjectInbox
from pipelines.home.stores import StoreUnusable
from pipelines.ledger.tables import LedgerError
from pipelines.receiving.objects import TakenObjects, take_in
from pipelines.session.session import Session
from pipelines.session.waiting_files import LeftFile, WaitingFile

BUSY = "the file was changed a moment ago: import again when it is complete"


@dataclass(frozen=True)
class TakenIn:
    """The batches taken in for an import, and the objects left in the inbox."""

    waiting: list[WaitingFile] = field(default_factory=list)
    left: list[LeftFile] = field(default_factory=list)
    inbox: ObjectInbox | None = None
    taken: TakenObjects = field(default_factory=TakenObjects)

    def note(self, session: Session) -> None:
        """Note objects as taken whose run has begun. An object that is not noted is taken again."""
        try:
            for each in self.taken.received:
                if self.inbox and each.is_begun(session.ledger):
                    self.inbox.note(each.export)
        except (StoreUnusable, LedgerError) as error:
            session.progress.say(
                f"{session.inbox.beyond}: some files that were received could not be marked as received ({error}):"
                " the next import receives them again"
            )


def take_objects(session: Session, dry_run: bool) -> TakenIn:
    """Take in the files that wait beyond the home. Raises `LedgerError`, `StoreUnusable`.

    Objects that were written just now are looked at a second time. A dry run keeps nothing, so it takes none.
    """
    if dry_run:
        if session.inbox.beyond:
            session.progress.say(
                f"{session.inbox.beyond}: a dry run does not read this inbox; to check a file, name a copy of it"
            )
        return TakenIn()
    try:
        inbox = ObjectInbox.of(session.inbox, session.target)
        return _taken(session, inbox) if inbox else TakenIn()
    except StoreUnusable as error:
        raise StoreUnusable(f"the inbox cannot be reached: {error}") from None


def _taken(session: Session, inbox: ObjectInbox) -> TakenIn:
    quiet = QUIET.total_seconds()
    found = inbox.look({}, datetime.now(UTC), quiet)
    if found.still:
        session.progress.say(f"{inbox.place}: some files were written just now; looking again in {quiet:.0f} s")
        time.sleep(quiet)
        found = inbox.look(found.still, datetime.now(UTC), quiet)
    if found.before:
        files = counted(found.before, "file there was", "files there were")
        has = word_for(found.before, "has", "have")
        session.progress.say(f"{inbox.place}: {files} received before, and {has} not changed")
    taken = take_in(inbox, found, session.home, session.catalog, session.ledger)
    waiting = [WaitingFile(each.batch.path_in_batch, each.feed, each.batch) for each in taken.received]
    left = {**dict.fromkeys(found.still, BUSY), **taken.left}
    return TakenIn(waiting, [LeftFile(Path(name), why) for name, why in sorted(left.items())], inbox, taken)

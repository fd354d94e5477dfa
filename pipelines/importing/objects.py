"""What waits in the inbox beyond the home, for an import that somebody asks for."""

import time
from datetime import UTC, datetime
from pathlib import Path

from pipelines.home.objects import ObjectInbox
from pipelines.home.stores import StoreUnusable
from pipelines.ledger.tables import LedgerError
from pipelines.receiving.objects import Taken, take_in
from pipelines.receiving.written import QUIET
from pipelines.session.session import Session
from pipelines.session.waiting import Left, Waiting

BUSY = "it has changed just now: import again when it is complete"


class InboxUnusable(LedgerError):
    """The inbox beyond the home cannot be used: one sentence."""


def take_objects(session: Session, dry_run: bool) -> tuple[list[Waiting], list[Left]]:
    """Take in what waits beyond the home; return the batches, and what is left there. Raises `LedgerError`.

    Objects that were written just now are looked at a second time. A dry run, which keeps nothing, takes none.
    """
    if dry_run:
        if session.inbox.beyond:
            session.progress.say(f"{session.inbox.beyond}: not looked at by a dry run: name a copy of a file")
        return [], []
    try:
        inbox = ObjectInbox.of(session.inbox)
        return _taken(session, inbox) if inbox else ([], [])
    except StoreUnusable as error:
        raise InboxUnusable(f"the inbox is out of reach: {error}") from None


def _taken(session: Session, inbox: ObjectInbox) -> tuple[list[Waiting], list[Left]]:
    quiet = QUIET.total_seconds()
    found = inbox.look((), datetime.now(UTC), quiet)
    if found.still:
        session.progress.say(f"{inbox.place}: some files were written just now; looking again in {quiet:.0f} s")
        time.sleep(quiet)
        found = inbox.look(found.still, datetime.now(UTC), quiet)
    taken: Taken = take_in(inbox, found, session.home, session.catalog, session.ledger)
    waiting = [Waiting(received.path_in_batch, feed, received) for feed, received in taken.received]
    busy = {name: BUSY for name, seen in found.lying.items() if seen.mark in found.still}
    return waiting, [Left(Path(name), why) for name, why in sorted({**busy, **taken.left}.items())]

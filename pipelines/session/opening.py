"""Open a session at a target: the one that the environment names, or another that answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pipelines.client.pace import pace_of, retention_of
from pipelines.feeds.files.catalog import Catalog, home_catalog
from pipelines.home import traces
from pipelines.home.garbage_collection import seldom
from pipelines.home.inbox import Inbox
from pipelines.home.preparing import prepare_home
from pipelines.home.progress import Progress
from pipelines.ledger.ledger import Ledger
from pipelines.session.connections import TargetConnection, connect
from pipelines.session.known_target import known_target
from pipelines.session.ledger import COPIES, open_ledger
from pipelines.session.session import Session


@contextmanager
def open_session(
    home: Path,
    environ: Mapping[str, str],
    feed_folders: Sequence[Path] = (),
    insecure: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
    anew: bool = False,
    why: str | None = None,
    begun: Callable[[], str] | None = None,
) -> Iterator[Session]:
    """Yield a session at the environment's target. Raises FeedError, BadSetting, TargetUnusable, LedgerError.

    anew: True to begin a new journal from the ledger's tables if the journal is gone. why: the reason of decisions by
    hand. begun: see `connect`.
    """
    progress = progress or Progress()
    pace, keep_days = pace_of(environ), retention_of(environ)
    prepare_home(home)
    if lacking := traces.start(environ):
        progress.say(lacking)
    catalog = home_catalog(home, environ, feed_folders)
    with (
        seldom(),
        connect(home, environ, insecure, progress.say, begun) as connection,
        closing(open_ledger(home, environ, anew)) as ledger,
    ):
        if taken := ledger.take_up_journal(home):
            progress.say(f"the ledger was older than the copies of its journal (lines that it lacked: {taken:,})")
        inbox = Inbox.of(home, environ)
        settings = {"progress": progress, "strict": strict, "pace": pace, "keep_days": keep_days, "why": why}
        settings |= {"copies_to": environ.get(COPIES) or None}
        session = session_at(connection, home, catalog, ledger, inbox, **settings)
        session.batches.agree()
        yield session


def session_at(
    connection: TargetConnection,
    home: Path,
    catalog: Catalog,
    ledger: Ledger,
    inbox: Inbox | None = None,
    **settings: Any,
) -> Session:
    """Return a session at the target of a connection, and note the target in the ledger. Raises `TargetUnusable`."""
    target = known_target(connection, ledger, home)
    others = ledger.note_target(target, connection.base_url)
    session = Session(home, catalog, ledger, connection, target, others, inbox or Inbox(home / "inbox"), **settings)
    session.strict = session.strict or connection.ours
    return session

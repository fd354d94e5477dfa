"""Open the ledger of a home, and a session at the target that the environment names."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import permutations
from pathlib import Path

from pipelines.client.pace import pace_of, retention_of
from pipelines.feeds.files.catalog import home_catalog
from pipelines.home import traces
from pipelines.home.inbox import BATCHES, BEYOND, Inbox
from pipelines.home.preparing import prepare_home
from pipelines.home.progress import Progress
from pipelines.ledger.access import JOURNAL
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import LedgerError
from pipelines.session.connections import connect
from pipelines.session.session import COPIES, Session
from pipelines.session.upgrading import take_outcomes


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
) -> Iterator[Session]:
    """A session at the target of the environment. Raises FeedError, BadTarget, BadPace, TargetUnusable, LedgerError.

    anew: whether a journal that is gone is begun with what the ledger has. why: the reason of decisions by hand.
    """
    progress = progress or Progress()
    pace, keep_days = pace_of(environ), retention_of(environ)
    prepare_home(home)
    if lacking := traces.start(environ):
        progress.say(lacking)
    catalog = home_catalog(home, environ, feed_folders)
    with (
        connect(home, environ, insecure, progress.say) as connection,
        closing(open_ledger(home, environ, anew)) as ledger,
    ):
        if taken := ledger.take_up_journal(home):
            progress.say(f"the ledger was older than the copies of its journal, which had {taken:,} more lines")
        inbox = Inbox.of(home, environ)
        settings = {"progress": progress, "strict": strict, "pace": pace, "keep_days": keep_days, "why": why}
        settings |= {"copies_to": environ.get(COPIES) or None}
        session = Session.at(connection, home, catalog, ledger, inbox, **settings)
        session.batches.agree()
        yield session


def open_ledger(home: Path, environ: Mapping[str, str], anew: bool = False) -> Ledger:
    """The home's ledger, or the one that the environment names. Raises `LedgerError`.

    anew: whether a journal that is gone is begun with what the ledger has.
    """
    url = environ.get("CHARTFERRY_LEDGER")
    if url and "://" not in url:
        raise LedgerError("CHARTFERRY_LEDGER is not the URL of a database (postgresql+psycopg://...)")
    batches = home / "batches"
    ledger = Ledger.open(
        url or home / "ledger.db", anew=anew, copies=batches / "journal", first=partial(take_outcomes, batches)
    )
    if (place := environ.get(BATCHES)) and Path(place).absolute() != batches.absolute():
        if problem := _not_apart(environ):
            ledger.close()
            raise LedgerError(problem)
        ledger.keep_batches(batches, place)
    return ledger


def _not_apart(environ: Mapping[str, str]) -> str | None:
    """Return a sentence about settings whose places are one, or lie within one another."""
    places = {name: f"{environ[name].rstrip('/')}/" for name in (BATCHES, COPIES, BEYOND) if environ.get(name)}
    for (one, its), (other, others) in permutations(places.items(), 2):
        if its == others:
            return f"{one} and {other} name one place: give each a prefix of its own"
        if its.startswith(others) and other != BEYOND:  # what lies deeper than an inbox is not looked at
            return f"{one} lies within {other}: give each a prefix of its own"
    return None


def has_ledger(home: Path, environ: Mapping[str, str]) -> bool:
    """True if there is a ledger to look into, without making one."""
    return bool(environ.get("CHARTFERRY_LEDGER")) or any((home / name).exists() for name in ("ledger.db", JOURNAL))

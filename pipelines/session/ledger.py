"""Open the ledger of a home, and nothing else. Commands that need no target import only this."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from itertools import permutations
from pathlib import Path

from fhir_service.paths import exists
from pipelines.home.inbox import BATCHES, BEYOND
from pipelines.ledger.access import JOURNAL
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import LedgerError
from pipelines.session.upgrading import take_outcomes

COPIES = "CHARTFERRY_COPIES"
"""The place where each publication is copied: a folder, or a prefix of an object store."""


def open_ledger(home: Path, environ: Mapping[str, str], anew: bool = False) -> Ledger:
    """Open the home's ledger, or the one that the environment names. Raises `LedgerError`.

    anew: True to begin a new journal from the ledger's tables if the journal is gone.
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
        if ledger.stored:  # machines that share files date them by their common clock
            ledger.stored.clock, ledger.of_here = ledger.clock, lambda moment: moment
    return ledger


def _not_apart(environ: Mapping[str, str]) -> str | None:
    """Return a sentence about settings whose places are equal or inside one another; None if there are none."""
    places = {name: f"{environ[name].rstrip('/')}/" for name in (BATCHES, COPIES, BEYOND) if environ.get(name)}
    for (one, its), (other, others) in permutations(places.items(), 2):
        if its == others:
            return f"{one} and {other} name one place: give each a prefix of its own"
        if its.startswith(others) and other != BEYOND:  # files deeper in an inbox are not looked at
            return f"{one} lies within {other}: give each a prefix of its own"
    return None


def has_ledger(home: Path, environ: Mapping[str, str]) -> bool:
    """True if the environment names a ledger, or if the home has one, whole or as its journal alone."""
    return bool(environ.get("CHARTFERRY_LEDGER")) or any(exists(home / name) for name in ("ledger.db", JOURNAL))


def nothing_in(home: Path) -> str:
    """Return the sentence for a home without a ledger, which mostly is a wrong folder."""
    return f"{home}: no ledger here, so nothing was imported yet (--home names another folder)"


@contextmanager
def ledger_of(home: Path, environ: Mapping[str, str]) -> Iterator[Ledger | None]:
    """Yield the ledger, opened without making one; yield None if there is none yet."""
    if not has_ledger(home, environ):
        yield None
        return
    with closing(open_ledger(home, environ)) as ledger:
        yield ledger

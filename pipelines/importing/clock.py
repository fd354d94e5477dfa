"""Continue a ledger's times from the present if a clock that was ahead has written later ones."""

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from sqlalchemy import select

from pipelines.home.user import user_name
from pipelines.ledger import tables as t
from pipelines.ledger.home_batches import HomeBatches
from pipelines.ledger.lease import Holder, Silence, holders_in, is_dead, this_machine, utc_text
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import NotPossible
from pipelines.receiving.receipt_times import begin_anew
from pipelines.session.ledger import ledger_of

CLOCK_IS_RIGHT = "import --clock-is-right"
SECONDS_BETWEEN_LOOKS = 1.0


def trust_clock(home: Path, environ: Mapping[str, str], why: str | None, say: Callable[[str], object]) -> None:
    """Continue from the clock, and record the ledger's last time with the decision. Raises `LedgerError`.

    It is not possible during a load, which continues from the times that it knows. say: takes a message for the user
    who waits.
    """
    with ledger_of(home, environ) as ledger:
        known = set[str]()
        if ledger is not None:
            _trust(ledger, home, why, say)
            known = {row["batch_id"] for row in ledger.batches()}
        # Files at a store are dated by the ledger's clock.
        files = [] if ledger and ledger.stored else HomeBatches(home / "batches").without(())
        try:
            begin_anew(home, files, known)
        except OSError as error:
            raise NotPossible(
                f"{home / 'batches'}: {error.strerror}: this user must be able to write there, and must own the files"
                " that wait; then repeat the command"
            ) from None


def _trust(ledger: Ledger, home: Path, why: str | None, say: Callable[[str], object]) -> None:
    ledger.take_up_journal(home)
    gone = _gone(ledger, say)
    targets = [target for (target,) in ledger.read(select(t.target.c.target_id))]
    last = utc_text(ledger.moments.trust())
    with ledger.transaction():
        for holder in _holders(ledger, gone):
            raise NotPossible(_loads(holder))
        for each in targets or [None]:
            ledger.note_decisions(each, user_name(), CLOCK_IS_RIGHT, [last], why)
        ledger.date_batches_back(ledger.now())
        ledger.date_publications_back(ledger.now())
        ledger.date_rejects_back(ledger.now())


def _gone(ledger: Ledger, say: Callable[[str], object]) -> set[Holder]:
    """Return holders of targets or parts that gave no heartbeat for a minute while this process watched.

    Raises `NotPossible` for a living one. Neither a clock nor another machine's process can tell that a holder is
    gone.
    """
    silence, gone, first = Silence(), set[Holder](), _holders(ledger)
    for each in first:
        if each.machine and each.machine == this_machine():
            raise NotPossible(_loads(each))
        say(
            f"process {each.pid} on {each.host} holds this target: waiting up to a minute to see if it is still running"
        )
    while holders := _holders(ledger, gone):
        for each in holders - first:
            raise NotPossible(_loads(each))
        gone |= silence.look(holders)
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return gone


def _holders(ledger: Ledger, gone: Collection[Holder] = ()) -> set[Holder]:
    """Return holders of targets and of parts, without dead ones and `gone`. A heartbeat makes another holder."""
    found = holders_in(ledger.read, t.lease) | holders_in(ledger.read, t.part)
    in_file = ledger.engine.dialect.name == "sqlite"
    return {each for each in found.difference(gone) if not is_dead(each, in_file)}


def _loads(holder: Holder) -> str:
    return f"process {holder.pid} on {holder.host} is loading into this target: repeat the command when it has ended"

"""Let a ledger's times go on from now, where those that it has were written by a clock that was ahead."""

from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import select

from pipelines.home.user import user_name
from pipelines.ledger import tables as t
from pipelines.ledger.lease import Holder, is_dead, utc_text
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import NotPossible
from pipelines.receiving.moments import forget_last
from pipelines.session.ledger import ledger_of

CLOCK_IS_RIGHT = "import --clock-is-right"


def trust_clock(home: Path, environ: Mapping[str, str], why: str | None) -> None:
    """Go on from what the clock shows, on the record with the last time that the ledger has. Raises `LedgerError`.

    While a load is under way it is not possible: that goes on from the times that it knows.
    """
    with ledger_of(home, environ) as ledger:
        if ledger is None:
            return
        ledger.take_up_journal(home)
        targets = [target for (target,) in ledger.read(select(t.target.c.target_id))]
        last = utc_text(ledger.trust_clock())
        with ledger.transaction():
            _check_nobody_loads(ledger)
            for each in targets or [None]:
                ledger.note_decisions(each, user_name(), CLOCK_IS_RIGHT, [last], why)
        forget_last(home)


def _check_nobody_loads(ledger: Ledger) -> None:
    columns = [t.lease.c[name] for name in Holder._fields]
    for holder in (Holder(*row) for row in ledger.read(select(*columns))):
        if not is_dead(holder, ledger.engine.dialect.name == "sqlite"):
            raise NotPossible(
                f"process {holder.pid} on {holder.host} loads into this target: once it has ended, start the same"
                " command again"
            )

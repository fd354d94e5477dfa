"""Let a ledger's times go on from now, where those that it has were written by a clock that was ahead."""

from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import select

from pipelines.home.user import user_name
from pipelines.ledger import tables as t
from pipelines.ledger.lease import utc_text
from pipelines.session.ledger import ledger_of

CLOCK_IS_RIGHT = "import --clock-is-right"


def trust_clock(home: Path, environ: Mapping[str, str], why: str | None) -> None:
    """Go on from what the clock shows, on the record with the last time that the ledger has. Raises `LedgerError`."""
    with ledger_of(home, environ) as ledger:
        if ledger is None:
            return
        last = utc_text(ledger.trust_clock())
        with ledger.transaction():
            for (target,) in ledger.read(select(t.target.c.target_id)):
                ledger.note_decisions(target, user_name(), CLOCK_IS_RIGHT, [last], why)

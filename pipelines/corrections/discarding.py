"""Rejects that a person sets aside for good, on the record."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines.home.user import user_name
from pipelines.ledger.rejects import discard
from pipelines.session.ledger import ledger_of, nothing_in

NOT_OPEN = {
    "unknown": "there is no such reject (chartferry status BATCH lists those of a batch)",
    "closed": "is closed already",
    "resubmitted": "is on its way again",
}


def discard_in(home: Path, environ: Mapping[str, str], ids: Sequence[str], why: str) -> tuple[int | None, list[str]]:
    """Discard these rejects or none of them: how many (those of before included), and what stands in the way."""
    with ledger_of(home, environ) as ledger:
        if ledger is None:
            return None, [nothing_in(home)]
        ledger.take_up_journal(home)
        wrong = discard(ledger, list(dict.fromkeys(ids)), user_name(), why)
    return (None if wrong else len(set(ids))), [f"{name}: {NOT_OPEN[state]}" for name, state in wrong.items()]

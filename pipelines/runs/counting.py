"""The counts of a run, and those of its batch after rows of it were settled outside a run."""

from collections.abc import Mapping
from typing import Any

from pipelines.ledger.ledger import Ledger
from pipelines.ledger.so_far import LINES, hold_batch, is_under_way, with_outcomes
from pipelines.loading.loaded import Loaded
from pipelines.validation.outcome import Validated


def run_counts(validated: Validated, loaded: Loaded) -> dict[str, int]:
    """Return the ledger's counts of a run: lines, records, outcomes, and amounts in cents."""
    return loaded.counts_with({name: getattr(validated, name) for name in LINES})


def recount(ledger: Ledger, target: str, batch_id: str) -> None:
    """The batch's counts after rows of it were settled outside a run; finished once nothing of it is open."""
    with ledger.transaction():
        hold_batch(ledger, target, batch_id)
        if before := ledger.batch(target, batch_id):
            _recount(ledger, before)


def _recount(ledger: Ledger, before: Mapping[str, Any]) -> None:
    target, batch_id = before["target"], before["batch_id"]
    counts = with_outcomes(ledger, target, batch_id, before, all_have_one=True)
    if before["state"] == "finished":
        state = "running" if is_under_way(ledger, target, batch_id) else "finished"
        ledger.finish_batch(target, batch_id, state, counts)
        return
    whole = counts["accepted"] == before["accepted"] and not ledger.unsettled(target, batch_id)
    kept = ("accepted", "rejected", "amount_accepted")
    ledger.finish_batch(
        target, batch_id, "finished" if whole else before["state"], {**counts, **{name: before[name] for name in kept}}
    )

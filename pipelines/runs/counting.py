"""The counts of a run, and those of its batch after rows of it were settled outside a run."""

from pipelines.ledger.ledger import Ledger
from pipelines.ledger.so_far import LINES, with_outcomes
from pipelines.loading.loaded import Loaded
from pipelines.validation.outcome import Validated


def run_counts(validated: Validated, loaded: Loaded) -> dict[str, int]:
    """Return the ledger's counts of a run: lines, records, outcomes, and amounts in cents."""
    return loaded.counts_with({name: getattr(validated, name) for name in LINES})


def recount(ledger: Ledger, target: str, batch_id: str) -> None:
    """The batch's counts after rows of it were settled outside a run; finished once nothing of it is open."""
    before = ledger.batch(target, batch_id)
    if before is None:
        return
    counts = with_outcomes(ledger, target, batch_id, before, all_have_one=True)
    if before["state"] == "finished":
        left = any(record.state in ("planned", "sending") for record in ledger.unsettled(target, batch_id))
        ledger.finish_batch(target, batch_id, "running" if left else "finished", counts)
        return
    whole = counts["accepted"] == before["accepted"] and not ledger.unsettled(target, batch_id)
    kept = ("accepted", "rejected", "amount_accepted")
    ledger.finish_batch(
        target, batch_id, "finished" if whole else before["state"], {**counts, **{name: before[name] for name in kept}}
    )

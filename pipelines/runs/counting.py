"""The counts of a run, and those of its batch: each record once, by its first outcome."""

from collections.abc import Mapping

from pipelines.ledger.columns import COPAYMENTS, LINE_COUNTS
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.states import OUTCOMES
from pipelines.loading.loaded import Loaded
from pipelines.validation.outcome import Validated


def run_counts(validated: Validated, loaded: Loaded) -> dict[str, int]:
    """Return the ledger's counts of a run: lines, records, outcomes, and amounts in cents."""
    names = (*LINE_COUNTS, "amount_received", "amount_accepted", *COPAYMENTS)
    return loaded.counts_with({name: getattr(validated, name) for name in names})


def first_outcomes(ledger: Ledger, target: str, batch_id: str, counts: Mapping[str, int]) -> dict[str, int]:
    """The batch's own counts: each record's first outcome, whatever later runs of the same file met."""
    rows = ledger.row_counts(target, batch_id)
    outcomes = {name: rows.get(name, (0, 0)) for name in OUTCOMES}
    accepted = sum(number for number, _ in outcomes.values())
    kept = {name: counts[name] for name in ("header", "lines", "not_taken", "records", "amount_received", *COPAYMENTS)}
    return {
        **kept,
        "accepted": accepted,
        "rejected": counts["records"] - accepted,
        **{name: number for name, (number, _) in outcomes.items()},
        "amount_accepted": sum(cents for _, cents in outcomes.values()),
        "amount_created": outcomes["created"][1],
    }


def recount(ledger: Ledger, target: str, batch_id: str) -> None:
    """The batch's counts after rows of it were settled outside a run; finished once nothing of it is open."""
    before = ledger.batch(target, batch_id)
    if before is None:
        return
    counts = first_outcomes(ledger, target, batch_id, before)
    if before["state"] == "finished":
        left = any(record.state in ("planned", "sending") for record in ledger.unsettled(target, batch_id))
        ledger.finish_batch(target, batch_id, "running" if left else "finished", counts)
        return
    whole = counts["accepted"] == before["accepted"] and not ledger.unsettled(target, batch_id)
    kept = ("accepted", "rejected", "amount_accepted")
    ledger.finish_batch(
        target, batch_id, "finished" if whole else before["state"], {**counts, **{name: before[name] for name in kept}}
    )

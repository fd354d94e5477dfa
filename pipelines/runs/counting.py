"""Count a run, give up rows that no run will send, and recount a batch after rows were settled outside a run."""

from collections.abc import Mapping
from typing import Any

from pipelines.ledger.batch_counts import counts_so_far, hold_batch, rows_left, with_outcomes
from pipelines.ledger.columns import LINES
from pipelines.ledger.doubts import undecided
from pipelines.ledger.former_versions import give_up, superseded_versions
from pipelines.ledger.lease import Lease
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.reject_state import close_answered
from pipelines.ledger.states import OUTCOMES
from pipelines.loading.load_counts import LoadCounts
from pipelines.validation.outcome import ValidationResult


def run_counts(validated: ValidationResult, loaded: LoadCounts) -> dict[str, int]:
    """Return the ledger's counts of a run: lines, records, outcomes, and amounts in cents."""
    return loaded.counts_with({name: getattr(validated, name) for name in LINES})


def recount(ledger: Ledger, target: str, batch_id: str) -> None:
    """Update the batch's counts after rows were settled outside a run; finish it if nothing is open. Close the rejects
    that these rows have answered.

    A batch with superseding rows is finished by the next import, which takes back what they replace.
    """
    with ledger.transaction():
        hold_batch(ledger, target, batch_id)
        if before := ledger.batch(target, batch_id):
            close_answered(ledger, (target, before["source"], before["resource_type"]), batch_id)
            _recount(ledger, before)


def _recount(ledger: Ledger, before: Mapping[str, Any]) -> None:
    target, batch_id = before["target"], before["batch_id"]
    if before["state"] == "finished":
        counts = with_outcomes(ledger, target, batch_id, before, all_have_one=True)
        state = "running" if rows_left(ledger, target, batch_id, 1) else "finished"
    else:
        counts = counts_so_far(ledger, before)
        of = (target, before["source"], before["resource_type"])
        is_whole = sum(counts[name] for name in OUTCOMES) == before["accepted"]
        is_open = rows_left(ledger, target, batch_id, 1) or superseded_versions(ledger, *of, batch_id)
        state = "finished" if is_whole and not is_open else before["state"]
    ledger.finish_batch(target, batch_id, state, counts)


def give_up_unread(ledger: Ledger, lease: Lease, batch_id: str) -> None:
    """Give up planned rows of a batch that its file has no more, as today's feed reads it: no run would send them."""
    if keys := set(rows_left(ledger, lease.target, batch_id)):
        planned = undecided(ledger, lease.target, batch_id, ("planned",))
        give_up(
            ledger,
            lease,
            [(each.source, each.resource_type, each.key, each.generation) for each in planned if each.key in keys],
        )

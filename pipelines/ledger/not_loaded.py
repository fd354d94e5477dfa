"""The advice about a file that was not loaded. `unanswered_records` decides if it is done with."""

from pipelines.ledger.states import CUT_OFF


def is_ended_by_undo(state: str, last_run: str | None) -> bool:
    """True if an undo stopped the batch: a check stops a run with its batch."""
    return state == "stopped" and last_run != "stopped"


def next_step(batch_id: str, state: str, last_run: str | None, open_rejects: int) -> str:
    """Return what to do about a file that was not loaded, in sentences.

    last_run: the state of its newest run. open_rejects: while there are any, its rows cannot be purged.
    """
    there = f"batches/{batch_id}/source has it"
    if state == "failed" and last_run == CUT_OFF:
        return f"Import it again, with a later version of Chartferry or with more memory: {there}."
    if is_ended_by_undo(state, last_run):
        load = f"chartferry import --again {batch_id} loads it whole."
    elif state == "stopped":
        load = (
            "Do what the problem says; or correct the file, its control totals or its feed file, and import it again,"
            f" with its control totals if it has some: {there}."
        )
    else:
        load = f"Correct the file or its feed file, and import it again: {there}."
    first = "set its open rejects aside by chartferry rejects discard, and then " if open_rejects else ""
    return f"{load} If records are left that are not needed, {first}give them up by chartferry purge {batch_id}."

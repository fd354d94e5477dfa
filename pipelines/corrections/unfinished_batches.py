"""End a batch that is not finished once a person takes it back: nothing more of it is sent."""

from pipelines.corrections.records import pieces_of
from pipelines.ledger.batch_counts import counts_so_far, rows_left
from pipelines.ledger.former_versions import give_up
from pipelines.ledger.lease import Lease
from pipelines.ledger.reject_state import close_answered
from pipelines.ledger.standing import ENDED
from pipelines.ledger.states import UNDECIDED
from pipelines.runs.changes_in_doubt import SENT_AGAIN
from pipelines.runs.doubt_lookups import resolve_held
from pipelines.runs.killed_runs import close_cut_off
from pipelines.runs.run import ENDED_BY_UNDO
from pipelines.session.session import Session


def is_unfinished(session: Session, batch_id: str) -> bool:
    return bool(session.ledger.known_batch(session.target, batch_id)["state"] == "running")


def give_up_unsent(session: Session, lease: Lease, batch_id: str) -> None:
    """Look up the batch's rows in doubt, adopt those found, and give up all of which surely nothing is there."""
    left = resolve_held(session, batch_id).left
    for piece in pieces_of(session, batch_id, UNDECIDED):
        absent = [row[:4] for row in piece if row.state == "planned" or left.get(row.name) == SENT_AGAIN]
        give_up(session.ledger, lease, absent)


def end_unfinished(session: Session, batch_id: str) -> bool:
    """End a batch whose unsent rows are given up; return False if it has finished, or rows are in doubt still.

    Its records close the rejects that they answer. It ends before its resources are taken back, so that no import goes
    on with it if the undo is cut off.
    """
    ledger, target = session.ledger, session.target
    if not is_unfinished(session, batch_id) or rows_left(ledger, target, batch_id, 1):
        return False
    said, runs = ENDED_BY_UNDO.format(batch_id), ledger.runs(target, batch_id)
    batch = ledger.known_batch(target, batch_id)
    with ledger.transaction():
        close_answered(ledger, (target, batch["source"], batch["resource_type"]), batch_id)
        for last in runs[-1:]:
            if last["finished_at"]:
                message = "; ".join(filter(None, (last["message"], said)))
                ended = {"state": last["state"], "counts": {}, "finished_at": last["finished_at"]}
                ledger.finish_run(target, batch_id, last["run"], message=message, **ended)
        session.decide(ENDED, [batch_id])
        ledger.finish_batch(target, batch_id, "stopped", counts_so_far(ledger, batch))
    close_cut_off(session, batch_id, runs, said)
    return True

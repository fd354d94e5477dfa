"""Publish the tables after an undo, since they show the batch's records as created."""

from pipelines.corrections.undo_result import UndoResult
from pipelines.importing.begin_and_end import publish_into, summary_of
from pipelines.ledger.standing import undone_by_batch
from pipelines.runs.lines import SHOWN_NEXT
from pipelines.session.session import Session


def publish_undone(session: Session, found: UndoResult, batch_id: str) -> None:
    """Publish if records of the batch are taken back, by this undo or an earlier one, or the batch is ended; tell the
    user if that fails.
    """
    if found.dry_run or not (
        found.taken or found.ended or undone_by_batch(session.ledger, batch_id)[session.target, batch_id]
    ):
        return
    if found.unusable:
        session.progress.say(SHOWN_NEXT)
    elif error := _error_of_publication(session):
        session.progress.say(f"{error}; until the next publication the tables show the records as created")


def _error_of_publication(session: Session) -> str | None:
    summary = summary_of(session)
    with summary.saying_why():
        publish_into(session, summary)
    return f"not published: {summary.error.removeprefix('not published: ')}" if summary.error else None

"""Load a batch again: records that were taken back or are gone from the target, and updates that the target lost.

It is done under the target's lease, a piece of the records at a time, and is recorded like every decision by hand.
"""

from collections.abc import Callable, Iterator

from pipelines.client.comparison import TAKEN_BACK
from pipelines.client.replies import NoResult, TargetUnusable
from pipelines.corrections.missing_resources import lost_updates, not_there
from pipelines.corrections.moved_resources import follow
from pipelines.corrections.records import Piece, count_records, pieces_of, read_versions, there_again, waiting_versions
from pipelines.ledger.former_versions import plan_anew, standing_again, undone, withdrawal_given_up
from pipelines.ledger.row_fates import AGAIN
from pipelines.ledger.rows import Outcome
from pipelines.ledger.states import MADE
from pipelines.ledger.tables import NotPossible
from pipelines.runs.run import is_ended_by_undo
from pipelines.session.session import Session

NOT_NAMED = (
    "left as they are: the resources with their ids have no identifier of their source, and no other resource has"
    " their identifiers"
)


def plan_again(session: Session, batch_id: str) -> None:
    """Plan records anew that were taken back, are gone from the target, or whose update the target lost.

    Raises `NotPossible`.

    An update goes once more to the existing resource. Records that an interrupted undo had not taken back stay. A
    resource that was taken back but is there again, as after a restore, is taken back once its successor is there.
    """
    session.ledger.known_batch(session.target, batch_id)
    was_ended = is_ended_by_undo(session, batch_id)
    number, progress, found, ledger = 0, session.progress, False, session.ledger
    with session.lease() as lease:
        for fate, piece in _to_load_again(session, batch_id, progress.advance):
            found = True
            if not piece:
                continue
            if not number:
                _begin(session, batch_id)
            number += plan_anew(ledger, lease, [record[:4] for record in piece], fate)
        for piece in filter(None, lost_updates(session, batch_id)):
            if not number:
                _begin(session, batch_id)
            outcomes = [Outcome(r.key, r.generation, "planned", r.resource_id, None) for r in piece]
            ledger.settle(session.target, piece[0].source, piece[0].resource_type, outcomes)
            number += len(piece)
        if was_ended and not number:
            _begin(session, batch_id)
        progress.end(f"{number:,} to be loaded again")
    if not (was_ended or found or number or count_records(session, batch_id, ("planned",))):
        raise NotPossible(
            f"{batch_id}: nothing to load again: no record of it was taken back by an undo, and none is gone from"
            " the target"
        )


def _begin(session: Session, batch_id: str) -> None:
    session.decide(AGAIN, [batch_id])
    session.ledger.finish_batch(session.target, batch_id, "running")


def _to_load_again(
    session: Session, batch_id: str, advance: Callable[[int], None]
) -> Iterator[tuple[str | None, Piece]]:
    """Yield pieces with the fate of their resources: first those gone from the target, then those taken back."""
    try:
        for piece in pieces_of(session, batch_id, MADE):
            _end_undo(session, piece)
        for piece in pieces_of(session, batch_id, (*MADE, "undone")):
            standing_again(session.ledger, session.target, there_again(session, piece))
        for looked_at, gone, unclear in not_there(session, batch_id):
            advance(looked_at)
            followed = follow(session, [*gone, *unclear])
            for line in followed.lines():
                session.progress.say(line)
            if left := sum(at >= len(gone) for at in followed.gone):
                session.progress.say(f"{left:,} {NOT_NAMED}")
            if gone or followed.moved:
                yield "gone", [gone[at] for at in followed.gone if at < len(gone)]
    except NoResult as error:
        raise TargetUnusable(f"the batch could not be read from the target ({error})") from None
    for piece in pieces_of(session, batch_id, ("undone",)):
        advance(len(piece))
        yield None, piece


def _end_undo(session: Session, piece: Piece) -> None:
    """Close an interrupted undo: note the resources that it took back, and drop the intents for all others.

    One that is gone or has no identifier counts as not taken back: `not_there` judges it like any other.
    """
    if piece[0].resource_type not in TAKEN_BACK:
        return
    waiting, status = waiting_versions(session, piece), TAKEN_BACK[piece[0].resource_type]
    found = zip(waiting, read_versions(session, piece[0].resource_type, waiting), strict=True)
    done = [version for version, body in found if body and body.get("status") == status]
    undone(session.ledger, session.target, done)
    withdrawal_given_up(session.ledger, session.target, [version for version in waiting if version not in done])

"""Loading a batch again: what was taken back of it, or is gone from the target, a piece of its records at a time.

It is done under the target's lease and stays on the record, as every decision by hand.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from pipelines.client.comparison import TAKEN_BACK
from pipelines.client.replies import NoResult, TargetUnusable
from pipelines.corrections.moved import follow, is_other, is_unclear
from pipelines.corrections.records import (
    Piece,
    Record,
    count_records,
    pieces_of,
    read_versions,
    there_again,
    waiting_versions,
)
from pipelines.ledger.former import plan_anew, standing_again, undone, withdrawal_given_up
from pipelines.ledger.states import MADE
from pipelines.ledger.tables import NotPossible
from pipelines.loading.identity import Identity
from pipelines.runs.leasing import lease_of
from pipelines.session.session import Session
from pipelines.verifying.staging import Filling, workbench
from pipelines.verifying.target import stage_target

READS_WITHOUT_A_SWEEP = 500
NOT_SHOWN = """
SELECT n FROM record ANTI JOIN there ON there.id = record.resource_id
  AND (NOT $1 OR (system = $2 AND record_key = key AND record_generation = generation))
ORDER BY n"""
NOT_NAMED = "stay: what has their ids carries no identifier of their source, and nothing else has theirs"


def plan_again(session: Session, batch_id: str) -> int:
    """Make rows that were taken back, or that are gone from the target, planned anew; how many. Raises `NotPossible`.

    What an undo that was cut off had not taken back stays. What had been taken back, and is there again, as after a
    restore, is taken back once the new ones are there.
    """
    session.ledger.known_batch(session.target, batch_id)
    number, progress, found = 0, session.progress, False
    with lease_of(session) as lease:
        for fate, piece in _to_load_again(session, batch_id, progress.advance):
            found = True
            if not piece:
                continue
            if not number:
                session.decide("import --again", [batch_id])
                session.ledger.finish_batch(session.target, batch_id, "running")
            number += plan_anew(session.ledger, lease, [record[:4] for record in piece], fate)
        progress.end(f"{number:,} to be loaded anew")
    if not found:
        raise NotPossible(f"{batch_id}: nothing of it was taken back or is gone from the target")
    return number


def _to_load_again(
    session: Session, batch_id: str, advance: Callable[[int], None]
) -> Iterator[tuple[str | None, Piece]]:
    """Pieces with the fate of their resources: what is gone from the target first, then what was taken back."""
    try:
        for piece in pieces_of(session, batch_id, MADE):
            _end_undo(session, piece)
        for piece in pieces_of(session, batch_id, (*MADE, "undone")):
            standing_again(session.ledger, session.target, there_again(session, piece))
        for looked_at, gone, unclear in _gone(session, batch_id):
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
    """Close an undo that was cut off: write down what it did at the target, and drop the intents of the rest."""
    if piece[0].resource_type not in TAKEN_BACK:
        return
    waiting, status = waiting_versions(session, piece), TAKEN_BACK[piece[0].resource_type]
    found = dict(zip(waiting, read_versions(session, piece[0].resource_type, waiting), strict=True))
    missing = [version for version, body in found.items() if body is None]
    gone = [missing[at] for at in follow(session, missing).gone]
    done = [*gone, *(version for version, body in found.items() if body and body.get("status") == status)]
    undone(session.ledger, session.target, done)
    withdrawal_given_up(session.ledger, session.target, [version for version in waiting if version not in done])


def _gone(session: Session, batch_id: str) -> Iterator[tuple[int, Piece, Piece]]:
    """Pieces of those whose resource the target does not have, or where that is unclear: what is there has no
    identifier. Each comes with how many were looked at.

    Each is asked for; of many only those that a sweep does not show.
    """
    many = count_records(session, batch_id, MADE) > READS_WITHOUT_A_SWEEP
    with ThreadPoolExecutor(session.pace.at_once, "look") as pool:

        def is_there(record: Record) -> bool | None:
            body = session.connection.client.read(record.resource_type, str(record.resource_id))
            if body is None or not is_other(session, record, body):
                return body is not None
            return None if is_unclear(session, record, body) else False

        for looked_at, piece in (_not_shown if many else _all)(session, batch_id):
            found = [*zip(piece, pool.map(is_there, piece), strict=True)]
            absent, unclear = ([record for record, there in found if there is said] for said in (False, None))
            yield looked_at, absent, unclear


def _say_stage(session: Session, batch_id: str) -> None:
    session.progress.stage("again", batch_id, count_records(session, batch_id, (*MADE, "undone")))


def _all(session: Session, batch_id: str) -> Iterator[tuple[int, Piece]]:
    _say_stage(session, batch_id)
    for piece in pieces_of(session, batch_id, MADE):
        yield len(piece), piece


def _not_shown(session: Session, batch_id: str) -> Iterator[tuple[int, Piece]]:
    with workbench(session.home) as db:
        first = next(pieces_of(session, batch_id, MADE))
        stage_target(db, session, first[0].resource_type)
        _say_stage(session, batch_id)
        for piece in pieces_of(session, batch_id, MADE):
            with Filling(db, "record", "n resource_id key generation") as table:
                for n, record in enumerate(piece):
                    table.add((n, record.resource_id, record.key, record.generation))
            of_source = Identity(piece[0].source, piece[0].resource_type).system
            named = session.shows_names(piece[0].resource_type)
            yield len(piece), [piece[n] for (n,) in db.execute(NOT_SHOWN, [named, of_source]).fetchall()]

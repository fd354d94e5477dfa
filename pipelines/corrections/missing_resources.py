"""Find records of a batch that the target lacks: resources that are gone, and tasks without their update."""

from collections.abc import Iterator
from functools import partial
from itertools import compress

from pipelines.client.threads import threads
from pipelines.corrections.moved_resources import is_there, why_not
from pipelines.corrections.records import Piece, count_records, pieces_of
from pipelines.ledger.rows import RecordRow
from pipelines.ledger.states import MADE
from pipelines.loading.row import Identity
from pipelines.loading.target_clock import TargetClock
from pipelines.session.needed_reads import reading
from pipelines.session.session import Session
from pipelines.verifying.staging import StagingTable, workbench
from pipelines.verifying.target import stage_target
from pipelines.verifying.verify import is_older

READS_WITHOUT_A_SWEEP = 500
NOT_SHOWN = """
SELECT n FROM record ANTI JOIN there ON there.id = record.resource_id
  AND (NOT $1 OR (system = $2 AND record_key = key AND record_generation = generation))
ORDER BY n"""


def lost_updates(session: Session, batch_id: str) -> Iterator[Piece]:
    """Yield pieces of updated tasks that the target last changed before the update, so that it lost the update.

    A task with the update in place is left out, so nothing is written to it.
    """
    client, clock = session.connection.client, TargetClock.of(session, batch_id)

    def is_lost(record: RecordRow) -> bool:
        found = client.read_as_of(record.resource_type, str(record.resource_id))
        return (
            found is not None
            and not why_not(session, record, found[0])
            and is_older(found[1], clock.shown_at(record.batch_id, record.first_attempt_at))
        )

    with threads(session.pace.at_once, "look") as pool:
        for piece in pieces_of(session, batch_id, ("updated",)):
            with reading(piece[0].resource_type):
                yield [*compress(piece, pool.map(is_lost, piece))]


def not_there(session: Session, batch_id: str) -> Iterator[tuple[int, Piece, Piece]]:
    """Yield pieces of records whose resource is gone, and of those where it is unclear, since the resource found has
    no identifier. Each comes with the number of records that were looked at.

    Few records are read one by one. For many, a sweep comes first, and only those that it does not show are read.
    """
    many = count_records(session, batch_id, MADE) > READS_WITHOUT_A_SWEEP
    with threads(session.pace.at_once, "look") as pool:
        for looked_at, piece in (_not_shown if many else _all)(session, batch_id):
            found = [*zip(piece, pool.map(partial(is_there, session), piece), strict=True)]
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
            with StagingTable(db, "record", "n resource_id key generation") as table:
                for n, record in enumerate(piece):
                    table.add((n, record.resource_id, record.key, record.generation))
            of_source = Identity(piece[0].source, piece[0].resource_type).system
            named = session.shows_names(piece[0].resource_type)
            yield len(piece), [piece[n] for (n,) in db.execute(NOT_SHOWN, [named, of_source]).fetchall()]

"""Take a batch back as far as the interface allows, a piece of its records at a time.

It is done under the target's lease, and is recorded like every decision by hand.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from pipelines.client.steps import step_for
from pipelines.client.threads import threads
from pipelines.corrections.moved_resources import follow, owner_of
from pipelines.corrections.records import (
    LEFT,
    Piece,
    changed_since,
    count_records,
    count_replaced,
    made_here,
    pieces_of,
    there_again,
    waiting_versions,
    why_not_taken_back,
)
from pipelines.corrections.undo_result import UndoResult
from pipelines.corrections.unfinished_batches import end_unfinished, give_up_unsent, is_unfinished
from pipelines.ledger.former_versions import (
    FormerVersion,
    intend_withdrawal,
    standing_again,
    superseded_versions,
    undone,
    withdrawal_given_up,
    withdrawn,
)
from pipelines.ledger.lease import Lease
from pipelines.loading.changes import Changes
from pipelines.loading.ownership import NOT_OURS, KnownResource
from pipelines.loading.row import PostResult
from pipelines.session.session import Session

ROWS_A_COMMIT = 64
GONE = 404
SEVERAL = "the target has several resources with this record's identifier; chartferry verify names them"
NO_CLEAR_ANSWER = "the target gave no clear answer, so it may have been taken back; repeat the undo"
NOTHING_ELSE = ", and nothing else does"


def undo(session: Session, batch_id: str, dry_run: bool) -> UndoResult:
    """Take back the batch's resources: responses to `entered-in-error`, tasks to `cancelled`; list all others."""
    session.ledger.known_batch(session.target, batch_id)
    done, progress = UndoResult(dry_run), session.progress
    with session.lease() as lease:
        is_going_on = is_unfinished(session, batch_id)
        if not dry_run:
            session.decide("undo", [batch_id])
            if is_going_on:
                give_up_unsent(session, lease, batch_id)
                done.ended = end_unfinished(session, batch_id)
        progress.stage("undo (dry run)" if dry_run else "undo", batch_id, count_records(session, batch_id, LEFT))
        for piece in filter(None, _to_undo(session, batch_id, dry_run)):
            _undo_piece(session, lease, piece, done)
            if done.unusable:
                break
        if not (dry_run or done.unusable):
            _undo_replaced(session, lease, batch_id, done)
        for record, later in changed_since(session, batch_id):
            done.leave(
                record, f"{record.resource}: the later batch {later} has changed it, and a change cannot be taken back"
            )
        done.replaced = count_replaced(session, batch_id)
        if is_going_on and is_unfinished(session, batch_id):
            done.ended, done.unfinished = dry_run, not dry_run
        progress.end("", "stopped" if done.unusable else "done")
    return done


def _to_undo(session: Session, batch_id: str, dry_run: bool) -> Iterator[Piece]:
    """Yield pieces of the batch's records: first those taken back before whose resources are in force again."""
    for piece in pieces_of(session, batch_id, ("undone",)):
        again = {(version.key, version.generation): version for version in there_again(session, piece)}
        if not dry_run:
            standing_again(session.ledger, session.target, again.values())
        yield [record for record in piece if (record.key, record.generation) in again]
    yield from pieces_of(session, batch_id, LEFT)


def _undo_piece(session: Session, lease: Lease, piece: Piece, done: UndoResult) -> None:
    own, advance = made_here(session, piece), session.progress.advance
    bundle = step_for(session.connection.capabilities, piece[0].resource_type).bundle
    going = []
    for record in piece:
        if why := why_not_taken_back(record, own):
            done.leave(record, why)
        else:
            going.append(record)
    advance(len(piece) - len(going))
    size = session.connection.client.profile.most_rows if bundle and not done.dry_run else ROWS_A_COMMIT
    for start in range(0, len(going), size):
        some = going[start : start + size]
        if done.dry_run:
            for record in some:
                done.take(record)
        elif not done.unusable:
            _undo_some(session, lease, some, done, bundle)
        advance(len(some))


def _undo_some(session: Session, lease: Lease, records: Piece, done: UndoResult, bundle: str | None) -> None:
    kind, by_key = records[0].resource_type, {record.key: record for record in records}
    before = {version.key for version in waiting_versions(session, records)}
    intend_withdrawal(session.ledger, lease, [record[:4] for record in records if record.key not in before])
    versions = waiting_versions(session, records)
    made, others = [KnownResource.of(version) for version in versions], dict[str, str]()
    owner = owner_of(session, records[0].source, kind)
    changes = Changes(session.connection.client, partial(session.ledger.confirm, lease), owner)
    with threads(session.pace.at_once, "undo") as pool:
        posted = changes.take_back(made, bundle, pool)
    back, missing, refused = list[FormerVersion](), list[FormerVersion](), list[FormerVersion]()
    for version, each in zip(versions, posted, strict=True):
        record = by_key[version.key]
        done.unusable = done.unusable or each.unusable
        if each.result.state == "undone":
            back.append(version)
            done.take(record)
        elif each.result.status == GONE:
            missing.append(version)
            if each.result.outcome in NOT_OURS:
                others[str(version.resource_id)] = each.result.outcome["text"]
        else:
            if each.result.state == "refused":
                refused.append(version)
            done.leave(record, f"{record.resource}: {_why_not(each)}")
    undone(session.ledger, session.target, back)
    if refused:
        withdrawal_given_up(session.ledger, session.target, refused)
    if missing:
        of_missing = [by_key[version.key]._replace(resource_id=version.resource_id) for version in missing]
        _undo_moved(session, lease, of_missing, missing, others, done)


def _why_not(posted: PostResult) -> str:
    if posted.result.status:
        return f"HTTP {posted.result.status}"
    return NO_CLEAR_ANSWER if posted.result.state == "in_doubt" else "not done"


def _undo_replaced(session: Session, lease: Lease, batch_id: str, done: UndoResult) -> None:
    """Take back what records of the batch have replaced, if its load was cut off before it could."""
    ledger, batch = session.ledger, session.ledger.known_batch(session.target, batch_id)
    of = (batch["source"], batch["resource_type"])
    replaced = superseded_versions(ledger, session.target, *of, batch_id)
    changes = Changes(session.connection.client, partial(ledger.confirm, lease), owner_of(session, *of))
    bundle = step_for(session.connection.capabilities, of[1]).bundle
    with threads(session.pace.at_once, "undo") as pool:
        for some in changes.parts(replaced, bundle):
            posted = dict(zip(some, changes.take_back(map(KnownResource.of, some), bundle, pool), strict=True))
            back = [version for version, each in posted.items() if each.result.state == "undone"]
            withdrawn(ledger, session.target, back)
            done.unusable = done.unusable or next(filter(None, (each.unusable for each in posted.values())), None)
            for version, each in posted.items():
                if each.result.state != "undone":
                    done.leave(version, f"{version.resource}: {_why_not(each)}")


def _undo_moved(
    session: Session,
    lease: Lease,
    records: Piece,
    versions: Sequence[FormerVersion],
    others: Mapping[str, str],
    done: UndoResult,
) -> None:
    """Take back records under their new ids, if their old ids are missing at the target or are another's.

    others: the reason why the resource is another's, by id.
    """
    followed = follow(session, records)
    gone = [at for at in followed.gone if str(records[at].resource_id) not in others]
    undone(session.ledger, session.target, [versions[at] for at in gone])
    for at in gone:
        done.take(records[at])
    kept = set(range(len(records))).difference(gone)
    withdrawal_given_up(session.ledger, session.target, [versions[at] for at in sorted(kept)])
    moved = {at: new for at, new in followed.moved.items() if new != records[at].resource_id}
    for at in sorted(kept.difference(moved)):
        why = SEVERAL if at in followed.several else f"HTTP {GONE}"
        if at in followed.gone:
            why = others[str(records[at].resource_id)] + NOTHING_ELSE * session.shows_names(records[at].resource_type)
        done.leave(records[at], f"{records[at].resource}: {why}")
    if moved and not done.unusable:
        _undo_some(session, lease, [records[at]._replace(resource_id=new) for at, new in moved.items()], done, None)

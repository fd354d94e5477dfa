"""Take a batch back as far as the interface allows, a piece of its records at a time.

It is done under the target's lease, and is recorded like every decision by hand.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from pipelines.client.comparison import TAKEN_BACK
from pipelines.client.steps import step_for
from pipelines.client.threads import threads
from pipelines.corrections.moved_resources import follow, owner_of
from pipelines.corrections.records import (
    LEFT,
    BatchRecord,
    Piece,
    changed_since,
    count_records,
    count_replaced,
    made_here,
    pieces_of,
    there_again,
    waiting_versions,
)
from pipelines.home.exits import ALL_LOADED, SET_ASIDE, UNUSABLE
from pipelines.ledger.former_versions import (
    FormerVersion,
    intend_withdrawal,
    standing_again,
    undone,
    withdrawal_given_up,
)
from pipelines.ledger.lease import Lease
from pipelines.loading.changes import Changes
from pipelines.loading.ownership import NOT_OURS, KnownResource
from pipelines.runs.lines import first_of
from pipelines.session.session import Session

ROWS_A_COMMIT = 64
LISTED = 10_000
"""The number of rows of each kind that an answer names; further rows are only counted."""
SHOWN = 50
GONE = 404
SEVERAL = "the target has several resources with this record's identifier; chartferry verify names them"
NO_CLEAR_ANSWER = "the target gave no clear answer, so it may have been taken back; repeat the undo"
UNFINISHED = "the batch is not finished: the next import may send more of its rows; undo it again after that"
NOTHING_ELSE = ", and nothing else does"


@dataclass
class UndoResult:
    """The resources that an undo took back or would take back, and the rows left with their reasons, by
    `<batch>:<line>`.

    Of many rows only the first are named; taken, not_taken: their numbers. replaced: see `count_replaced`. unfinished:
    True if an import goes on with the batch.
    """

    dry_run: bool
    taken_back: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    taken: int = 0
    not_taken: int = 0
    replaced: int = 0
    unfinished: bool = False
    unusable: str | None = None

    def take(self, record: BatchRecord) -> None:
        self.taken += 1
        if self.taken <= LISTED:
            self.taken_back[record.name] = record.resource

    def leave(self, record: BatchRecord, why: str) -> None:
        self.not_taken += 1
        if self.not_taken <= LISTED:
            self.left[record.name] = why

    @property
    def exit_code(self) -> int:
        if self.unusable:
            return UNUSABLE
        return SET_ASIDE if self.not_taken or self.unfinished else ALL_LOADED

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> Iterator[str]:
        word = "would be taken back" if self.dry_run else "taken back"
        yield from _first(self.taken_back, self.taken, word)
        yield from _first(self.left, self.not_taken, "not taken back")
        yield f"{self.taken:,} {word}, {self.not_taken:,} not"
        if self.replaced:
            yield f"{self.replaced:,} superseded or loaded again by later files: the resources of those files stay"
        if self.unfinished:
            yield UNFINISHED
        if self.unusable:
            yield f"error: {self.unusable}"


def _first(rows: dict[str, str], total: int, word: str) -> Iterator[str]:
    return first_of((f"{name}: {word}: {what}" for name, what in rows.items()), SHOWN, total, word)


def undo(session: Session, batch_id: str, dry_run: bool) -> UndoResult:
    """Take back the batch's resources: responses to `entered-in-error`, tasks to `cancelled`; list all others."""
    session.ledger.known_batch(session.target, batch_id)
    done, progress, most = UndoResult(dry_run), session.progress, session.connection.client.profile.most_rows
    with session.lease() as lease:
        if not dry_run:
            session.decide("undo", [batch_id])
        progress.stage("undo (dry run)" if dry_run else "undo", batch_id, count_records(session, batch_id, LEFT))
        for piece in filter(None, _to_undo(session, batch_id, dry_run)):
            own = made_here(session, piece)
            bundle = step_for(session.connection.capabilities, piece[0].resource_type).bundle
            for record in piece:
                if why := _why_not(record, own):
                    done.leave(record, why)
            going = [record for record in piece if not _why_not(record, own)]
            progress.advance(len(piece) - len(going))
            size = most if bundle and not dry_run else ROWS_A_COMMIT
            for start in range(0, len(going), size):
                some = going[start : start + size]
                if dry_run:
                    for record in some:
                        done.take(record)
                elif not done.unusable:
                    _undo_some(session, lease, some, done, bundle)
                progress.advance(len(some))
            if done.unusable:
                break
        for record, later in changed_since(session, batch_id):
            done.leave(
                record, f"{record.resource}: the later batch {later} has changed it, and a change cannot be taken back"
            )
        done.replaced = count_replaced(session, batch_id)
        done.unfinished = session.ledger.known_batch(session.target, batch_id)["state"] == "running"
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


def _why_not(record: BatchRecord, own: Container[str]) -> str | None:
    """Return why a record is not taken back; None if it can be. own: updated keys that the batch also made."""
    if record.state in ("in_doubt", "planned"):
        return record.state.replace("_", " ")
    if record.resource_type not in TAKEN_BACK:
        return f"{record.resource}: a payment cannot be taken back through the interface; correct it in the chart"
    if record.state == "updated" and record.key not in own:
        return f"{record.resource}: this batch only changed it, and a change cannot be taken back"
    return None


def _undo_some(session: Session, lease: Lease, records: Piece, done: UndoResult, bundle: str | None) -> None:
    kind, by_key = records[0].resource_type, {record.key: record for record in records}
    before = {version.key for version in waiting_versions(session, records)}
    intend_withdrawal(session.ledger, lease, [record[:4] for record in records if record.key not in before])
    versions = waiting_versions(session, records)
    made, others = [KnownResource.of(version) for version in versions], dict[str, str]()
    owner = owner_of(session, records[0].source, kind)
    changes = Changes(session.connection.client, partial(session.ledger.confirm, lease), owner)
    at_once = changes.take_back_together(made, bundle) if bundle else {}
    with threads(session.pace.at_once, "undo") as pool:
        posted = list(pool.map(lambda each: at_once.get(each.resource_id) or changes.take_back(each), made))
    withdrawn, missing, refused = list[FormerVersion](), list[FormerVersion](), list[FormerVersion]()
    for version, each in zip(versions, posted, strict=True):
        record = by_key[version.key]
        done.unusable = done.unusable or each.unusable
        if each.result.state == "undone":
            withdrawn.append(version)
            done.take(record)
        elif each.result.status == GONE:
            missing.append(version)
            if each.result.outcome in NOT_OURS:
                others[str(version.resource_id)] = each.result.outcome["text"]
        else:
            if each.result.state == "refused":
                refused.append(version)
            unclear = NO_CLEAR_ANSWER if each.result.state == "in_doubt" else "not done"
            done.leave(record, f"{record.resource}: {f'HTTP {each.result.status}' if each.result.status else unclear}")
    undone(session.ledger, session.target, withdrawn)
    if refused:
        withdrawal_given_up(session.ledger, session.target, refused)
    if missing:
        of_missing = [by_key[version.key]._replace(resource_id=version.resource_id) for version in missing]
        _undo_moved(session, lease, of_missing, missing, others, done)


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

"""Taking a batch back where the interface allows, and loading it again: a piece of its records at a time.

Each is done under the target's lease and stays on the record, as every decision by hand.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
from sqlalchemy import ColumnElement, Text, func, select

from pipelines.client.client import NotDone, NotSent, Refused, TargetUnusable, Unknown
from pipelines.client.comparison import TAKEN_BACK
from pipelines.client.steps import step_for
from pipelines.corrections.moved import follow
from pipelines.home.exits import ALL_LOADED, SET_ASIDE, UNUSABLE
from pipelines.home.scratch import throwaway_folder
from pipelines.home.spill import Writer, batches
from pipelines.ledger import tables as t
from pipelines.ledger.former import (
    Former,
    earlier_versions,
    intend_withdrawal,
    raise_generation,
    standing_again,
    undone,
    withdrawal_given_up,
)
from pipelines.ledger.ledger import Lease
from pipelines.ledger.states import MADE
from pipelines.ledger.tables import NotPossible
from pipelines.loading.changes import Changes
from pipelines.runs.loading import lease_of
from pipelines.session.reading import reading
from pipelines.session.session import Session
from pipelines.verifying.staging import Filling, workbench
from pipelines.verifying.target import stage_target

ROWS_A_COMMIT = 64
ROWS_A_BUNDLE = 500
ROWS_A_PIECE = 2_000
READS_WITHOUT_A_SWEEP = 500
LISTED = 10_000
"""Rows of each kind that an answer names; it counts the others."""
SHOWN = 50
MOVED = "the ledger has that id now, and they are not loaded anew"
LEFT = (*MADE, "in_doubt", "planned")


class Record(NamedTuple):
    """A record of a batch, as far as it matters here."""

    source: str
    resource_type: str
    key: str
    generation: int
    batch_id: str
    line: int
    state: str
    resource_id: str | None

    @property
    def name(self) -> str:
        return f"{self.batch_id}:{self.line}"

    @property
    def resource(self) -> str:
        return f"{self.resource_type}/{self.resource_id}"


Piece = Sequence[Record]
COLUMNS = [t.record.c[name] for name in Record._fields]
RECORDS = pa.schema([(c.name, pa.string() if isinstance(c.type, Text) else pa.int64()) for c in COLUMNS])


def _of_batch(session: Session, batch_id: str, states: Sequence[str]) -> list[ColumnElement[bool]]:
    record = t.record.c
    return [record.target == session.target, record.batch_id == batch_id, record.state.in_(states)]


def _count(session: Session, batch_id: str, states: Sequence[str]) -> int:
    with session.ledger.engine.connect() as connection:
        query = select(func.count()).select_from(t.record).where(*_of_batch(session, batch_id, states))
        return int(connection.execute(query).scalar_one())


def _pieces(session: Session, batch_id: str, states: Sequence[str]) -> Iterator[Piece]:
    """The batch's records that are in these states now, in the order of its lines, whatever becomes of them."""
    query = select(*COLUMNS).where(*_of_batch(session, batch_id, states)).order_by("line")
    with throwaway_folder(session.home) as folder:
        kept = folder / "records.parquet"
        with session.ledger.engine.connect() as connection, Writer(kept, RECORDS) as out:
            for row in connection.execution_options(yield_per=ROWS_A_PIECE).execute(query):
                out.add(*row)
        for part in batches(kept, ROWS_A_PIECE, Record._fields):
            yield [Record._make(row) for row in zip(*(column.to_pylist() for column in part.columns), strict=True)]


def _known_batch(session: Session, batch_id: str) -> None:
    if session.ledger.batch(session.target, batch_id) is None:
        raise NotPossible(f"{batch_id}: no such batch at this target")


# -- taking a batch back


@dataclass
class Undone:
    """By row (`<batch>:<line>`) the resource that was (or would be) taken back, or why it was not.

    Of many rows the first alone are named; taken, not_taken: how many there are.
    """

    dry_run: bool
    taken_back: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    taken: int = 0
    not_taken: int = 0
    unusable: str | None = None

    def take(self, record: Record) -> None:
        self.taken += 1
        if self.taken <= LISTED:
            self.taken_back[record.name] = record.resource

    def leave(self, record: Record, why: str) -> None:
        self.not_taken += 1
        if self.not_taken <= LISTED:
            self.left[record.name] = why

    @property
    def exit_code(self) -> int:
        if self.unusable:
            return UNUSABLE
        return SET_ASIDE if self.not_taken else ALL_LOADED

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "exit_code": self.exit_code}

    def lines(self) -> Iterator[str]:
        word = "would be taken back" if self.dry_run else "taken back"
        yield from _first(self.taken_back, self.taken, word)
        yield from _first(self.left, self.not_taken, "not taken back")
        yield f"{self.taken:,} {word}, {self.not_taken:,} not"
        if self.unusable:
            yield f"error: {self.unusable}"


def _first(rows: dict[str, str], total: int, word: str) -> Iterator[str]:
    yield from (f"{name}: {word}: {what}" for name, what in islice(rows.items(), SHOWN))
    if total > SHOWN:
        yield f"and {total - SHOWN:,} more {word}"


def undo(session: Session, batch_id: str, dry_run: bool) -> Undone:
    """Take back what the batch made: responses to `entered-in-error`, tasks to `cancelled`; list what cannot be."""
    _known_batch(session, batch_id)
    done, progress = Undone(dry_run), session.progress
    kind = str((session.ledger.batch(session.target, batch_id) or {}).get("resource_type"))
    together = step_for(session.connection.capabilities, kind).bundle == "batch"
    with lease_of(session) as lease:
        if not dry_run:
            session.decide("undo", [batch_id])
        progress.stage("undo", batch_id, _count(session, batch_id, LEFT))
        for piece in _to_undo(session, batch_id, dry_run):
            for record in piece:
                if why := _why_not(record):
                    done.leave(record, why)
            going = [record for record in piece if not _why_not(record)]
            progress.advance(len(piece) - len(going))
            size = ROWS_A_BUNDLE if together and not dry_run else ROWS_A_COMMIT
            for start in range(0, len(going), size):
                some = going[start : start + size]
                if dry_run:
                    for record in some:
                        done.take(record)
                elif not done.unusable:
                    _undo_some(session, lease, some, done, together)
                progress.advance(len(some))
            if done.unusable:
                break
        progress.end("", "stopped" if done.unusable else "done")
    return done


def _to_undo(session: Session, batch_id: str, dry_run: bool) -> Iterator[Piece]:
    """Pieces of the batch's records: first those that had been taken back, and that the target has as before."""
    for piece in _pieces(session, batch_id, ("undone",)):
        again = {(version.key, version.generation): version for version in _there_again(session, piece)}
        if not dry_run:
            standing_again(session.ledger, session.target, again.values())
        yield [record for record in piece if (record.key, record.generation) in again]
    yield from _pieces(session, batch_id, LEFT)


def _there_again(session: Session, piece: Piece) -> list[Former]:
    """Versions of these records that had been taken back, and that a restored target has as they were before."""
    source, kind = piece[0].source, piece[0].resource_type
    if kind not in TAKEN_BACK:
        return []
    keys = [record.key for record in piece]
    before = earlier_versions(session.ledger, session.target, source, kind, keys, "withdrawn")
    found = _read(session, kind, before)
    return [v for v, body in zip(before, found, strict=True) if body and body.get("status") != TAKEN_BACK[kind]]


def _read(session: Session, kind: str, versions: Sequence[Former]) -> list[dict[str, Any] | None]:
    """The resources of versions as they are now. Raises `TargetUnusable`."""
    client = session.connection.client
    with reading(kind), ThreadPoolExecutor(session.pace.at_once, "look") as pool:
        return list(pool.map(lambda version: client.read(kind, str(version.resource_id)), versions))


def _why_not(record: Record) -> str | None:
    if record.state in ("in_doubt", "planned"):
        return f"{record.state.replace('_', ' ')}"
    if record.resource_type not in TAKEN_BACK:
        return f"{record.resource}: the interface takes no payment back"
    if record.state == "updated":
        return f"{record.resource}: this batch changed it and did not make it"
    return None


def _waiting(session: Session, records: Piece) -> list[Former]:
    """The versions of these records that wait to be taken back: of an earlier undo that was cut off, too."""
    by_key = {record.key: record for record in records}
    found = earlier_versions(session.ledger, session.target, records[0].source, records[0].resource_type, by_key)
    return [version for version in found if version.generation == by_key[version.key].generation]


def _undo_some(session: Session, lease: Lease, records: Piece, done: Undone, together: bool) -> None:
    kind, by_key = records[0].resource_type, {record.key: record for record in records}
    before = {version.key for version in _waiting(session, records)}
    intend_withdrawal(session.ledger, lease, [record[:4] for record in records if record.key not in before])
    versions = _waiting(session, records)
    changes = Changes(session.connection.client, partial(session.ledger.confirm, lease))
    ids = [str(version.resource_id) for version in versions]
    at_once = changes.take_back_together(kind, ids) if together else {}
    with ThreadPoolExecutor(session.pace.at_once, "undo") as pool:
        posted = list(pool.map(lambda each: at_once.get(each) or changes.take_back(kind, each), ids))
    withdrawn: list[Former] = []
    for version, each in zip(versions, posted, strict=True):
        record = by_key[version.key]
        done.unusable = done.unusable or each.unusable
        if each.result.state == "undone" or each.result.status == 404:
            withdrawn.append(version)
            done.take(record)
        else:
            done.leave(record, f"{record.resource}: HTTP {each.result.status or 'without an answer'}")
    undone(session.ledger, session.target, withdrawn)


# -- loading a batch again


def plan_again(session: Session, batch_id: str) -> int:
    """Make rows that were taken back, or that are gone from the target, planned anew; how many. Raises `NotPossible`.

    They go under the next generation, so that neither the ledger nor the target takes them for what they were. What an
    undo that was cut off had not taken back stays. What had been taken back, and is there again since the target was
    restored, is taken back once the new ones are there.
    """
    _known_batch(session, batch_id)
    number, progress, found = 0, session.progress, False
    with lease_of(session) as lease:
        for fate, piece in _to_load_again(session, batch_id, progress.advance):
            found = True
            if not piece:
                continue
            if not number:
                session.decide("import --again", [batch_id])
                session.ledger.finish_batch(session.target, batch_id, "running")
            number += raise_generation(session.ledger, lease, [record[:4] for record in piece], fate)
        progress.end(f"{number:,} to be loaded anew")
    if not found:
        raise NotPossible(f"{batch_id}: nothing of it was taken back or is gone from the target")
    return number


def _to_load_again(
    session: Session, batch_id: str, advance: Callable[[int], None]
) -> Iterator[tuple[str | None, Piece]]:
    """Pieces with the fate of their resources: what is gone from the target first, then what was taken back."""
    try:
        for piece in _pieces(session, batch_id, MADE):
            _end_undo(session, piece)
        for piece in _pieces(session, batch_id, (*MADE, "undone")):
            standing_again(session.ledger, session.target, _there_again(session, piece))
        for looked_at, gone in _gone(session, batch_id):
            advance(looked_at)
            followed = follow(session, gone)
            if followed.moved:
                session.progress.say(f"{followed.moved:,} are there under another id: {MOVED}")
            if gone:
                yield "gone", [gone[at] for at in followed.gone]
    except (NotSent, NotDone, Refused, Unknown) as error:
        raise TargetUnusable(f"the batch could not be read from the target ({error})") from None
    for piece in _pieces(session, batch_id, ("undone",)):
        advance(len(piece))
        yield None, piece


def _end_undo(session: Session, piece: Piece) -> None:
    """Close an undo that was cut off: write down what it did at the target, and drop the intents of the rest."""
    if piece[0].resource_type not in TAKEN_BACK:
        return
    waiting, status = _waiting(session, piece), TAKEN_BACK[piece[0].resource_type]
    found = _read(session, piece[0].resource_type, waiting)
    done = [v for v, body in zip(waiting, found, strict=True) if body is None or body.get("status") == status]
    undone(session.ledger, session.target, done)
    withdrawal_given_up(session.ledger, session.target, [version for version in waiting if version not in done])


def _gone(session: Session, batch_id: str) -> Iterator[tuple[int, Piece]]:
    """Pieces of those whose resource the target does not have, each with how many were looked at.

    Each is asked for; of many only those that a sweep does not show.
    """
    many = _count(session, batch_id, MADE) > READS_WITHOUT_A_SWEEP
    with ThreadPoolExecutor(session.pace.at_once, "look") as pool:

        def is_gone(record: Record) -> bool:
            return session.connection.client.read(record.resource_type, str(record.resource_id)) is None

        for looked_at, piece in (_not_shown if many else _all)(session, batch_id):
            answers = pool.map(is_gone, piece)
            yield looked_at, [record for record, gone in zip(piece, answers, strict=True) if gone]


def _say_stage(session: Session, batch_id: str) -> None:
    session.progress.stage("again", batch_id, _count(session, batch_id, (*MADE, "undone")))


def _all(session: Session, batch_id: str) -> Iterator[tuple[int, Piece]]:
    _say_stage(session, batch_id)
    for piece in _pieces(session, batch_id, MADE):
        yield len(piece), piece


def _not_shown(session: Session, batch_id: str) -> Iterator[tuple[int, Piece]]:
    with workbench(session.home) as db:
        first = next(_pieces(session, batch_id, MADE))
        stage_target(db, session, first[0].resource_type)
        _say_stage(session, batch_id)
        for piece in _pieces(session, batch_id, MADE):
            with Filling(db, "record", "n resource_id") as table:
                for n, record in enumerate(piece):
                    table.add((n, record.resource_id))
            missing = "SELECT n FROM record ANTI JOIN there ON there.id = record.resource_id ORDER BY n"
            yield len(piece), [piece[n] for (n,) in db.execute(missing).fetchall()]

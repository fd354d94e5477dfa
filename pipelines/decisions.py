"""What people decide by hand: rows in doubt, batches taken back and loaded again.

Each is done under the target's lease and stays on the record: the user, the moment, the command and what it was about.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
from sqlalchemy import select

from pipelines import ledger_tables as t
from pipelines.accepted import accepted_files, rows_in
from pipelines.changes import TAKEN_BACK, take_back
from pipelines.client import NotDone, NotSent, Refused, TargetUnusable, Unknown
from pipelines.compare import same_content
from pipelines.doubts import settle_doubts
from pipelines.exits import ALL_LOADED, IN_DOUBT, SET_ASIDE, UNUSABLE
from pipelines.ledger import Lease
from pipelines.ledger_doubts import Doubtful, doubtful, known_resources
from pipelines.ledger_former import Former, intend_withdrawal, raise_generation, standing, undone
from pipelines.ledger_rows import Outcome
from pipelines.ledger_tables import NotPossible
from pipelines.pipeline import lease_of, recount
from pipelines.session import Session, reading
from pipelines.staging import Filling, stage_target, workbench

ROWS_A_COMMIT = 64
READS_WITHOUT_A_SWEEP = 500
THERE = ("created", "adopted", "superseded", "updated")


@dataclass(frozen=True)
class Said:
    """A decision in one line."""

    line: str
    exit_code: int = ALL_LOADED

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> Iterator[str]:
        yield self.line


# -- rows in doubt


@dataclass
class Resolved:
    """Rows in doubt that were looked up: by name (`<batch>:<line>`) the resource adopted, or why it is left."""

    adopted: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        return IN_DOUBT if self.left else ALL_LOADED

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "exit_code": self.exit_code}

    def lines(self) -> Iterator[str]:
        for name, resource in self.adopted.items():
            yield f"{name}: found, {resource}"
        for name, why in self.left.items():
            yield f"{name}: still in doubt: {why}"
        if not self.adopted and not self.left:
            yield "no rows in doubt"


def resolve(session: Session, batch_id: str | None = None) -> Resolved:
    """Looks rows in doubt up, of the target or of one batch, and adopts those that can be told. Sends nothing.

    Raises `NotPossible` for a batch that the ledger does not know.
    """
    ledger, target, resolved = session.ledger, session.target, Resolved()
    if batch_id is not None:
        _known_batch(session, batch_id)
    with lease_of(session):
        found = doubtful(ledger, target, batch_id)
        for of in sorted({(doubt.source, doubt.resource_type, doubt.batch_id) for doubt in found}):
            names = {doubt.key: doubt for doubt in found if (doubt.source, doubt.resource_type, doubt.batch_id) == of}
            settled = settle_doubts(
                ledger,
                session.connection.client,
                target,
                of,
                accepted_files(session.home / "batches" / of[2]),
                safe=session.connection.capabilities.safe_batches(of[1]),
                settling_seconds=session.pace.settling_seconds,
            )
            for row, _ in settled.adopted:
                resolved.adopted[names.pop(row.key).name] = of[1]
            whys = {row.key: why for row, why in settled.left}
            whys |= {row.key: "not there: the next import sends it again" for row in settled.resend}
            for key, doubt in names.items():
                why = "a change: the next import settles it" if doubt.resource_id else "its source row is not here"
                resolved.left[doubt.name] = whys.get(key, why)
            recount(ledger, target, of[2])
    return resolved


def accept(session: Session, name: str, resource_id: str) -> str:
    """Settles a row in doubt by hand as the resource that it made. Raises `NotPossible`, `TargetUnusable`."""
    resource_id = resource_id.rpartition("/")[2]
    with lease_of(session):
        doubt = _doubt(session, name)
        kind = doubt.resource_type
        with reading(kind):
            body = session.connection.client.read(kind, resource_id)
        if body is None:
            raise NotPossible(f"the target has no {kind}/{resource_id}")
        known = known_resources(session.ledger, session.target, kind, {doubt.patient_id})
        if any(resource_id in ids for ids in known.values()):
            raise NotPossible(f"{kind}/{resource_id} is another row's already")
        row = rows_in(accepted_files(session.home / "batches" / doubt.batch_id), {doubt.key: doubt.content_hash}).get(
            doubt.key
        )
        if row is None:
            raise NotPossible(f"{name}: its source row is not here any more, so nothing can be compared")
        if not same_content(kind, orjson.loads(row.body), body):
            raise NotPossible(f"{kind}/{resource_id} has other content than {name}")
        session.decide("doubts accept", [name], f"{kind}/{resource_id}")
        replaces = standing(session.ledger, session.target, doubt.source, kind, [doubt.key])
        state = "superseded" if replaces else "adopted"
        outcome = Outcome(doubt.key, doubt.generation, state, resource_id, None)
        session.ledger.settle(session.target, doubt.source, kind, [outcome])
        recount(session.ledger, session.target, doubt.batch_id)
    return f"{name}: {kind}/{resource_id}"


def resend(session: Session, name: str) -> str:
    """Lets the next import send a row in doubt again: somebody has made sure that the target does not have it."""
    with lease_of(session) as lease:
        doubt = _doubt(session, name)
        if session.connection.capabilities.safe_batches(doubt.resource_type) or doubt.resource_id:
            raise NotPossible(f"{name}: no need: the next import can send it again without making two")
        of = (doubt.source, doubt.resource_type, doubt.key, doubt.generation)
        session.decide("doubts resend", [name])
        raise_generation(session.ledger, lease, [of], None)
        recount(session.ledger, session.target, doubt.batch_id)
    return f"{name}: the next import sends it again"


def _doubt(session: Session, name: str) -> Doubtful:
    batch_id, _, line = name.rpartition(":")
    found = [doubt for doubt in doubtful(session.ledger, session.target, batch_id) if str(doubt.line) == line]
    if not found:
        raise NotPossible(f"{name}: no such row in doubt (they are named <batch>:<line>; see: chartferry status BATCH)")
    return found[0]


# -- taking a batch back


@dataclass
class Undone:
    """By row (`<batch>:<line>`) the resource that was (or would be) taken back, or why it was not."""

    dry_run: bool
    taken_back: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    unusable: str | None = None

    @property
    def exit_code(self) -> int:
        if self.unusable:
            return UNUSABLE
        return SET_ASIDE if self.left else ALL_LOADED

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "exit_code": self.exit_code}

    def lines(self) -> Iterator[str]:
        word = "would be taken back" if self.dry_run else "taken back"
        for name, resource in self.taken_back.items():
            yield f"{name}: {word}: {resource}"
        for name, why in self.left.items():
            yield f"{name}: not taken back: {why}"
        yield f"{len(self.taken_back):,} {word}, {len(self.left):,} not"
        if self.unusable:
            yield f"error: {self.unusable}"


def undo(session: Session, batch_id: str, dry_run: bool) -> Undone:
    """Takes back what the batch made: responses to `entered-in-error`, tasks to `cancelled`; lists what cannot be."""
    _known_batch(session, batch_id)
    done = Undone(dry_run)
    with lease_of(session) as lease:
        records = _records(session, batch_id, (*THERE, "in_doubt", "planned"))
        going = [record for record in records if not (why := _why_not(record)) or _leave(done, record, why)]
        if dry_run:
            done.taken_back = {_name(r): f"{r['resource_type']}/{r['resource_id']}" for r in going}
            return done
        session.decide("undo", [batch_id])
        for start in range(0, len(going), ROWS_A_COMMIT):
            _undo_some(session, lease, going[start : start + ROWS_A_COMMIT], done)
            if done.unusable:
                break
    return done


def _why_not(record: dict[str, Any]) -> str | None:
    if record["state"] in ("in_doubt", "planned"):
        return f"{record['state'].replace('_', ' ')}"
    if record["resource_type"] not in TAKEN_BACK:
        return f"{record['resource_type']}/{record['resource_id']}: the interface takes no payment back"
    if record["state"] == "updated":
        return f"{record['resource_type']}/{record['resource_id']}: this batch changed it and did not make it"
    return None


def _leave(done: Undone, record: dict[str, Any], why: str) -> bool:
    done.left[_name(record)] = why
    return False


def _undo_some(session: Session, lease: Lease, records: Sequence[dict[str, Any]], done: Undone) -> None:
    ledger, target, kind, source = session.ledger, session.target, records[0]["resource_type"], records[0]["source"]
    by_key = {record["key"]: record for record in records}

    def waiting() -> dict[str, Former]:
        """The versions of these records that wait to be taken back: of an earlier undo that was cut off, too."""
        found = standing(ledger, target, source, kind, by_key)
        return {each.key: each for each in found if each.generation == by_key[each.key]["generation"]}

    before = waiting()
    new = [record for key, record in by_key.items() if key not in before]
    intend_withdrawal(ledger, lease, [(source, kind, record["key"], record["generation"]) for record in new])
    versions = list(waiting().values())
    with ThreadPoolExecutor(session.pace.at_once, "undo") as pool:
        posted = list(pool.map(lambda v: take_back(session.connection.client, kind, str(v.resource_id)), versions))
    withdrawn: list[Former] = []
    for version, each in zip(versions, posted, strict=True):
        record = by_key[version.key]
        done.unusable = done.unusable or each.unusable
        if each.result.state == "undone" or each.result.status == 404:
            withdrawn.append(version)
            done.taken_back[_name(record)] = f"{kind}/{version.resource_id}"
        else:
            done.left[_name(record)] = f"{kind}/{version.resource_id}: HTTP {each.result.status or 'without an answer'}"
    undone(ledger, target, withdrawn)


# -- loading a batch again


def plan_again(session: Session, batch_id: str) -> int:
    """Makes rows that were taken back, or that are gone from the target, planned anew; how many. Raises `NotPossible`.

    They go under the next generation, so that neither the ledger nor the target takes them for what they were.
    """
    _known_batch(session, batch_id)
    with lease_of(session) as lease:
        back = _records(session, batch_id, ("undone",))
        gone = _gone(session, _records(session, batch_id, THERE))
        if not back and not gone:
            raise NotPossible(f"{batch_id}: nothing of it was taken back or is gone from the target")
        session.decide("import --again", [batch_id])
        session.ledger.finish_batch(session.target, batch_id, "running")
        number = raise_generation(session.ledger, lease, map(_of, back), None)
        number += raise_generation(session.ledger, lease, map(_of, gone), "gone")
    return number


def _gone(session: Session, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those whose resource the target does not have: each is asked for, of many only what a sweep does not show."""

    def is_gone(record: dict[str, Any]) -> bool:
        return session.connection.client.read(record["resource_type"], record["resource_id"]) is None

    doubtful = records if len(records) <= READS_WITHOUT_A_SWEEP else _not_shown(session, records)
    try:
        with ThreadPoolExecutor(session.pace.at_once, "look") as pool:
            return [record for record, gone in zip(doubtful, pool.map(is_gone, doubtful), strict=True) if gone]
    except (NotSent, NotDone, Refused, Unknown) as error:
        raise TargetUnusable(f"the batch could not be read from the target ({error})") from None


def _not_shown(session: Session, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    with workbench(session.home) as db:
        stage_target(db, session, records[0]["resource_type"])
        with Filling(db, "record", "n resource_id") as table:
            for n, record in enumerate(records):
                table.add((n, record["resource_id"]))
        missing = "SELECT n FROM record ANTI JOIN there ON there.id = record.resource_id ORDER BY n"
        return [records[n] for (n,) in db.execute(missing).fetchall()]


def _of(record: dict[str, Any]) -> tuple[str, str, str, int]:
    return record["source"], record["resource_type"], record["key"], record["generation"]


def read_by(session: Session, batch_id: str) -> set[str]:
    """The feeds, by hash, that a batch's records were read by."""
    record = t.record.c
    query = select(record.feed_hash).distinct().where(record.target == session.target, record.batch_id == batch_id)
    with session.ledger.engine.connect() as connection:
        return set(connection.execute(query).scalars())


# -- within


def _known_batch(session: Session, batch_id: str) -> dict[str, Any]:
    batch = session.ledger.batch(session.target, batch_id)
    if batch is None:
        raise NotPossible(f"{batch_id}: no such batch at this target")
    return batch


def _records(session: Session, batch_id: str, states: Iterable[str]) -> list[dict[str, Any]]:
    record = t.record.c
    query = select(t.record).where(record.target == session.target, record.batch_id == batch_id)
    with session.ledger.engine.connect() as connection:
        rows = connection.execute(query.where(record.state.in_(tuple(states))).order_by(record.line))
        return [dict(row._mapping) for row in rows]


def _name(record: dict[str, Any]) -> str:
    return f"{record['batch_id']}:{record['line']}"

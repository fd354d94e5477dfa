"""Rebuilding a lost ledger: the batches that it does not know are validated again and matched with the target.

By identifier where the target has ours, else by content; a resource is taken once. Nothing is sent.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from pipelines.accepted import accepted_rows
from pipelines.batch import Unreadable
from pipelines.book import Batch, Book, Loaded
from pipelines.client import TargetUnusable
from pipelines.compare import OWN_TIME, fingerprint
from pipelines.ledger_doubts import all_resources
from pipelines.ledger_rows import Outcome
from pipelines.pipeline import begin, end, end_without_load, lease_of, validate_run
from pipelines.sending import Identity, Row
from pipelines.session import Session, Waiting, reading, unfinished
from pipelines.settling import whole_search
from pipelines.validation.outcome import Validated

ENDED = "entered-in-error"


class There(NamedTuple):
    """A resource at the target that no record is."""

    id: str
    status: str
    content: str


@dataclass
class Pool:
    """What a target has that no record is: by our identifier, and by content. taken: ids that a record has by now."""

    identified: dict[tuple[str, str], There] = field(default_factory=dict)
    alike: dict[str, deque[There]] = field(default_factory=lambda: defaultdict(deque))
    taken: set[str] = field(default_factory=set)

    def take(self, name: str) -> There | None:
        """One of equal content, once."""
        alike = self.alike.get(name, deque())
        while alike:
            found = alike.popleft()
            if found.id not in self.taken:
                self.taken.add(found.id)
                return found
        return None


def lost_batches(session: Session) -> Iterator[Waiting]:
    """Received batches that the ledger does not know at all, oldest first."""
    known = {row["batch_id"] for row in session.ledger.batches()}
    return (each for each in unfinished(session) if each.received and each.received.batch_id not in known)


def adopt_batch(session: Session, waiting: Waiting, pools: MutableMapping[str, Pool]) -> dict[str, int] | str:
    """Counts `adopted` and `waiting`, or why the batch cannot be read. Raises `TargetUnusable`."""
    assert waiting.received is not None  # noqa: S101 - these come from their batches
    run = begin(session, waiting.received, waiting.feed, adopting=True)
    try:
        validated = validate_run(session, run)
    except (Unreadable, TargetUnusable) as error:
        end_without_load(session, run, Validated(run.folder), "failed", str(error))
        return str(error)
    kind = run.feed.resource
    if kind not in pools:
        pools[kind] = _pool(session, kind)
    batch = Batch(session.target, run.received.batch_id, run.feed, run.folder, True, session.pace)
    with lease_of(session) as lease:
        safe = session.connection.capabilities.safe_batches(kind)
        book = Book(batch, session.connection.client, session.ledger, lease, session.progress, safe)
        book.note_skipped()
        for rows in accepted_rows(run.folder / "accepted.parquet", session.ledger.now()):
            _adopt(book, Identity(book.source, kind), rows, pools[kind])
    loaded: Loaded = book.loaded
    result = end(session, run, validated, loaded)
    return {"adopted": loaded.counts["adopted"] + loaded.counts["undone"], "waiting": result.waiting}


def _pool(session: Session, kind: str) -> Pool:
    """The target's resources of a type, less those that the ledger knows."""
    with reading(kind):
        there = whole_search(session.connection.client, kind, {})
    known = all_resources(session.ledger, session.target, kind)
    pool = Pool()
    for body in there:
        if body["id"] in known:
            continue
        content = fingerprint(kind, body, timed=False) or ""
        identifier = body.get("identifier")
        first = (identifier[0] if isinstance(identifier, list) and identifier else identifier) or {}
        found = There(str(body["id"]), str(body.get("status")), content)
        if str(first.get("system", "")).startswith("urn:chartferry:"):
            pool.identified[first["system"], str(first.get("value"))] = found
        elif found.status != ENDED:
            for name in {fingerprint(kind, body) or "", content}:
                pool.alike[name].append(found)
    return pool


def _adopt(book: Book, identity: Identity, rows: list[Row], pool: Pool) -> None:
    known = book.ledger.known(book.batch.target, book.source, book.resource, [row.key for row in rows])
    found: list[tuple[Row, str, str]] = []
    for row in rows:
        if row.key in known:
            book.loaded.add("unchanged", row.amount_cents)
        elif match := _match(identity, row, pool):
            generation, resource_id, state = match
            found.append((row._replace(generation=generation), resource_id, state))
    if not found:
        return
    book.intend([row for row, _, _ in found])
    outcomes = [Outcome(row.key, row.generation, state, resource_id, None) for row, resource_id, state in found]
    book.ledger.settle(book.batch.target, book.source, book.resource, outcomes)
    for row, _, state in found:
        book.loaded.add("adopted" if state == "undone" else state, row.amount_cents)


def _match(identity: Identity, row: Row, pool: Pool) -> tuple[int, str, str] | None:
    """Generation, resource and state of the row, once; None when the target does not have it."""
    body = orjson.loads(row.body)
    content = fingerprint(identity.resource_type, body, timed=False) or ""
    generation, newest = 1, None
    while same := pool.identified.get((identity.system, identity.value(row.key, generation))):
        newest, generation = same, generation + 1
    if newest:
        if newest.content != content:
            return None  # the next import meets it, and says so
        return generation - 1, newest.id, "undone" if newest.status == ENDED else "adopted"
    # A row without a time of its own was given one by us, which is lost with the ledger.
    dated = OWN_TIME.get(identity.resource_type, "") in body
    alike = pool.take((fingerprint(identity.resource_type, body) or "") if dated else content)
    return (1, alike.id, "adopted") if alike else None

"""The records of a batch, a piece at a time, and the state at the target of those that were taken back."""

from collections.abc import Container, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa
from sqlalchemy import ColumnElement, Text, func, literal, select

from pipelines.client.comparison import TAKEN_BACK
from pipelines.client.threads import threads
from pipelines.corrections.moved_resources import why_not
from pipelines.home.scratch import throwaway_folder
from pipelines.home.spill import ParquetWriter, batches
from pipelines.ledger import tables as t
from pipelines.ledger.former_versions import FormerVersion, earlier_versions
from pipelines.ledger.rows import RecordRow
from pipelines.ledger.states import MADE
from pipelines.session.needed_reads import reading
from pipelines.session.session import Session

ROWS_A_PIECE = 2_000
LEFT = (*MADE, "in_doubt", "planned")
"""States of records that an undo takes back, or names as not taken back."""
OVER = ("withdrawn", "gone")
"""Fates of resources that no longer exist or count."""


Piece = Sequence[RecordRow]
COLUMNS = [t.record.c[name] for name in RecordRow._fields]
RECORDS = pa.schema([(c.name, pa.string() if isinstance(c.type, Text) else pa.int64()) for c in COLUMNS])


def _of_batch(session: Session, batch_id: str, states: Sequence[str]) -> list[ColumnElement[bool]]:
    record = t.record.c
    return [record.target == session.target, record.batch_id == batch_id, record.state.in_(states)]


def count_records(session: Session, batch_id: str, states: Sequence[str]) -> int:
    query = select(func.count()).select_from(t.record).where(*_of_batch(session, batch_id, states))
    return int(session.ledger.value(query))


def pieces_of(session: Session, batch_id: str, states: Sequence[str]) -> Iterator[Piece]:
    """Yield the batch's records in these states, by line. They are read first, so later changes do not matter.

    All records of a piece have one source and type. A batch has several if its feed was changed between two runs.
    """
    query = select(*COLUMNS).where(*_of_batch(session, batch_id, states)).order_by("line")
    with throwaway_folder(session.home) as folder:
        kept = folder / "records.parquet"
        with session.ledger.engine.connect() as connection, ParquetWriter(kept, RECORDS) as out:
            for row in connection.execution_options(yield_per=ROWS_A_PIECE).execute(query):
                out.add(*row)
        for part in batches(kept, ROWS_A_PIECE, RecordRow._fields):
            rows = zip(*(column.to_pylist() for column in part.columns), strict=True)
            for _, piece in groupby(map(RecordRow._make, rows), attrgetter("source", "resource_type")):
                yield list(piece)


def changed_since(session: Session, batch_id: str) -> Iterator[tuple[RecordRow, str]]:
    """Yield records that the batch made or updated, as they were then, each with the later batch that updated it."""
    version, record, later = t.versions.c, t.records.c, t.batch.c
    of_batch = t.of_batch(t.versions, session.target, batch_id)
    named = {"source": t.stream.c.source, "resource_type": t.stream.c.resource_type, "batch_id": literal(batch_id)}
    columns: dict[str, Any] = {**dict(version.items()), **named}
    query = (
        select(*(columns[name] for name in RecordRow._fields), later.batch_id)
        .join(t.records, (record.stream_id == version.stream_id) & (record.key == version.key))
        .join(t.stream, t.stream.c.stream_id == version.stream_id)
        .join(t.batch, later.batch_no == record.batch_no)
        .where(of_batch, version.fate == "kept", version.state.in_(MADE))
        .where(record.batch_no != version.batch_no, record.generation == version.generation, record.state.in_(LEFT))
        .order_by(version.line, version.version.desc())
    )
    last = None
    with session.ledger.engine.connect() as connection:
        for *made, batch in connection.execution_options(yield_per=ROWS_A_PIECE).execute(query):
            one = RecordRow._make(made)
            if (one.line, one.key) != last:
                yield one, str(batch)
            last = (one.line, one.key)


def made_here(session: Session, piece: Piece) -> set[str]:
    """Return the keys of records that their batch has both made and updated, as `import --remap` does."""
    updated = {record.key: record for record in piece if record.state == "updated"}
    if not updated:
        return set()
    of = (piece[0].source, piece[0].resource_type)
    before = earlier_versions(session.ledger, session.target, *of, updated, "kept")
    made = [version for version in before if version.state in ("created", "adopted")]
    same = ((version.key, updated[version.key], version) for version in made)
    return {key for key, now, then in same if (now.batch_id, now.generation) == (then.batch_id, then.generation)}


def why_not_taken_back(record: RecordRow, own: Container[str]) -> str | None:
    """Return why a record is not taken back; None if it can be. own: updated keys that the batch also made."""
    if record.state in ("in_doubt", "planned"):
        return record.state.replace("_", " ")
    if record.resource_type not in TAKEN_BACK:
        return f"{record.resource}: a payment cannot be taken back through the interface; correct it in the chart"
    if record.state == "updated" and record.key not in own:
        return f"{record.resource}: this batch only changed it, and a change cannot be taken back"
    return None


def count_replaced(session: Session, batch_id: str) -> int:
    """Count the records that a later file has replaced by another resource."""
    version, record = t.versions.c, t.records.c
    of_record = (record.stream_id == version.stream_id) & (record.key == version.key)
    later = (record.batch_no != version.batch_no, record.generation > version.generation, record.state.in_(MADE))
    had = select(version.stream_id, version.key).distinct().join(t.records, of_record)
    had = had.where(t.of_batch(t.versions, session.target, batch_id), version.fate.in_(OVER), *later)
    return int(session.ledger.value(select(func.count()).select_from(had.subquery())))


def there_again(session: Session, piece: Piece) -> list[FormerVersion]:
    """Return versions of these records that were taken back, and that a restored target has in force again.

    For records that were undone, return also versions that were gone.
    """
    source, kind = piece[0].source, piece[0].resource_type
    if kind not in TAKEN_BACK:
        return []
    keys = [record.key for record in piece]
    before = earlier_versions(session.ledger, session.target, source, kind, keys, "withdrawn")
    if undone := [record.key for record in piece if record.state == "undone"]:
        before += earlier_versions(session.ledger, session.target, source, kind, undone, "gone")
    found = read_versions(session, kind, before)
    return [v for v, body in zip(before, found, strict=True) if body and body.get("status") != TAKEN_BACK[kind]]


def read_versions(session: Session, kind: str, versions: Sequence[FormerVersion]) -> list[dict[str, Any] | None]:
    """Return the present resources of versions; None if one is gone or its id another's. Raises `TargetUnusable`."""
    client = session.connection.client

    def read(version: FormerVersion) -> dict[str, Any] | None:
        body = client.read(kind, str(version.resource_id))
        return None if why_not(session, version, body) else body

    with reading(kind), threads(session.pace.at_once, "look") as pool:
        return list(pool.map(read, versions))


def waiting_versions(session: Session, records: Piece) -> list[FormerVersion]:
    """Return the versions of these records that are to be taken back, also those of an earlier, interrupted undo."""
    by_key = {record.key: record for record in records}
    found = earlier_versions(session.ledger, session.target, records[0].source, records[0].resource_type, by_key)
    return [version for version in found if version.generation == by_key[version.key].generation]


def read_by(session: Session, batch_id: str) -> set[str]:
    """Return the hashes of the feeds by which a batch's records were read."""
    record = t.record.c
    query = select(record.feed_hash).distinct().where(record.target == session.target, record.batch_id == batch_id)
    return {feed for (feed,) in session.ledger.read(query)}

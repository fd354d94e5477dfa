"""Lanes that other batches without an end hold: what comes later in them waits until those batches have decided.

Derived from the ledger and the accepted rows of those batches. Without such a batch it costs one query a load.
"""

from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import or_, select

from pipelines.home.spill import batches
from pipelines.ledger import tables as t
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import KnownRecord
from pipelines.ledger.states import ASKED
from pipelines.loading.accepted import ROWS_A_LOOK, accepted_files
from pipelines.loading.loaded import Batch
from pipelines.loading.row import Row


class Held:
    """Lanes held by other batches of the same target and resource type, each with the batch that holds it.

    A row in doubt holds its lane, whichever file came first, unless its repeat is safe. Every row without an outcome of
    a batch that came earlier, and has begun to send, holds its lane too: after a kill order matters at any target.
    """

    def __init__(self, batch: Batch, ledger: Ledger, safe: bool) -> None:
        self._batch = batch
        self._lanes: dict[str, str] = {}
        for other, is_earlier in _others(batch, ledger):
            if is_earlier or not safe:
                for lane in _open_lanes(batch.folder.parent.parent / other, ledger, batch.target, is_earlier):
                    self._lanes.setdefault(lane, other)

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def holder(self, row: Row, record: KnownRecord | None) -> str | None:
        """The batch that a row waits for; None for a row that may be judged.

        A row in doubt itself is never held: to settle it is what the others wait for.
        """
        holder = self._lanes.get(row.lane)
        if holder is None or record is None or record.state not in ASKED:
            return holder
        own = (record.batch_id, record.line) == (self._batch.batch_id, row.line)
        return None if own or row.is_held_by(record) else holder


def _others(batch: Batch, ledger: Ledger) -> Iterator[tuple[str, bool]]:
    """Other batches of the target and resource type without an end, oldest first; True for one that came earlier.

    One query, however many there are: a run of many small files validates all of them before it loads the first.
    """
    c = t.batch.c
    query = select(c.received_at, c.batch_id).where(
        c.target == batch.target,
        or_(c.batch_id == batch.batch_id, (c.resource_type == batch.feed.resource) & (c.state == "running")),
    )
    with ledger.engine.connect() as connection:
        found = sorted((received_at, name) for received_at, name in connection.execute(query))
    own = next((each for each in found if each[1] == batch.batch_id), None)
    if own:
        yield from ((each[1], each < own) for each in found if each != own)


def _open_lanes(folder: Path, ledger: Ledger, target: str, is_earlier: bool) -> set[str]:
    """Lanes of a batch's rows in doubt; of one that is earlier and has begun, of all its rows without an outcome."""
    done, asked = _lines(ledger, target, folder.name)
    is_earlier = is_earlier and _has_begun(ledger, target, folder.name)
    if not (asked or is_earlier):
        return set()
    lanes: set[str] = set()
    for path in accepted_files(folder):
        for part in batches(path, ROWS_A_LOOK, ["line", "lane"]):
            pairs = zip(part.column("line").to_pylist(), part.column("lane").to_pylist(), strict=True)
            lanes.update(lane for line, lane in pairs if line in asked or (is_earlier and line not in done))
    return lanes


def _has_begun(ledger: Ledger, target: str, batch_id: str) -> bool:
    """True if a batch has rows in the ledger, or a run that ended: not while it waits for its turn to load."""
    with ledger.engine.connect() as connection:
        for table in (t.record, t.repeat):
            here = (table.c.target == target, table.c.batch_id == batch_id)
            if connection.execute(select(table.c.line).where(*here).limit(1)).first():
                return True
    return any(run["finished_at"] for run in ledger.runs(target, batch_id))


def _lines(ledger: Ledger, target: str, batch_id: str) -> tuple[set[int], set[int]]:
    """The lines of a batch's rows that have an outcome, and of those that the target was asked for without an answer.

    A record that was set aside has an outcome: its own, or that of the row that answers it.
    """
    done, asked = set[int](), set[int]()
    with ledger.engine.connect() as connection:
        of_batch = (t.record.c.target == target, t.record.c.batch_id == batch_id)
        for line, state in connection.execute(select(t.record.c.line, t.record.c.state).where(*of_batch)):
            if state in ASKED:
                asked.add(line)
            elif state != "planned":
                done.add(line)
        for table in (t.repeat, t.reject):
            here = (table.c.target == target, table.c.batch_id == batch_id)
            done.update(connection.execute(select(table.c.line).where(*here)).scalars())
    return done - asked, asked

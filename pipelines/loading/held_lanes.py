"""Lanes held by other unfinished batches: later rows in these lanes wait until those batches have ended.

They are derived from the ledger and the accepted rows of those batches. If there is no such batch, a load needs one
query.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from pipelines.home.spill import batches
from pipelines.ledger import tables as t
from pipelines.ledger.access import Query
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import KnownRecord
from pipelines.ledger.states import ASKED, UNDECIDED
from pipelines.loading.accepted import ROWS_A_LOOK, accepted_files
from pipelines.loading.load_counts import BatchRun
from pipelines.loading.row import AcceptedRow


class HeldLanes:
    """Lanes held by other batches of the same target and resource type.

    A row in doubt holds its lane, whichever file came first, unless it is safe to repeat. In a batch that came earlier
    and has begun to send, every row without an outcome holds its lane too: after a kill the order matters at any
    target.

    lanes: by lane, the batch that holds it.
    """

    def __init__(self, batch: BatchRun, ledger: Ledger, safe: bool) -> None:
        self._batch = batch
        self.lanes: dict[str, str] = {}
        for other, is_earlier in _others(batch, ledger):
            if is_earlier or not safe:
                for lane in _open_lanes(batch.folder.parent.parent / other, ledger, batch.target, is_earlier):
                    self.lanes.setdefault(lane, other)

    def __bool__(self) -> bool:
        return bool(self.lanes)

    def holder(self, row: AcceptedRow, record: KnownRecord | None) -> str | None:
        """Return the batch that a row waits for; None if the row may be judged.

        A row in doubt is never held itself: the other rows wait for it to be settled.
        """
        holder = self.lanes.get(row.lane)
        if record is None or record.state not in ASKED:
            return holder
        own = (record.batch_id, record.line) == (self._batch.batch_id, row.line)
        return None if own or record.holds(row.content_hash) else holder


def _others(batch: BatchRun, ledger: Ledger) -> Iterator[tuple[str, bool]]:
    """Yield the other unfinished batches of the target and resource type, oldest first, with True if one came earlier.

    It uses one query for all, since a run of many small files validates all of them before it loads the first.
    """
    c = t.batch.c
    query = select(c.received_at, c.batch_id).where(
        c.target == batch.target,
        or_(c.batch_id == batch.batch_id, (c.resource_type == batch.feed.resource) & (c.state == "running")),
    )
    found = sorted((received_at, name) for received_at, name in ledger.read(query))
    own = next(each for each in found if each[1] == batch.batch_id)
    return ((each[1], each < own) for each in found if each != own)


def _open_lanes(folder: Path, ledger: Ledger, target: str, is_earlier: bool) -> set[str]:
    """Return the lanes of a batch's rows in doubt. For an earlier batch that has begun, add those of all rows without
    outcome.

    A batch has begun if the ledger has rows of it, or if one of its runs has ended, but not while it waits for its
    turn to load. A record that was set aside has an outcome: its own, or that of the row that answers it.
    """
    record, repeat, reject = t.record.c, t.repeat.c, t.reject.c
    with ledger.reading():
        states = ledger.read(_of_batch(select(record.line, record.state), record, target, folder.name))
        repeats = ledger.read(_of_batch(select(repeat.line), repeat, target, folder.name))
        rejects = ledger.read(_of_batch(select(reject.line), reject, target, folder.name))
        has_begun = states or repeats or any(run["finished_at"] for run in ledger.runs(target, folder.name))
    asked = {line for line, state in states if state in ASKED}
    done = {line for line, state in states if state not in UNDECIDED} | {line for (line,) in (*repeats, *rejects)}
    is_open = is_earlier and has_begun
    if not (asked or is_open):
        return set()
    lanes: set[str] = set()
    for path in accepted_files(folder):
        for part in batches(path, ROWS_A_LOOK, ["line", "lane"]):
            pairs = zip(part.column("line").to_pylist(), part.column("lane").to_pylist(), strict=True)
            lanes.update(lane for line, lane in pairs if line in asked or (is_open and line not in done))
    return lanes


def _of_batch(query: Query, table: ReadOnlyColumnCollection[str, Any], target: str, batch_id: str) -> Query:
    return query.where(table.target == target, table.batch_id == batch_id)

"""The matters in the published tables that need a person now: files that were not loaded, rows in doubt, open rejects.

A file that was not loaded counts until each of its records is answered: see `ledger/unanswered_records.py`. Under
Dagster, the standing checks report these matters from the ledger.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import duckdb

from pipelines.home.batch import printable_name
from pipelines.home.counted import counted
from pipelines.ledger.standing import is_ended_by_undo, next_step
from pipelines.ledger.states import LANDED, NOT_LOADED

BATCHES = f"""
    WITH here AS (SELECT target, published_at FROM publication ORDER BY published_at DESC LIMIT 1),
    batch AS (
        SELECT import_batch.*, {" + ".join(f"import_batch.{state}" for state in LANDED)} AS taken
        FROM import_batch JOIN here USING (target)
    ),
    open AS (
        SELECT batch_id, count(*) FILTER (state = 'open') AS number, count(*) FILTER (state = 'closed') AS closed
        FROM reject GROUP BY batch_id
    ),
    doubt AS (
        SELECT batch_id, count(*) AS number FROM import_row JOIN here USING (target)
        WHERE state IN ('in_doubt', 'sending') GROUP BY batch_id
    ),
    undone AS (
        SELECT batch_id, count(*) AS number FROM import_row JOIN here USING (target)
        WHERE state = 'undone' GROUP BY batch_id
    ),
    last_run AS (
        SELECT batch_id, arg_max(message, run) AS message, max(coalesce(finished_at, started_at)) AS at,
            arg_max(state, run) AS state
        FROM import_run GROUP BY batch_id
    )
    SELECT batch.batch_id, batch.feed, batch.file_name, batch.received_at, batch.state, batch.records, batch.taken,
        batch.created + batch.adopted + batch.updated + batch.superseded, batch.unchanged + batch.skipped,
        batch.rejected, batch.refused, coalesce(open.number, 0), coalesce(open.closed, 0), coalesce(doubt.number, 0),
        coalesce(undone.number, 0), coalesce(batch.unanswered = 0, false),
        last_run.message, last_run.state,
        coalesce(last_run.at < here.published_at - INTERVAL 1 HOUR, false)
    FROM batch CROSS JOIN here
    LEFT JOIN open ON batch.batch_id = open.batch_id
    LEFT JOIN doubt ON batch.batch_id = doubt.batch_id
    LEFT JOIN undone ON batch.batch_id = undone.batch_id
    LEFT JOIN last_run ON batch.batch_id = last_run.batch_id
    ORDER BY batch.received_at DESC, batch.batch_id"""


ENDED_BY_UNDO = "An undo ended it before it was finished, and nothing more of it is sent."


@dataclass(frozen=True)
class BatchNow:
    """The present state of a batch.

    * made, known, rejected, refused: records by first outcome.
    * open, closed: rejects that are still open, and rejects that a later try or a correction has closed.
    * taken_back: records that were carried over and taken back later.
    * is_answered: True if the file was not loaded and each of its records has been answered since.
    * last_run: the state of the batch's newest run; None if it has no run.
    * is_silent: True if nothing has happened to the batch for an hour.
    """

    batch_id: str
    feed: str
    file_name: str | None
    received_at: datetime
    state: str
    records: int
    taken: int
    made: int
    known: int
    rejected: int
    refused: int
    open: int
    closed: int
    doubts: int
    taken_back: int
    is_answered: bool
    message: str | None
    last_run: str | None
    is_silent: bool

    @property
    def file(self) -> str:
        """Return the name of the batch's file; the batch's id if the file has no name."""
        return printable_name(self.file_name) if self.file_name else self.batch_id

    @property
    def carried(self) -> int:
        """Return the number of records that were carried over and have not been taken back."""
        return max(self.made - self.taken_back, 0)

    @property
    def not_sent(self) -> int:
        """Return the number of records without an outcome: nothing of the file was sent, or they wait to be sent."""
        return max(self.records - self.made - self.known - self.rejected - self.refused - self.doubts, 0)

    @property
    def is_failed(self) -> bool:
        """True if the batch failed or was stopped, and one of its records is still unanswered."""
        return self.state in NOT_LOADED and not self.is_answered

    @property
    def is_ended_by_undo(self) -> bool:
        return is_ended_by_undo(self.state, self.last_run)

    @property
    def is_cut_off(self) -> bool:
        return self.state == "running" and self.is_silent and not self.doubts

    @property
    def took_nothing(self) -> bool:
        is_empty = self.state == "finished" and self.records and not self.taken and not self.doubts
        return bool(is_empty and self.open and not self.closed)

    @property
    def now(self) -> str:
        """Return the state of the batch in words."""
        if self.state in NOT_LOADED:
            fate = "loaded, failed later" if self.carried else "not loaded"
            fate = "ended by undo" if self.is_ended_by_undo else fate
            return fate if self.carried or self.is_failed else f"{fate}, answered since"
        if self.doubts:
            return "in doubt"
        if self.state == "running":
            return "not finished" if self.is_cut_off else "under way"
        if self.took_nothing:
            return "nothing taken"
        if self.taken_back:
            return "loaded, some taken back" if self.carried else "taken back"
        return "loaded, some set aside" if self.open else "loaded"


@dataclass(frozen=True)
class AttentionItem:
    """A matter that needs a person: the file or feed, the matter, and its remedy."""

    file: str
    matter: str
    remedy: str


def batches_now(db: duckdb.DuckDBPyConnection) -> list[BatchNow]:
    """Return the batches of the publication's target, newest first."""
    return [BatchNow(*row) for row in db.execute(BATCHES).fetchall()]


def problems_of(batches: list[BatchNow]) -> list[AttentionItem]:
    """Return the matters that need a person now, the worst first."""
    found = [problem for of in (_failed, _cut_off, _in_doubt, _nothing_taken) for problem in of(batches)]
    return [*found, *_open_rejects(batches)]


def _failed(batches: list[BatchNow]) -> Iterator[AttentionItem]:
    for each in batches:
        if each.is_failed:
            why = (each.message or each.state).removeprefix(f"{each.file}: ").removeprefix(f"{each.batch_id}: ")
            what = "Its last run failed" if each.taken else "Nothing of it was loaded"
            matter = ENDED_BY_UNDO if each.is_ended_by_undo else f"{what}: {why}"
            remedy = next_step(each.batch_id, each.state, each.last_run, each.open)
            yield AttentionItem(each.file, matter, remedy)


def _cut_off(batches: list[BatchNow]) -> Iterator[AttentionItem]:
    for each in batches:
        if each.is_cut_off:
            yield AttentionItem(each.file, "It was not finished.", "chartferry import goes on with it.")


def _in_doubt(batches: list[BatchNow]) -> Iterator[AttentionItem]:
    for each in batches:
        if each.doubts:
            matter = f"{_rows(each.doubts)} sent, and the outcome is not known."
            remedy = "chartferry doubts resolve looks each row up again, and names the resources that may be the row's."
            yield AttentionItem(each.file, matter, remedy)


def _nothing_taken(batches: list[BatchNow]) -> Iterator[AttentionItem]:
    for each in batches:
        if each.took_nothing:
            one = each.records == 1
            matter = "Its one record was not taken." if one else f"None of its {each.records:,} records was taken."
            remedy = (
                "The rules below say why. If columns are the cause, compare the file with its feed: chartferry feeds"
                " check --sample."
            )
            yield AttentionItem(each.file, matter, remedy)


def _open_rejects(batches: list[BatchNow]) -> Iterator[AttentionItem]:
    for feed in sorted({each.feed for each in batches}):
        of_feed = [each for each in batches if each.feed == feed and each.open]
        number = sum(each.open for each in of_feed)
        if number:
            files = of_feed[0].file if len(of_feed) == 1 else f"{len(of_feed):,} files of {feed}"
            matter = f"{counted(number, 'record is', 'records are')} set aside."
            remedy = "chartferry rejects export writes them to files; the rules below say what to do about each."
            yield AttentionItem(files, matter, remedy)


def _rows(number: int) -> str:
    return counted(number, "row was", "rows were")

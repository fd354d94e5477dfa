"""Everything that is broken now, by feed: failed batches, unfinished batches, rows in doubt, open rejects by age.

It is read from the ledger alone, for the target of the newest run. It has names of batches and numbers, never a row.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import case, func, select

from pipelines.home.batch import printable_name
from pipelines.home.counted import counted
from pipelines.ledger import tables as t
from pipelines.ledger.home_batches import HomeBatches
from pipelines.ledger.lease import seen_of_late, utc_text
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rejects import closed_of, open_by_batch
from pipelines.ledger.row_fates import OPEN
from pipelines.ledger.states import ASKED, LANDED
from pipelines.ledger.unanswered_records import is_unanswered

AGES = (("under a day", 1), ("1 to 7 days", 7), ("7 to 30 days", 30))
OLDEST = "over 30 days"
ALL_AGES = (*(age for age, _ in AGES), OLDEST)
STALE = timedelta(hours=1)
NAMED = 20
"""The number of batches of one kind that a message names."""


@dataclass
class FeedProblems:
    """The problems of a feed.

    failed: reasons by batch. unfinished: batches without an end for an hour or longer. doubts: rows in doubt, by
    batch. nothing_taken: finished batches of which the target took no record, with the number of records. files: file
    names of all of these batches.
    """

    failed: dict[str, str] = field(default_factory=dict)
    nothing_taken: dict[str, int] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    doubts: dict[str, int] = field(default_factory=dict)
    rejects: Counter[str] = field(default_factory=Counter)
    files: dict[str, str] = field(default_factory=dict)

    def sentences(self) -> list[str]:
        """Return the problems in words, without rejects, which are known to wait for a person."""
        said = [f"{batch_id}: {why}" for batch_id, why in _first(self.failed)]
        said += [f"{batch_id}: {none_taken(number)}" for batch_id, number in _first(self.nothing_taken)]
        said += [
            f"{batch_id}: {counted(rows, 'row is', 'rows are')} in doubt" for batch_id, rows in _first(self.doubts)
        ]
        said += [f"{batch_id}: it was not finished" for batch_id in self.unfinished[:NAMED]]
        return said

    def open_rejects(self) -> str | None:
        """Return the open rejects by age, in words; None if there are none."""
        if not self.rejects.total():
            return None
        ages = ", ".join(f"{age} ({self.rejects[age]:,})" for age in ALL_AGES if self.rejects[age])
        return f"{counted(self.rejects.total(), 'reject is', 'rejects are')} open: {ages}"


def none_taken(records: int) -> str:
    """Return the words for a file of which the target took no record."""
    return "its only record was set aside" if records == 1 else f"all of its {records:,} records were set aside"


def not_known(rows: int) -> str:
    """Return the words for rows in doubt."""
    return f"it is not known whether the target has {counted(rows, 'row')}"


def broken_now(ledger: Ledger, home: Path, now: datetime) -> dict[str, FeedProblems]:
    """Return the problems by feed.

    A failed batch counts as long as it has a record that nothing answers, see `unanswered`. A batch of which the
    target took no record counts until one of its rejects is closed, or none of them is open.
    """
    found: dict[str, FeedProblems] = {}
    target = loaded_last(ledger)
    if target is None:
        return found
    batches = ledger.batches(target)
    still_open, kept = open_by_batch(ledger), ledger.batches_in(home)
    closed = closed_of(ledger, target)
    unknown = ("in_doubt",) if seen_of_late(ledger.read, ledger.clock(), target) else ASKED
    for row in batches:
        batch, broken = str(row["batch_id"]), found.setdefault(str(row["feed"]), FeedProblems())
        if still_open.get((target, batch)) and batch not in closed and _is_nothing_taken(row, kept):
            broken.nothing_taken[batch] = int(row["records"])
        if doubts := _in_doubt(ledger, row, unknown):
            broken.doubts[batch] = doubts
        _note(broken, row, ledger, kept, now)
    for feed, age, number in _open_rejects(ledger, target, now):
        found.setdefault(feed, FeedProblems()).rejects[age] += number
    return found


def loaded_last(ledger: Ledger) -> str | None:
    """Return the target of the newest run."""
    newest: str | None = ledger.value(select(t.run.c.target).order_by(t.run.c.started_at.desc()).limit(1))
    return newest


def _note(broken: FeedProblems, row: Mapping[str, Any], ledger: Ledger, kept: HomeBatches, now: datetime) -> None:
    batch_id = str(row["batch_id"])
    broken.files[batch_id] = printable_name(row["file_name"] or "")
    if is_unanswered(ledger, kept, row):
        said = [run["message"] for run in ledger.runs(row["target"], batch_id)[-1:]]
        broken.failed[batch_id] = str(next(filter(None, said), row["state"]))
    elif row["state"] == "running" and not row["in_doubt"] and ledger.worked_on_at(row) < utc_text(now - STALE):
        broken.unfinished.append(batch_id)


def _in_doubt(ledger: Ledger, row: Mapping[str, Any], unknown: Collection[str]) -> int:
    """Return the number of rows in doubt. For an unfinished batch they are counted now, since a killed run counted
    none.

    unknown: the states with an unknown outcome. `sending` is one of them unless a loader is at work.
    """
    if row["state"] != "running":
        return int(row["in_doubt"])
    rows = ledger.row_counts(row["target"], row["batch_id"])
    return sum(number for state, (number, _) in rows.items() if state in unknown)


def _is_nothing_taken(row: Mapping[str, Any], kept: HomeBatches) -> bool:
    """True if all records of a file were set aside and it was not purged."""
    nothing = row["state"] == "finished" and row["records"] and not landed_records(row) and not row["in_doubt"]
    return bool(nothing) and kept.has_source(str(row["batch_id"]))


def landed_records(counts: Mapping[str, Any]) -> int:
    """Return the number of records that landed at the target, or needed no change."""
    return sum(int(counts[name]) for name in LANDED)


def _open_rejects(ledger: Ledger, target: str, now: datetime) -> list[tuple[str, str, int]]:
    """Return feed, age and number of the open rejects."""
    reject, batch = t.reject.c, t.batch.c
    bounds = [(reject.first_seen_at > utc_text(now - timedelta(days=days)), age) for age, days in AGES]
    age = case(*bounds, else_=OLDEST)
    same = (batch.target == reject.target) & (batch.batch_id == reject.batch_id)
    query = select(batch.feed, age, func.count()).join_from(t.reject, t.batch, same)
    query = query.where(reject.target == target, reject.state.in_(OPEN)).group_by(batch.feed, age)
    return [(str(feed), str(age), int(number)) for feed, age, number in ledger.read(query)]


def _first(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(found.items())[:NAMED]

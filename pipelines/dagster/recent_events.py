"""Events in the ledger since a time: runs that ended, batches that a person settled, and records that `undo` took back.

The partition of a batch that was taken back is materialized again, with the number of rows that are left. Dagster has
no such state for a partition, and cannot forget a single one: it stays green, and its metadata shows the number.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import dagster as dg
from sqlalchemy import ColumnElement, exists, func, select

from pipelines.dagster import metadata
from pipelines.dagster.names import DagsterNames
from pipelines.dagster.stages.outcome import NOTHING_SENT
from pipelines.feeds.files.catalog import Catalog
from pipelines.home.batch import printable_name
from pipelines.home.counted import counted, word_for
from pipelines.importing.clock import CLOCK_IS_RIGHT
from pipelines.ledger import tables as t
from pipelines.ledger.lease import utc_text
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.standing import UNDO, undone_by_batch
from pipelines.runs.run import FINISHED, UNDER_WAY

LONGEST = timedelta(days=1)
"""The time for which an undo is watched after its decision: it may still be taking back records of a batch."""

_run, _batch = t.run.c, t.batch.c

Back = dict[str, int]
"""By `<target> <batch>`: how many of its records were taken back at the last look."""

Ended = tuple[str, str, int]
"""A run that ended: target, batch, number of the run."""


def ended_runs(ledger: Ledger, since: str, most: int) -> list[tuple[str, Ended, str]]:
    """Return end time, run and feed of the runs that ended after `since`, in this order, at most `most` of them."""
    have_ended = (_run.finished_at > since, _run.state.in_((FINISHED, *NOTHING_SENT)))
    return _ends(ledger, _run.finished_at, have_ended, most)


def settled_batches(ledger: Ledger) -> list[tuple[str, Ended, str]]:
    """Return end time, newest run and feed of the batches that were finished after that run had left them open.

    No run ends if a person settles a doubt. The end time is the batch's.
    """
    later = t.run.alias("later").c
    is_newest = ~exists().where(later.target == _run.target, later.batch_id == _run.batch_id, later.run > _run.run)
    left_open = (_run.state == UNDER_WAY, _run.finished_at.is_not(None), is_newest)
    return _ends(ledger, _batch.finished_at, (_batch.state == FINISHED, *left_open))


def _ends(
    ledger: Ledger, at: ColumnElement[str], which: Sequence[ColumnElement[bool]], most: int | None = None
) -> list[tuple[str, Ended, str]]:
    same = (_batch.target == _run.target) & (_batch.batch_id == _run.batch_id)
    query = select(at, _run.target, _run.batch_id, _run.run, _batch.feed).join(t.batch, same).where(*which)
    rows = ledger.read(query.order_by(at, _run.batch_id).limit(most))
    return [(ended, (target, batch_id, number), feed) for ended, target, batch_id, number, feed in rows]


def clock_was_right_at(ledger: Ledger) -> str:
    """Return when a person last confirmed the clock: times before that may be wrong. Empty if nobody did."""
    decision = t.decision.c
    return ledger.value(select(func.max(decision.at)).where(decision.command == CLOCK_IS_RIGHT)) or ""


def taken_back_since(ledger: Ledger, before: Mapping[str, int] | None, now: datetime) -> Back:
    """Return the numbers taken back of batches that were undone recently. before: of the last look, if any."""
    decision, since = t.decision.c, utc_text(now - LONGEST) if before is not None else ""
    undone = select(decision.target, decision.subject).where(decision.command == UNDO, decision.at > since).distinct()
    found = ledger.read(undone.order_by(decision.target, decision.subject))
    return {f"{target} {batch_id}": undone_by_batch(ledger, batch_id)[target, batch_id] for target, batch_id in found}


def tell_taken_back(
    ledger: Ledger, names: DagsterNames, catalog: Catalog, before: Mapping[str, int], back: Mapping[str, int]
) -> Iterator[dg.AssetMaterialization]:
    """Yield the new state of each batch with more records taken back than before."""
    for each, number in back.items():
        target, _, batch_id = each.rpartition(" ")
        batch = ledger.batch(target, batch_id)
        feed = catalog.named(batch["feed"]) if batch else None
        if batch and feed and number > before.get(each, 0):
            landed = sum(int(batch[name] or 0) for name in metadata.AT_TARGET)
            about = metadata.of_taken_back(landed, number)
            file = printable_name(batch["file_name"] or batch_id)
            yield dg.AssetMaterialization(
                names.keys_of(feed)["loaded"],
                partition=names.partition(batch_id),
                description=f"{file}: {number:,} of its {counted(landed, 'record')} at the target "
                f"{word_for(number, 'was', 'were')} taken back by undo.",
                metadata={"file": file, "target": target, **about},
            )

"""A load in parts: worker processes load ranges of a batch's lanes, while this process holds the target.

The steps before and after all rows are done here. A worker that dies is replaced, and another continues its part. The
run's counts are updated from those of the parts.
"""

from collections.abc import Sequence
from dataclasses import replace

from pipelines.client.pace import Pace
from pipelines.ledger.parts import BEGINNINGS, PartState, lay_out, states
from pipelines.loading.book import Book
from pipelines.loading.load import Load
from pipelines.loading.load_counts import LoadCounts
from pipelines.loading.part_outcome import PartLoaded, in_all
from pipelines.loading.sending_loop import Carrier
from pipelines.loading.stage import after, before
from pipelines.runs.part_plan import announce, is_joined, order_of, plan_of
from pipelines.runs.watching import Watch
from pipelines.runs.workers import Workers
from pipelines.session.session import Session

ROWS_A_WORKER = 25_000
"""The rows for which a worker is worth its start: starting one costs as much processor time as sending these."""


def workers_for(pace: Pace, rows: int) -> int:
    """Return how many processes load so many rows; 1 if this process does it alone.

    There are never more processes than requests that the target takes at once.
    """
    return max(1, min(pace.workers, pace.at_once, rows // ROWS_A_WORKER))


def load_in_parts(session: Session, load: Load, workers: int) -> LoadCounts:
    """Load a batch with so many workers. Raises `LedgerError`."""
    book, ledger, here = Book(load), load.ledger, min(workers, session.pace.here or workers)
    plan = plan_of(load, workers)
    intake, freed = before(book)
    plan = replace(plan, since=ledger.now(), freed=freed)
    if here < workers or is_joined(load.batch.folder):
        announce(session, load, plan)
    lay_out(ledger, load.lease, plan.parts)
    with Workers(order_of(session, load.batch, load.lease.owner, plan), here) as at_work:
        Watch(book).until_done(at_work)
    found = states(ledger, load.batch.target)
    ledger.confirm(load.lease)  # raises if another loader has removed the parts
    if not _take_in(book, found):
        Carrier(book, intake).go_on()
    lay_out(ledger, load.lease, 0)
    return after(book)


def _take_in(book: Book, found: Sequence[PartState]) -> bool:
    """Add the counts of the parts to the load's; return True if the target does not do what it says."""
    every = [PartLoaded.of(each) for each in found]
    book.loaded.take_in(in_all(each.loaded for each in every))
    for each in every:
        book.refused.update(each.refused)
    for line in dict.fromkeys(line for each in every for line in each.said):
        book.load.progress.say(line)
    if undone := [each for each in found if each.outcome is None]:
        book.loaded.is_cut_short = True
        book.loaded.unusable = book.loaded.unusable or _why_undone(undone, len(found))
    return any(each.lowered for each in every)


def _why_undone(undone: Sequence[PartState], parts: int) -> str:
    """Return why parts have no outcome, and what to do."""
    if given_up := sum(each.attempts >= BEGINNINGS for each in undone):
        were, their = ("was", "its") if given_up == 1 else ("were", "their")
        return (
            f"{given_up} of {parts} parts {were} begun {BEGINNINGS} times, and each time {their} worker ended "
            "(was it killed, or out of memory?): the next import goes on"
        )
    are = "is not done, since its worker" if len(undone) == 1 else "are not done, since their workers"
    return (
        f"{len(undone)} of {parts} parts {are} ended or could not start "
        "(was one killed, or out of memory?): the next import goes on"
    )

"""Join a load that another process leads: load parts of its batch until the load is over.

The leading process holds the target, and may be on another host. Once it is gone, no further part is begun. Another
process that takes over the target leads then, and can be joined.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing

from pipelines.ledger.lease import LeaseLost
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.parts import LoaderWatch
from pipelines.runs.loading import batch_of, bring_others
from pipelines.runs.order import WorkerOrder
from pipelines.runs.part_plan import announced_plan, order_of
from pipelines.runs.run import Run
from pipelines.runs.worker import load_next
from pipelines.session.session import Session
from pipelines.validation.outcome import ValidationResult

LOOK_SECONDS = 1.0
PATIENCE_SECONDS = 60.0


def join(
    session: Session, runs: Sequence[tuple[Run, ValidationResult]], is_over: Callable[[], bool], number: int
) -> int:
    """Load parts of these runs until their loads are over, or no process has led one for a while; return their number.

    number: of this worker, from 2, since the leading process is 1. A worker beyond the load's number of workers loads
    no part, since those share the target's pace. Once the leader is gone, this worker ends, since the next leader may
    wait for its place. Raises `LedgerError`, `TargetUnusable`.
    """
    parts, led_at, watch = 0, time.monotonic(), LoaderWatch(session.ledger, session.target)
    while not is_over() and time.monotonic() < led_at + PATIENCE_SECONDS:
        if order := _led(session, watch.look(), runs):
            if number <= order.batch.workers:
                parts += _follow(order, watch, is_over)
                if watch.is_lost:
                    break
            led_at = time.monotonic()
        time.sleep(LOOK_SECONDS)
    return parts


def _led(session: Session, loader: str | None, runs: Sequence[tuple[Run, ValidationResult]]) -> WorkerOrder | None:
    """Return the order from the plan of the process that holds the target, if it loads one of these runs; else None."""
    for run, validated in runs if loader else ():
        batch = batch_of(session, run, validated)
        if loader and (plan := announced_plan(session, batch, loader)):
            bring_others(session, run)
            return order_of(session, batch, loader, plan)
    return None


def _follow(order: WorkerOrder, watch: LoaderWatch, is_over: Callable[[], bool]) -> int:
    """Load parts of one load while it is led; return their number."""
    parts = 0
    with closing(Ledger.open(order.ledger)) as ledger, closing(order.client()) as client:
        while watch.look() == order.loader:
            try:
                found = load_next(order, ledger, client)
            except LeaseLost:
                break
            if found:
                parts += 1
            elif is_over():
                break
            else:
                time.sleep(LOOK_SECONDS)
    return parts

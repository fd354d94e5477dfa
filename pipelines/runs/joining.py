"""Join a load that another process leads: load parts of its batch until the load is over.

That process holds the target, and may be on another host. When it is gone no further part is begun: who takes the
target over leads, and is joined.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing

from pipelines.ledger.lease import LeaseLost
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.parts import LoaderWatch
from pipelines.runs.loading import batch_of, bring_others
from pipelines.runs.order import Order
from pipelines.runs.plan import announced, order_of
from pipelines.runs.run import Run
from pipelines.runs.worker import load_next
from pipelines.session.session import Session
from pipelines.validation.outcome import Validated

LOOK_SECONDS = 1.0
PATIENCE_SECONDS = 60.0


def join(session: Session, runs: Sequence[tuple[Run, Validated]], is_over: Callable[[], bool], number: int) -> int:
    """Load parts of these runs until their loads are over, or nobody has led one for a while; return how many.

    number: of this worker, from 2, since 1 is who leads. A load that shares the target's pace among fewer is left to
    them. Once who led is gone, the place of this worker may be what the next one waits for, so it is given up. Raises
    `LedgerError`, `TargetUnusable`.
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


def _led(session: Session, loader: str | None, runs: Sequence[tuple[Run, Validated]]) -> Order | None:
    """Return the order that follows from the plan of whoever holds the target, if that loads one of these runs."""
    for run, validated in runs if loader else ():
        batch = batch_of(session, run, validated)
        if loader and (plan := announced(session, batch, loader)):
            bring_others(session, run)
            return order_of(session, batch, loader, plan)
    return None


def _follow(order: Order, watch: LoaderWatch, is_over: Callable[[], bool]) -> int:
    """Load parts of one load, as long as it is led; return how many."""
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

"""Join a load that another process leads: load parts of its batch until the load is over.

That process holds the target, and may be on another host. When it is gone no further part is begun: who takes the
target over leads, and is joined.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing

from pipelines.ledger.lease import LeaseLost
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.parts import loader_at
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
    them. Raises `LedgerError`, `TargetUnusable`.
    """
    parts, led_at = 0, time.monotonic()
    while not is_over() and time.monotonic() < led_at + PATIENCE_SECONDS:
        if order := _led(session, runs):
            if number <= order.batch.workers:
                parts += _follow(session, order, is_over)
            led_at = time.monotonic()
        time.sleep(LOOK_SECONDS)
    return parts


def _led(session: Session, runs: Sequence[tuple[Run, Validated]]) -> Order | None:
    """Return the order that follows from the plan of whoever holds the target, if that loads one of these runs."""
    loader = loader_at(session.ledger, session.target)
    for run, validated in runs if loader else ():
        batch = batch_of(session, run, validated)
        if loader and (plan := announced(session, batch, loader)):
            bring_others(session, run)
            return order_of(session, batch, loader, plan)
    return None


def _follow(session: Session, order: Order, is_over: Callable[[], bool]) -> int:
    """Load parts of one load, as long as it is led; return how many."""
    parts = 0
    with closing(Ledger.open(order.ledger)) as ledger, closing(order.client()) as client:
        while loader_at(session.ledger, session.target) == order.loader:
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

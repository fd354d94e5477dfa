"""A worker: a process that loads parts of one batch until none is free. `runs/parts.py` starts it.

Its order comes through its standard input. The end of that input ends the worker, so that it never outlives a killed
loader. It prints nothing of a record, and of an unexpected error only the class.
"""

import os
import pickle
import signal
import sys
import threading
from contextlib import closing
from dataclasses import replace

from pipelines.client.client import FhirClient
from pipelines.ledger.failures import said_of
from pipelines.ledger.lease import LeaseLost
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.parts import claim
from pipelines.loading.accepted import LoadPart
from pipelines.loading.part_outcome import PartLoaded, ends_all
from pipelines.loading.part_stage import CollectedMessages, load_part
from pipelines.runs.order import WorkerOrder

BROKEN = 70
"""The exit code of a worker that met an error of this program."""


def work(order: WorkerOrder) -> None:
    """Load parts while one is free and the target can be used. Raises `LedgerError`."""
    with closing(Ledger.open(order.ledger)) as ledger, closing(order.client()) as client:
        while found := load_next(order, ledger, client):
            if found.loaded.unusable:
                return


def load_next(order: WorkerOrder, ledger: Ledger, client: FhirClient) -> PartLoaded | None:
    """Load a part and return its outcome; return None if no part is free now. Raises `LedgerError`."""
    lease = claim(ledger, order.batch.target, order.loader, ends_all=ends_all)
    if lease is None:
        return None
    with lease:
        part = LoadPart(lease.number, order.plan.parts, order.plan.since if lease.attempts > 1 else "")
        sayings = CollectedMessages()
        this = order.load(replace(order.batch, part=part), client, ledger, lease, sayings)
        found = load_part(this, lease, sayings, order.plan.freed)
        lease.done(found.as_text())
    return found


def _end_with(pipe: int) -> None:
    """End this process at once when the pipe closes, since nobody could learn what it sends after that."""
    while os.read(pipe, 1024):
        pass
    os._exit(BROKEN)


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # systemd ends all processes of a service by SIGTERM
    try:
        order = pickle.load(sys.stdin.buffer)  # noqa: S301 - of this program
        threading.Thread(target=_end_with, args=(0,), daemon=True).start()
        work(order)
    except (EOFError, LeaseLost, KeyboardInterrupt):
        return BROKEN
    except Exception as error:  # noqa: BLE001 - its text may contain values of a record
        print(f"a worker ended: {said_of(error)}", file=sys.stderr)
        return BROKEN
    return 0


if __name__ == "__main__":
    sys.exit(main())

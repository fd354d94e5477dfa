"""A worker: a process that loads parts of one batch until none is free. `runs/parts.py` starts it.

Its order comes through its input, which also ends it: a worker outlives no loader that was killed. Nothing of a record
is printed: of an unexpected error only its class.
"""

import os
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from pipelines.client.capabilities import Capabilities
from pipelines.client.client import Credentials, FhirClient
from pipelines.client.pace import limiter_of
from pipelines.client.profiles import ProfileFile
from pipelines.ledger.database import why
from pipelines.ledger.lease import LeaseLost
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.parts import claim
from pipelines.ledger.tables import LedgerError
from pipelines.loading.loaded import Batch
from pipelines.loading.part_outcome import ends_all
from pipelines.loading.part_stage import load_part
from pipelines.loading.parts import Part
from pipelines.validation.messages import receive

BROKEN = 70
"""The exit code of a worker that met an error of ours."""


@dataclass(frozen=True)
class Order:
    """What a worker loads, and how it reaches target and ledger.

    batch: with the pace of one worker. parts: how many there are. loader: the owner of the target's lease. since: when
    the load began. freed: keys of rows in doubt that may be sent again.
    """

    batch: Batch
    parts: int
    loader: str
    since: str
    freed: set[str]
    ledger: str | Path
    base_url: str
    credentials: Credentials
    capabilities: Capabilities
    profile: ProfileFile


def work(order: Order) -> None:
    """Load parts as long as one is free and the target can be used. Raises `LedgerError`."""
    ledger = Ledger.open(order.ledger)
    client = FhirClient(
        order.base_url, order.credentials, before_each=limiter_of(order.batch.pace), profile=order.profile
    )
    try:
        while lease := claim(ledger, order.batch.target, order.loader, ends_all=ends_all):
            with lease:
                part = Part(lease.number, order.parts, order.since if lease.attempts > 1 else "")
                batch = replace(order.batch, part=part)
                found = load_part(batch, client, order.capabilities, ledger, lease, order.freed)
                lease.done(found.as_text())
            if found.loaded.unusable:
                return
    finally:
        client.close()
        ledger.close()


def _end_with(pipe: int) -> None:
    """End this process at once when the pipe closes: nobody would know of what it sends."""
    while os.read(pipe, 1024):
        pass
    os._exit(BROKEN)


def main() -> int:
    try:
        order = receive(0)
        threading.Thread(target=_end_with, args=(0,), daemon=True).start()
        work(order)
    except (EOFError, LeaseLost, KeyboardInterrupt):
        return BROKEN
    except LedgerError as error:
        print(f"a worker ended: {error}", file=sys.stderr)
        return BROKEN
    except SQLAlchemyError as error:
        print(f"a worker ended: the ledger could not be read or written: {why(error)}", file=sys.stderr)
        return BROKEN
    except Exception as error:  # noqa: BLE001 - its text may hold values of a record
        print(f"a worker ended: {type(error).__name__}, a fault of ours", file=sys.stderr)
        return BROKEN
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A worker of loads; the first one that reaches a step kills itself: `python -m tests.support.dying_worker STEP MARK`.

Steps: claimed (it has a part and has read nothing), intended (the intents are committed, nothing is sent), sent (the
target has answered, no outcome is written), settled (the outcomes are written), loaded (all rows of the part are done),
told (the part's outcome is written, too). The worker that dies makes the file MARK, so that no second one dies.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.client.client import FhirClient
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.parts import PartLease
from pipelines.runs import worker

STEPS = ("claimed", "intended", "sent", "settled", "loaded", "told")


def then_die(mark: Path, owner: Any, name: str, after: bool = True) -> None:
    """Kill the first process that calls a function, before or after that call."""
    function: Callable[..., Any] = getattr(owner, name)

    def called(*args: Any, **options: Any) -> Any:
        done = function(*args, **options) if after else None
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return done if after else function(*args, **options)
        return os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, called)


def plant(step: str, mark: Path) -> None:
    match step:
        case "claimed":
            then_die(mark, worker, "load_part", after=False)
        case "intended":
            then_die(mark, Ledger, "intend")
        case "sent":
            then_die(mark, FhirClient, "create_all")
            then_die(mark, FhirClient, "create")
        case "settled":
            then_die(mark, Ledger, "settle")
        case "loaded":
            then_die(mark, PartLease, "done", after=False)
        case "told":
            then_die(mark, PartLease, "done")


if __name__ == "__main__":
    plant(sys.argv[1], Path(sys.argv[2]))
    sys.exit(worker.main())

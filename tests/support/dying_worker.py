"""A worker of which the first one to reach a step kills itself: `python -m tests.support.dying_worker STEP MARK`.

Steps: claimed (it has a part, and has read nothing), intended (rows are committed as being sent, nothing went out),
sent (the target has answered, nothing is written), settled (the outcomes are), loaded (all rows of the part are done),
told (its outcome is written too). MARK is a file that is made by who dies: no second one does.
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
    """Let the first process of all die before or after its first call of a function."""
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

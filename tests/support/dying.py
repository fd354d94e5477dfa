"""A service that kills itself in a chosen phase of its n-th write.

`python -m tests.support.dying PHASE N STORE [AUDIT]`

Phases: waiting (before the writer begins), rules, append, commit (before the commit), committed (after it, before the
answer), answering (after an answer); for writes ahead of the tables: catching up (before they are copied into the
tables), caught up (after that, before the file is emptied); on PostgreSQL: stored (after the commit, before the
answer).
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from fhir_service.interactions import create
from fhir_service.serving import serve
from fhir_service.settings import Settings
from fhir_service.store.ahead import Ahead
from fhir_service.store.changes import Changes
from fhir_service.store.frame_file import Frames
from fhir_service.store.postgresql import PostgreSql
from fhir_service.web import middleware as surroundings
from fhir_service.writing import commits


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_call(number: int, after: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a function that wraps others so that the process dies at the n-th call of all of them together."""
    calls = 0

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number and not after:
                die()
            result = function(*args, **options)
            if calls == number:
                die()
            return result

        return counted

    return dying


def plant(phase: str, number: int) -> None:
    def patch(owner: Any, name: str, after: bool = False) -> None:
        setattr(owner, name, at_call(number, after)(getattr(owner, name)))

    match phase:
        case "waiting":
            patch(commits.Commits, "carry_out")
        case "rules":
            patch(create.Create, "act")
        case "append":
            patch(Changes, "rows", after=True)
        case "commit":
            patch(commits.Commits, "_committing")
        case "committed":
            patch(commits.Commits, "_committing", after=True)
        case "stored":
            patch(PostgreSql, "store", after=True)
        case "catching up":
            patch(Ahead, "catch_up")
        case "caught up":
            patch(Frames, "clear")
        case "answering":
            patch(surroundings.Middleware, "_note")


if __name__ == "__main__":
    plant(sys.argv[1], int(sys.argv[2]))
    serve.serve(Settings(store=sys.argv[3], audit=sys.argv[4] if sys.argv[4:] else None, port=0))

"""A helper process of `side_by_side.py`: it takes a function, then chunks, and answers each, until its input ends.

Any failure ends it silently. The parent then does the chunk itself, and nothing of a record is printed.
"""

import gc
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pipelines.validation.checker
import pipelines.validation.chunk_mapping  # noqa: F401 - what is most of the start, while the parent begins with the file
from pipelines.home.garbage_collection import SELDOM


def answer(given: "Connection[Any, Any]", answers: "Connection[Any, Any]") -> None:
    """Answer objects from a pipe. A callable makes the function for the chunks after it."""
    do: Callable[[Any], Any] | None = None
    while True:
        try:
            found = given.recv()
        except EOFError:
            return
        if callable(found) or do is None:
            do, done = found(), None
        else:
            done = do(found)
        answers.send(done)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    gc.set_threshold(*SELDOM)
    given, answers = map(int, sys.argv[1:])
    answer(Connection(given), Connection(answers))

"""A helper process of `side_by_side.py`: it takes a function, then chunks, and answers each, until its input ends.

Any failure ends it silently. The parent then does the chunk itself, and nothing of a record is printed.
"""

import gc
import os
import signal
from collections.abc import Callable
from typing import Any

import pipelines.validation.checker
import pipelines.validation.chunk_mapping  # noqa: F401 - what is most of the start, while the parent begins with the file
from pipelines.home.garbage_collection import SELDOM
from pipelines.validation.messages import receive, send


def answer(given: int, answers: int) -> None:
    """Answer objects from a pipe. A callable makes the function for the chunks after it."""
    do: Callable[[Any], Any] | None = None
    while True:
        try:
            found = receive(given)
        except EOFError:
            return
        if callable(found) or do is None:
            do, done = found(), None
        else:
            done = do(found)
        send(answers, done)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    gc.set_threshold(*SELDOM)
    answers = os.dup(1)
    os.dup2(2, 1)  # output of libraries goes nowhere, like their errors
    answer(0, answers)

"""A helper process of `side_by_side.py`: takes a function, then chunks, and answers each, until its input ends.

Whatever goes wrong ends it without a word: the parent then does the chunk itself, and nothing of a record is printed.
"""

import gc
import os
import signal
from collections.abc import Callable
from typing import Any

import pipelines.validation.checker
import pipelines.validation.chunk_mapping  # noqa: F401 - what is most of the start, while the parent begins with the file
from pipelines.home.collecting import SELDOM
from pipelines.validation.messages import receive, send


def answer(given: int, answers: int) -> None:
    """Take one thing after another from a pipe: a callable gives the function for the chunks that follow it."""
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    gc.set_threshold(*SELDOM)
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library may print goes nowhere, as its errors do
    answer(0, answers)

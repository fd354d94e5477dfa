"""A helper process of `side_by_side.py`: takes a function, then chunks, and answers each, until its input ends.

Whatever goes wrong ends it without a word: the parent then does the chunk itself, and nothing of a record is printed.
"""

import gc
import os
import pickle
import signal
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import IO, Any

import pipelines.validation.checking  # noqa: F401 - what is most of the start, while the parent still reads the file
from pipelines.collecting import SELDOM


class WithoutPandas(MetaPathFinder):
    """pyarrow loads pandas when it is given a list, to see whether it is one of its own: 46 MB and half the start."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def answer(given: IO[bytes], answers: IO[bytes]) -> None:
    """Takes one thing after another: a callable gives the function for the chunks that follow it."""
    do: Callable[[Any], Any] | None = None
    while True:
        try:
            found = pickle.load(given)  # noqa: S301 - from our own parent
        except EOFError:
            return
        if callable(found) or do is None:
            do, done = found(), None
        else:
            done = do(found)
        pickle.dump(done, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


if __name__ == "__main__":
    sys.meta_path.insert(0, WithoutPandas())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    gc.set_threshold(*SELDOM)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library may print goes nowhere, as its errors do
    answer(sys.stdin.buffer, answers)

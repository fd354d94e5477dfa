"""Functions for the helper processes of `test_side_by_side.py`, in a module that imports little."""

import os
from collections.abc import Callable


def doubled(number: int) -> int:
    return 2 * number


def make(do: Callable[[int], int] = doubled) -> Callable[[int], int]:
    return do


def os_gone(number: int) -> int:
    """Double a number; end the process instead if it is a helper."""
    if os.environ.get("HELPED"):
        os._exit(1)
    return 2 * number

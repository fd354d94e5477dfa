"""What the helper processes of `test_side_by_side.py` are given to do: a module that loads next to nothing."""

import os
from collections.abc import Callable


def doubled(number: int) -> int:
    return 2 * number


def make(do: Callable[[int], int] = doubled) -> Callable[[int], int]:
    return do


def os_gone(number: int) -> int:
    """Ends a helper in the middle of a chunk; here it only doubles."""
    if os.environ.get("HELPED"):
        os._exit(1)
    return 2 * number

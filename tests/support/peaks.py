"""The peak memory of this process while a function runs, counted by the objects that it makes."""

import tracemalloc
from collections.abc import Callable


def peak_of(do: Callable[[], object]) -> int:
    """Return the peak bytes of the objects that a function makes."""
    tracemalloc.start()
    try:
        do()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

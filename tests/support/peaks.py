"""What this process has at most in use while something is done, by the objects that it makes."""

import tracemalloc
from collections.abc import Callable


def peak_of(do: Callable[[], object]) -> int:
    """Return the bytes that were in use at once, at most, of what it made."""
    tracemalloc.start()
    try:
        do()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

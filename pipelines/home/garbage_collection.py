"""Garbage collection while thousands of rows come and go: its search for cycles would take a tenth of the work."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = (50_000, 20, 20)


@contextmanager
def seldom() -> Iterator[None]:
    """Collect garbage after many thousand new objects, not hundreds. Rows form no cycles, so they need none."""
    before = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)

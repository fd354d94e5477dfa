"""Garbage collection while rows come and go by the thousand: looking for circles among them is a tenth of the work."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = (50_000, 20, 20)


@contextmanager
def seldom() -> Iterator[None]:
    """Collect after many thousand new objects, not hundreds; rows go without it, since nothing holds them."""
    before = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)

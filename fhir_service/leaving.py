"""The end of a process: by an interrupt, or at once, without the last search for garbage, which takes half a second."""

import atexit
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def raise_interrupt(error: BaseException) -> None:
    """Raise `KeyboardInterrupt` if an error is of a query that an interrupt ended: DuckDB hides the interrupt."""
    if isinstance(error, RuntimeError) and str(error) == "Query interrupted":
        raise KeyboardInterrupt from None


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """After the block, which raises `SystemExit`, end the process without freeing its objects one by one.

    It ends once its threads have ended, the functions have run that were registered with `atexit` in the block, and
    the last lines of its log are written.
    """
    codes: list[int] = []
    atexit.register(_leave, codes)  # called last: the order is the reverse of the registrations
    try:
        yield
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            codes.append(ended.code or 0)
        raise


def _leave(codes: list[int]) -> None:
    """End with the code. Without one, or if something cannot be written, let Python end the process and say why."""
    if not codes:
        return
    logging.shutdown()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream:
                stream.flush()
    except (OSError, ValueError):
        return
    os._exit(codes[0])

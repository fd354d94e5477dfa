"""The output of commands that run in this process, also where pytest would capture it."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path


@contextmanager
def everything_said(said: StringIO) -> Iterator[None]:
    """Write all output, log lines and warnings to `said`, like a separate process would."""

    def warned(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        print(f"{category.__name__}: {message}", file=said)

    handler = logging.StreamHandler(said)
    logging.getLogger().addHandler(handler)
    try:
        with redirect_stdout(said), redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = warned
            yield
    finally:
        logging.getLogger().removeHandler(handler)


@contextmanager
def errors_to(log: Path) -> Iterator[None]:
    """Write the stderr of processes that are started meanwhile, such as the service's log, to a file."""
    before = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)

"""The exit code and the message of each kind of failure, without texts that may hold a record's data."""

import traceback
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from pipelines.home import disk
from pipelines.home.exits import INTERNAL, UNUSABLE, Explained
from pipelines.ledger.database import why

NO_MEMORY = ("MemoryError", "OutOfMemoryException", "ArrowMemoryError")
"""Classes of Python, DuckDB and Arrow, which are not loaded for their names."""


def exit_and_message(error: BaseException) -> tuple[int, str]:
    """Return the exit code of a command that failed, and its one line."""
    if disk.is_full(error):
        return UNUSABLE, disk.FULL
    if isinstance(error, Explained):
        return error.exit_code, str(error)
    if isinstance(error, SQLAlchemyError):
        return UNUSABLE, f"the ledger could not be read or written: {why(error)}"
    if isinstance(error, OSError):
        return UNUSABLE, f"{error.strerror or type(error).__name__}: {error.filename or 'a file'}"
    if type(error).__name__ in NO_MEMORY:
        return (
            UNUSABLE,
            f"memory did not suffice at {_place(error)}: divide the file into smaller ones, and import these",
        )
    return INTERNAL, f"a fault of this program: {type(error).__name__} at {_place(error)}"


def _place(error: BaseException) -> str:
    """Return file and line of the last frame of an exception in this program."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(Path(__file__).parents[1])] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"

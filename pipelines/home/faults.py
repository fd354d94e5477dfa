"""Unforeseen failures, reported by class and place, since the texts of exceptions may contain a record's data."""

import traceback
from pathlib import Path

NO_MEMORY = ("MemoryError", "OutOfMemoryException", "ArrowMemoryError")
"""Names of classes of Python, DuckDB and Arrow. Comparing names avoids importing these libraries."""


def is_of_memory(error: BaseException) -> bool:
    """True if there was not enough memory."""
    return type(error).__name__ in NO_MEMORY


def fault_clause(error: BaseException) -> str:
    """Return one clause that describes an unforeseen failure."""
    if is_of_memory(error):
        return f"memory did not suffice at {_place(error)}: free some of it, or divide a large file into smaller ones"
    return f"a fault of this program: {type(error).__name__} at {_place(error)}"


def _place(error: BaseException) -> str:
    """Return file and line of an exception's last frame in this program."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(Path(__file__).parents[1])] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"

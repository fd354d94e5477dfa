"""Failures that nobody foresaw, told by class and place: texts of exceptions may hold a record's data."""

import traceback
from pathlib import Path

NO_MEMORY = ("MemoryError", "OutOfMemoryException", "ArrowMemoryError")
"""Classes of Python, DuckDB and Arrow, which are not loaded for their names."""


def is_of_memory(error: BaseException) -> bool:
    """True if memory did not suffice."""
    return type(error).__name__ in NO_MEMORY


def told(error: BaseException) -> str:
    """Return what an unforeseen failure is, in one clause."""
    if is_of_memory(error):
        return f"memory did not suffice at {_place(error)}: free some of it, or divide a large file into smaller ones"
    return f"a fault of this program: {type(error).__name__} at {_place(error)}"


def _place(error: BaseException) -> str:
    """Return file and line of the last frame of an exception in this program."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(Path(__file__).parents[1])] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"

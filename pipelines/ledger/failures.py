"""The exit code and the message of each kind of failure, without texts that may hold a record's data."""

from sqlalchemy.exc import SQLAlchemyError

from pipelines.home import disk
from pipelines.home.exits import INTERNAL, UNUSABLE, Explained
from pipelines.home.faults import is_of_memory, told
from pipelines.ledger.database import why


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
    return UNUSABLE if is_of_memory(error) else INTERNAL, told(error)

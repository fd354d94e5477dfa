"""What is said where the state of a home cannot be read: neither that all is well, nor what a failure of ours says."""

from sqlalchemy.exc import SQLAlchemyError

from pipelines.home.exits import Explained
from pipelines.ledger.database import why

UNREAD = (Explained, SQLAlchemyError, OSError)
"""The failures of a read that leave it unknown what is broken. Any other is a fault of this program."""


def unread(error: Explained | SQLAlchemyError | OSError) -> str:
    """Return the sentence on such a failure."""
    if isinstance(error, SQLAlchemyError):
        said = why(error)
    elif isinstance(error, OSError):
        said = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or type(error).__name__
    else:
        said = str(error)
    return f"What is broken could not be read: {said}."

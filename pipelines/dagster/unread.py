"""The message where the state of a home cannot be read: neither that all is well, nor that this program failed."""

import os

from sqlalchemy.exc import SQLAlchemyError

from pipelines.home import disk
from pipelines.home.batch import shown
from pipelines.home.exits import Explained
from pipelines.home.faults import told
from pipelines.ledger.database import why

UNREAD = (Explained, SQLAlchemyError, OSError)
"""The failures of a read that leave it unknown what is broken. Any other is a fault of this program."""


def unread(error: Explained | SQLAlchemyError | OSError) -> str:
    """Return the sentence on such a failure of a look at what is broken."""
    return f"What is broken could not be read: {said_of(error)}."


def said_of(error: Exception) -> str:
    """Return what may be said of a failure: not the text of one that nobody foresaw, which may hold values."""
    if disk.is_full(error):
        return disk.FULL
    if isinstance(error, SQLAlchemyError):
        return why(error)
    if isinstance(error, OSError):
        named = shown(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
        reason = error.strerror or type(error).__name__
        return f"{named}: {reason}" if named else reason
    return str(error) if isinstance(error, Explained) else told(error)

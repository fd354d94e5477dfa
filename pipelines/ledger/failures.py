"""The exit code and the message of each kind of failure, without texts that may contain a record's data."""

import os

from sqlalchemy.exc import SQLAlchemyError

from fhir_service.leaving import raise_interrupt
from pipelines.home import disk
from pipelines.home.batch import printable_name, reason_of
from pipelines.home.exits import INTERNAL, UNUSABLE, ExplainedError
from pipelines.home.faults import fault_clause, is_of_memory
from pipelines.ledger.database import database_message

UNREAD = (ExplainedError, SQLAlchemyError, OSError)
"""Failures of reading that leave it unknown what is broken. Any other failure is a fault of this program."""


def unread(error: ExplainedError | SQLAlchemyError | OSError) -> str:
    """Return the message for a failure to read what is broken."""
    return f"What is broken could not be read: {said_of(error)}."


def exit_and_message(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the one-line message of a command that failed. Raises `KeyboardInterrupt` if an
    interrupt ended it.
    """
    raise_interrupt(error)
    if isinstance(error, ExplainedError) and not disk.is_full(error):
        return error.exit_code, str(error)
    is_of_machine = disk.is_full(error) or isinstance(error, UNREAD) or is_of_memory(error)
    return UNUSABLE if is_of_machine else INTERNAL, said_of(error)


def said_of(error: BaseException) -> str:
    """Return the safe text of a failure. The text of an unforeseen failure is left out, since it may contain values."""
    if disk.is_full(error):
        return disk.FULL
    if isinstance(error, SQLAlchemyError):
        return f"the ledger could not be read or written: {database_message(error)}"
    if isinstance(error, OSError):
        named = f"{printable_name(os.fsdecode(error.filename))}: " if isinstance(error.filename, str | bytes) else ""
        return named + reason_of(error)
    return str(error) if isinstance(error, ExplainedError) else fault_clause(error)

"""A store whose disk is full, whichever library met it, and reads that are too large."""

import errno
import os

from fhir_service.interface.outcomes import UNAVAILABLE, FhirError

FULL = "the disk of the store is full"
_NUMBERS = (errno.ENOSPC, errno.EDQUOT)
_WORDS = os.strerror(errno.ENOSPC)


def is_full(error: BaseException) -> bool:
    """True if a failure comes of a disk without room: by its number, or by what the database says."""
    if isinstance(error, FhirError):
        return error.diagnostics == FULL
    if isinstance(error, OSError):
        return error.errno in _NUMBERS
    return _WORDS in str(getattr(error, "orig", None) or error)


def unavailable(error: BaseException) -> FhirError:
    """Return the outcome for a failure that may pass; it says so where the disk is full, or the failure why."""
    if isinstance(error, FhirError):
        return error
    return FhirError(UNAVAILABLE, FULL if is_full(error) else None)


def too_much() -> FhirError:
    """Return the outcome of a read that takes too long, waits too long for its turn, or has too little memory."""
    return FhirError(UNAVAILABLE, "what was asked for took too long or too much memory: ask for less")

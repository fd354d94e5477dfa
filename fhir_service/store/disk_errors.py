"""Recognise a full disk by the errors of any library, and name the outcomes of failures that may pass."""

import errno
import os

from fhir_service.interface.outcomes import UNAVAILABLE, FhirError

FULL = "the disk of the store is full"
_NUMBERS = (errno.ENOSPC, errno.EDQUOT)
_WORDS = os.strerror(errno.ENOSPC)


def is_full(error: BaseException) -> bool:
    """True if an error means a full disk, by its number or by the database's message."""
    if isinstance(error, FhirError):
        return error.diagnostics == FULL
    if isinstance(error, OSError):
        return error.errno in _NUMBERS
    return _WORDS in str(getattr(error, "orig", None) or error)


def unavailable(error: BaseException) -> FhirError:
    """Return the 503 for a failure that may pass. It names a full disk. A FhirError is returned as it is."""
    if isinstance(error, FhirError):
        return error
    return FhirError(UNAVAILABLE, FULL if is_full(error) else None)


def too_much() -> FhirError:
    """Return the 503 of a read that took too long, waited too long for its turn, or had too little memory."""
    return FhirError(UNAVAILABLE, "the request took too long or too much memory: ask for less")

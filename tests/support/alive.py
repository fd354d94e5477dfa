"""Tells whether processes that are no children of this one have ended."""

import psutil


def lives(process_id: int) -> bool:
    """True if the process runs. One that ended does not, even before it is reaped, which may take seconds."""
    try:
        return bool(psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False

"""Ask whether a process that is not a child of this one still runs."""

import psutil


def lives(process_id: int) -> bool:
    """True if the process runs. An ended process that was not reaped yet does not run."""
    try:
        return bool(psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False

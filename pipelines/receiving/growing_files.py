"""Files that are still being written: a file that has stopped growing for a moment may be half an export."""

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from pipelines.home.file_growth import is_on_this_machine

WRITING = "another program still has it open to write; try again when it is complete"
QUIET = timedelta(seconds=10)
"""A file that has not changed for this long has stopped growing: one look is enough."""


def is_written(path: Path) -> bool:
    """True if a program of this machine has the file open for writing. False if that cannot be found out.

    Linux shows it by granting a read lease, which is given back at once. It grants one only to the owner, and only on a
    file that nobody has open for writing. If a program breaks the lease in between, no process ends: its signal is one
    that is ignored by default.
    """
    if sys.platform != "linux":
        return False
    from fcntl import F_RDLCK, F_SETLEASE, F_SETSIG, F_UNLCK, fcntl  # Linux alone has them

    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        fcntl(file, F_SETSIG, signal.SIGURG)
        fcntl(file, F_SETLEASE, F_RDLCK)
        fcntl(file, F_SETLEASE, F_UNLCK)
    except BlockingIOError:
        return is_on_this_machine(path)
    except OSError:  # another user's file, or a file system without leases
        return False
    finally:
        os.close(file)
    return False

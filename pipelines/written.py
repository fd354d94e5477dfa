"""Whether a file is still being written: what has stopped growing for a moment may be half an export all the same."""

import os
import signal
import sys
from pathlib import Path

WRITING = "another program still has it open to write; try again when it is complete"


def is_written(path: Path) -> bool:
    """Whether a program of this machine has the file open to write. False where that cannot be told.

    Linux tells it by granting a read lease, at once given back, on files that nobody writes, to their owner. A lease
    that somebody breaks in between ends no process: its signal is one that is ignored by default.
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
        return True
    except OSError:  # another's file, or a file system without leases
        return False
    finally:
        os.close(file)
    return False

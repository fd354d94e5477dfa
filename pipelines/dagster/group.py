"""The process group of a Dagster process that ends with its parent: the process and all that it has started."""

import os
import signal


def end_group() -> None:
    """Kill the process group if this process leads it."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)

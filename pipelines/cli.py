"""The entry point of `chartferry`. The commands are in `commands/`.

They are imported inside `run`, so that Ctrl-C gives one line instead of a traceback even while modules load. SIGTERM
acts like Ctrl-C.
"""

import logging
import signal
import sys
from _thread import get_ident, start_new_thread
from collections.abc import Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING

from fhir_service.leaving import leaving_at_once
from pipelines.home.exits import INTERRUPTED

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


def main() -> None:
    """Run the command line and exit with its code. A failure that a user can fix prints one line."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name may not be valid text
    hide_interrupts()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a shutdown, systemd and Kubernetes end programs by it
    with leaving_at_once():
        sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command; return its exit code."""
    try:
        from pipelines.commands.chartferry import run_command

        return run_command(arguments)
    except KeyboardInterrupt:
        print("chartferry: stopped; start the same command again to finish", file=sys.stderr)
        return INTERRUPTED


def hide_interrupts() -> None:
    """Print no traceback for Ctrl-C, which may come again while the command that it stopped is ending.

    Python prints tracebacks of uncaught exceptions, of exceptions that it ignores, and of those that a library logs. It
    ignores what is raised while it frees an object. An interrupt that came then is raised again.
    """
    told, ignored = sys.excepthook, sys.unraisablehook

    def again(about: "UnraisableHookArgs") -> None:
        if not issubclass(about.exc_type, KeyboardInterrupt):
            ignored(about)
        elif not sys.is_finalizing():
            # By a thread, which has its turn after this function: else the interrupt would be ignored here too.
            start_new_thread(signal.pthread_kill, (get_ident(), signal.SIGINT))

    sys.excepthook = lambda kind, *about: None if issubclass(kind, KeyboardInterrupt) else told(kind, *about)
    sys.unraisablehook = again
    if logging.lastResort:
        logging.lastResort.addFilter(lambda record: not _is_of_interrupt(record))


def _is_of_interrupt(record: logging.LogRecord) -> bool:
    return record.exc_info is not None and isinstance(record.exc_info[1], KeyboardInterrupt)


if __name__ == "__main__":
    main()

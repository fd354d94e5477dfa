"""The entry point of `chartferry`. The commands are in `commands/`.

They are imported inside `run`, so that Ctrl-C gives one line instead of a traceback even while modules load.
"""

import sys
from collections.abc import Sequence
from io import TextIOWrapper

from pipelines.home.exits import INTERRUPTED


def main() -> None:
    """Run the command line and exit with its code. A failure that a user can fix prints one line."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name may not be valid text
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command; return its exit code."""
    try:
        from pipelines.commands.chartferry import run_command

        return run_command(arguments)
    except KeyboardInterrupt:
        print("chartferry: stopped; the same command goes on where it ended", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    main()

"""The entry point of `chartferry`: Ctrl-C is one line from its first moment on. The commands are in `commands/`."""

import sys
from collections.abc import Sequence
from io import TextIOWrapper

from pipelines.home.exits import INTERRUPTED


def main() -> None:
    """The entry point: every failure that a user can mend is one line and its exit code."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name may be no text
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

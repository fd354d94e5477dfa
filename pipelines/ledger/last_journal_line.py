"""The last line that a process wrote to a server's journal, and a note of it in the folder of its run.

A server that lacks that line was set back to an earlier state. A failover does that, but also a restored copy of its
files or a dump, which does not change the name of the server's history.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, select

from pipelines.ledger import tables as t
from pipelines.ledger.database import FAILED_OVER
from pipelines.ledger.tables import LedgerError

NOTE = ".told"


class ToldLine(NamedTuple):
    """A line of a server's journal: its number, and its moment as UTC text."""

    number: int
    at: str


class LastTold:
    """The last line that a process has committed, and the run's folder with a note of it. Safe in several threads."""

    def __init__(self) -> None:
        self._line: ToldLine | None = None
        self._note: Path | None = None

    def note_in(self, run: Path) -> None:
        """Note further lines in the folder of a run."""
        self._note = run / NOTE

    def follow(self, line: ToldLine | None) -> None:
        """Take a committed line. None: the ledger is a file, whose journal lies beside it."""
        if line is None:
            return
        self._line = line
        if self._note:
            with suppress(OSError):  # the next line is noted
                _write_over(self._note, f"{line.number:019} {line.at}\n".encode())

    def check(self, connection: Connection, last: ToldLine | None) -> None:
        """Raise `LedgerError` if a server lacks the line. last: the last line that the server has."""
        line = self._line
        if line and line != last and not _is_there(connection, line):
            raise LedgerError(FAILED_OVER)


def is_lacking(connection: Connection, run: Path) -> bool:
    """True if a server lacks the line that is noted in the folder of a run."""
    with suppress(OSError, ValueError):
        number, at = (run / NOTE).read_text(encoding="ascii").split()
        return not _is_there(connection, ToldLine(int(number), at))
    return False


def _is_there(connection: Connection, line: ToldLine) -> bool:
    found = connection.execute(select(t.journal.c.at).where(t.journal.c.number == line.number)).scalar()
    return bool(found == line.at)


def _write_over(file: Path, content: bytes) -> None:
    """Write content as long as the present one, so that no reader finds the file empty, however this process ends."""
    opened = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(opened, content, 0)
    finally:
        os.close(opened)

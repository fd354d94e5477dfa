"""The line of a server's journal that was told last: noted beside a run, and missed on a server that lacks it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine

from pipelines.ledger import tables as t
from pipelines.ledger.last_journal_line import NOTE, LastTold, ToldLine, is_lacking
from pipelines.ledger.tables import LedgerError

LAST = ToldLine(7, "2026-03-01T12:00:00.000000Z")
BEYOND = ToldLine(8, "2026-03-01T12:00:01.000000Z")
OF_ANOTHER_HISTORY = ToldLine(7, "2026-03-01T12:00:00.000001Z")


@pytest.fixture
def server() -> Iterator[Connection]:
    """A server that has the lines up to the last."""
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        t.journal.create(connection)
        lines = [
            {"number": number, "at": f"2026-03-01T12:00:00.00000{7 - number}Z", "facts": ""} for number in range(1, 8)
        ]
        connection.execute(t.journal.insert(), lines)
        yield connection
    engine.dispose()


@pytest.mark.parametrize(
    ("line", "last", "is_there"),
    [(LAST, LAST, True), (LAST, None, True), (BEYOND, LAST, False), (OF_ANOTHER_HISTORY, LAST, False)],
)
def test_a_server_that_lacks_the_last_noted_journal_line_is_refused(
    server: Connection, tmp_path: Path, line: ToldLine, last: ToldLine | None, is_there: bool
) -> None:
    """SCALE-03: by the process that wrote the line, and by the next one, which reads the note of the run."""
    told = LastTold()
    told.note_in(tmp_path)
    for each in (LAST, line, None):  # a ledger in a file tells none
        told.follow(each)
    if is_there:
        told.check(server, last)
    else:
        with pytest.raises(LedgerError):
            told.check(server, last)
    assert is_lacking(server, tmp_path) == (not is_there)
    assert (tmp_path / NOTE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("note", [None, "", "7", "seven 2026", f"7 {LAST.at} more", f"{7:019} {LAST.at}\n"])
def test_no_journal_line_counts_as_lost_if_no_note_was_written(
    server: Connection, tmp_path: Path, note: str | None
) -> None:
    """SCALE-03: of a run whose process was killed before it noted anything."""
    if note is not None:
        (tmp_path / NOTE).write_text(note)
    assert not is_lacking(server, tmp_path)
    LastTold().check(server, LAST)


def test_a_note_that_cannot_be_written_stops_nothing_and_the_next_one_is_written(tmp_path: Path) -> None:
    """SCALE-03: the folder of a run may be gone for a while, or full."""
    told = LastTold()
    told.follow(LAST)  # of no run yet
    told.note_in(tmp_path / "run-1")
    told.follow(LAST)
    (tmp_path / "run-1").mkdir()
    told.follow(BEYOND)
    assert (tmp_path / "run-1" / NOTE).read_text().split() == [f"{BEYOND.number:019}", BEYOND.at]
    shutil.rmtree(tmp_path / "run-1")
    told.follow(LAST)

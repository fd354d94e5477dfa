"""Keep the ledger's tables and its journal in step: apply missing lines to the tables, append new facts to the
journal.

The journal of a ledger in a file is a file beside it, and the tables hold their position in it. The journal of a
ledger on a server is a table of the same database. The home keeps copies of that table, from which a lost ledger is
made again.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
from sqlalchemy import Connection, select, text

from fhir_service.paths import matching
from pipelines.ledger import tables as t
from pipelines.ledger.all_rows import clear, image_of, is_empty
from pipelines.ledger.clock import Moments
from pipelines.ledger.columns import metadata
from pipelines.ledger.journal import Facts, Journal, JournalLine, Position, SegmentMissing, lines_of_copy, write_copy
from pipelines.ledger.last_journal_line import LastTold, ToldLine
from pipelines.ledger.tables import LedgerError

LINES_A_QUERY = 500
TWO_HISTORIES = (
    "the ledger and the copies of its journal, in journal/ beside the batches, are not of one history: restore the"
    " newest backup of its database, or move these copies away, then: chartferry verify --adopt. Nothing was sent"
)
POSITION = 'SELECT journal, segment, number, "end" FROM position'
MOVE = 'UPDATE position SET journal = ?, segment = ?, number = ?, "end" = ?'
"""Read and set the position of a ledger in a file, in each of its transactions."""
NUMBERED = [
    (table.name, column.name) for table in metadata.sorted_tables if (column := table.autoincrement_column) is not None
]
"""Tables of a server that number their rows, and the column. A row inserted with its number moves no sequence."""
MOMENTS = {
    "target": ("first_seen_at",),
    "batch": ("received_at", "finished_at"),
    "run": ("started_at", "finished_at"),
    "record": ("first_attempt_at", "finished_at"),
    "version": ("kept_at", "finished_at"),
    "reject": ("last_seen_at", "tried_since"),
    "resubmission": ("seen_at", "tried_since"),
    "sighting": ("noted_at",),
    "query_mark": ("noted_at",),
    "decision": ("at",),
    "publication": ("published_at",),
}
"""Tables with columns of moments. One of them has the moment of each transaction that wrote to the table."""
LAST_IN_TABLES = "SELECT max(at) FROM ({}) AS moments".format(
    " UNION ALL ".join(
        f"SELECT max({each}) AS at FROM {table}" for table, columns in MOMENTS.items() for each in columns
    )
)
"""Selects the last moment in the tables, for when the journal is gone or an earlier version did not note it."""
JOURNAL = (t.journal.name, t.journal.c.number.name)
LINE = t.journal.c.number, t.journal.c.at
LAST = select(*LINE).order_by(t.journal.c.number.desc()).limit(1)
MENDS: Facts = [["date_tries"], ["open_all_unanswered"]]
"""Facts that are applied once after a step of the schema."""
First = Callable[[Connection], None]


def nothing_first(_: Connection) -> None:
    """Do nothing, so that a journal begins with the tables as they are."""


class VerbReplayer(Protocol):
    """A ledger that can run verbs of the journal again."""

    def replay(self, line: JournalLine) -> None:
        """Run the verbs of a line at its moment."""

    def now(self) -> str:
        """Return the present moment as UTC text."""

    @property
    def moments(self) -> Moments:
        """The moments of the ledger's transactions."""

    @property
    def told(self) -> LastTold:
        """The last journal line that this process wrote."""


class KnownTables(NamedTuple):
    """The state of tables that have all lines of a journal.

    position: in a journal file. at: the moment of the last line as UTC text; empty if there is none.
    """

    position: Position | None
    at: str


class BesideFile:
    """The journal of a ledger in a file. In a transaction, `catch_up` comes first and `keep` last.

    anew: True to begin a missing journal from the tables. first: is called with the connection before the journal
    begins.
    """

    def __init__(self, journal: Journal, anew: bool = False, first: First = nothing_first) -> None:
        self.journal, self._anew, self._first = journal, anew, first

    def is_begun(self, connection: Connection) -> bool:
        """True if the tables have lines of a journal, so that they can be read."""
        return _position(connection) is not None

    def last_at(self, connection: Connection) -> str | None:
        """Return the moment of the journal's last line if the tables have all lines, else None. Another process may be
        writing, so the answer may be None although nothing is missing.
        """
        position = _position(connection)
        with suppress(LedgerError):
            return self._at(connection, position) if position and self.journal.is_at(position) else None
        return None

    def identity(self, connection: Connection) -> str | None:
        """Return the id that only this journal and its copies have; None before its first line."""
        position = _position(connection)
        return position.journal if position else None

    def catch_up(self, connection: Connection, ledger: VerbReplayer) -> KnownTables:
        """Apply the lines that the tables lack; return the position after them. Raises `LedgerError`."""
        before = _position(connection)
        if before and self.journal.is_at(before):
            return KnownTables(before, self._at(connection, before))
        if self.journal.head() is None:
            position = self._begin(connection, ledger, before)
        else:
            position = self._replay_or_begin(connection, ledger, before)
        _put_position(connection, position)
        return KnownTables(position, self._at(connection, position))

    def _at(self, connection: Connection, position: Position) -> str:
        return self.journal.last_at(position) or _last_in(connection)

    def keep(self, connection: Connection, known: Position | None, at: str, facts: Facts) -> None:
        """Append the facts of a transaction to the journal, before the transaction is committed."""
        assert known is not None  # noqa: S101 - `catch_up` came first
        position = self.journal.append(known, at, facts)
        if self.journal.is_full(position):
            rows = list(image_of(connection)) if self.journal.is_lost() else []
            position = self.journal.next_segment(position, at, rows)
        _put_position(connection, position)

    def _begin(self, connection: Connection, ledger: VerbReplayer, known: Position | None) -> Position:
        """Make the journal. It begins with a snapshot of the tables, unless they are empty."""
        if not self._anew and (known is not None or self.journal.is_lost()):
            beside = "its ledger" if known else "its closed segments"
            raise LedgerError(
                f"{self.journal.path} is missing beside {beside}, so that what came last may not be known: restore "
                "it, or, where it is lost: chartferry verify --adopt. Nothing was sent"
            )
        ledger.moments.follow(_last_in(connection))
        self._first(connection)
        _mend(ledger)
        return self.journal.begin(known, ledger.now(), list(image_of(connection)))

    def _replay_or_begin(self, connection: Connection, ledger: VerbReplayer, known: Position | None) -> Position:
        """Apply missing lines. If segments are lost and a person allows it, begin a journal from the tables instead."""
        try:
            return self._replay(connection, ledger, known)
        except SegmentMissing:
            if not self._anew:
                raise
            return self._begin(connection, ledger, self.journal.put_aside())

    def _replay(self, connection: Connection, ledger: VerbReplayer, known: Position | None) -> Position:
        """Apply the journal's lines that the tables lack; return the position after them."""
        journal = self.journal
        position = journal.start()
        if known and known.journal != position.journal:
            raise LedgerError(f"{journal.path} is the journal of another ledger. Nothing was sent")
        if older := self._older_than(known):
            if not self._anew:
                raise LedgerError(
                    f"{journal.path} is older than {older}: restore the newest one, or, where it is lost: chartferry "
                    "verify --adopt. Nothing was sent"
                )
            if known:
                return self._begin(connection, ledger, known)
        if known and known.segment >= position.segment:
            position = known
        else:
            clear(connection)
        at = ""
        for line, after in journal.lines(position):
            ledger.replay(line)
            position, at = after, line.at or at
        journal.cut(position)
        if journal.is_of_today() and not journal.is_lost():
            return position
        ledger.moments.follow(at or self._at(connection, position))
        _mend(ledger)
        return journal.next_segment(position, ledger.now(), list(image_of(connection)))

    def _older_than(self, known: Position | None) -> str | None:
        """Return the name of the newer thing that the journal does not reach; None if it reaches everything."""
        if known and not self.journal.reaches(known):
            return "the ledger beside it"
        return "its closed segments" if self.journal.is_lost() else None


def _mend(ledger: VerbReplayer) -> str:
    """Mend what earlier versions left wrong in the tables; return the moment. In a file, the next segment begins with
    the mended rows.
    """
    ledger.replay(JournalLine(at := ledger.now(), MENDS))
    return at


class InDatabase:
    """The journal of a ledger on a server: a table, with the methods of `BesideFile`.

    copies: the folder for its copies, which are never changed. first: is called with the connection before the journal
    begins.
    """

    def __init__(self, copies: Path | None, first: First = nothing_first) -> None:
        self.copies, self._first = copies, first

    def is_begun(self, _connection: Connection) -> bool:
        return False

    def last_at(self, connection: Connection) -> str | None:
        last = _last_line(connection)
        return last and last.at

    def identity(self, connection: Connection) -> str | None:
        _lock(connection, "SHARE")  # a line with a smaller number may be about to be committed
        query = select(t.journal.c.at, t.journal.c.facts).order_by(t.journal.c.number).limit(1)
        first = connection.execute(query).one_or_none()
        return hashlib.sha256(f"{first.at} {first.facts}".encode()).hexdigest()[:32] if first else None

    def catch_up(self, connection: Connection, ledger: VerbReplayer) -> KnownTables:
        """Make tables without a journal again from the copies; without copies, begin a journal with the tables."""
        last = _last_line(connection)
        ledger.told.check(connection, last)
        if last is None:
            _lock(connection, "EXCLUSIVE")
            if self.last_at(connection) is None:
                self._make(connection, ledger)
            last = _last_line(connection)
        return KnownTables(None, last.at if last else "")

    def _make(self, connection: Connection, ledger: VerbReplayer) -> None:
        if is_empty(connection) and self._files():
            _apply(connection, ledger, _lines_of(self._files(), beyond=0))
            _go_on(connection, NUMBERED)
        else:
            ledger.moments.follow(_last_in(connection))
            self._first(connection)
            for facts in list(image_of(connection)):
                self.keep(connection, None, ledger.now(), facts)

    def take_up(self, connection: Connection, ledger: VerbReplayer, copies: Sequence[Path]) -> int:
        """Apply lines of the copies beyond the tables, which were restored from a backup; return the number of lines.

        Raises `LedgerError` if the copies do not have the journal's last line.
        """
        _lock(connection, "EXCLUSIVE")
        last = connection.execute(select(t.journal).order_by(t.journal.c.number.desc()).limit(1)).one_or_none()
        if last is None or last.number >= last_of(path.name for path in copies):
            return 0
        found = _lines_of(copies, beyond=last.number - 1)
        if next(found, None) != (last.number, JournalLine(last.at, msgspec.json.decode(last.facts))):
            raise LedgerError(TWO_HISTORIES)
        applied = _apply(connection, ledger, found)
        _go_on(connection, [JOURNAL])  # no row of another table was inserted by its number
        return applied

    def mend(self, connection: Connection, ledger: VerbReplayer) -> None:
        """Mend once what an earlier version left wrong in the tables. The mend is the line after the copies' lines."""
        _lock(connection, "EXCLUSIVE")
        if connection.execute(select(t.schema_version).where(t.IS_EARLIER)).first():
            self.keep(connection, None, _mend(ledger), MENDS)

    def keep(self, connection: Connection, _known: Position | None, at: str, facts: Facts) -> ToldLine:
        """Append the facts; return their line. From here to the commit only one transaction runs, so whoever sees a
        line, or has it in a backup, has all lines before it.
        """
        _lock(connection, "SHARE ROW EXCLUSIVE")
        told = {"at": at, "facts": msgspec.json.encode(facts).decode()}
        return ToldLine(*connection.execute(t.journal.insert().values(told).returning(*LINE)).one())

    def copy(self, connection: Connection) -> None:
        """Write the lines that the copies lack to a new file. Raises `OSError`."""
        if self.copies is None:
            return
        _lock(connection, "SHARE")  # whoever has taken a number has committed after this
        self.copy_beyond(connection, last_of(path.name for path in self._files()), self.copies)

    def copy_beyond(self, connection: Connection, last: int, folder: Path) -> None:
        """Write the lines after a given number to a file in a folder. Raises `OSError`."""
        _lock(connection, "SHARE")
        query = select(t.journal).where(t.journal.c.number > last).order_by(t.journal.c.number)
        found = connection.execute(query, execution_options={"yield_per": LINES_A_QUERY})
        write_copy(folder, ((row.number, row.at, msgspec.json.decode(row.facts)) for row in found))

    def _files(self) -> list[Path]:
        return sorted(matching(self.copies, "*.ndjson.gz")) if self.copies else []


def _lines_of(copies: Iterable[Path], beyond: int) -> Iterator[tuple[int, JournalLine]]:
    """Yield the lines of copies beyond a number, each once, although copies made at once by two machines share
    lines.
    """
    last = beyond
    for path in copies:
        for number, line in lines_of_copy(path):
            if number > last:
                yield number, line
                last = number


def _apply(connection: Connection, ledger: VerbReplayer, lines: Iterable[tuple[int, JournalLine]]) -> int:
    """Replay lines, and keep them under the numbers that the copies have; return how many there were."""
    applied = 0
    for number, line in lines:
        applied += 1
        ledger.replay(line)
        facts = msgspec.json.encode(line.facts).decode()
        connection.execute(t.journal.insert().values(number=number, at=line.at, facts=facts))
    return applied


def _go_on(connection: Connection, numbered: Iterable[tuple[str, str]]) -> None:
    """Set the sequences of tables behind their highest number. No other process may insert meanwhile: its numbers
    would be given again.
    """
    for table, column in numbered:
        newest = f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), max({column})) FROM {table}"
        connection.exec_driver_sql(newest)


InStep = BesideFile | InDatabase


def last_of(names: Iterable[str]) -> int:
    """Return the number of the last line of copies, from their names `<first>-<last>.ndjson.gz`."""
    return max((int(name.partition(".")[0].partition("-")[2]) for name in names), default=0)


def _last_line(connection: Connection) -> ToldLine | None:
    found = connection.execute(LAST).one_or_none()
    return ToldLine(*found) if found else None


def _lock(connection: Connection, mode: str) -> None:
    connection.execute(text(f"LOCK TABLE journal IN {mode} MODE"))


def _last_in(connection: Connection) -> str:
    """Return the last moment in the tables; empty text if there is none."""
    found: str | None = connection.exec_driver_sql(LAST_IN_TABLES).scalar()
    return found or ""


def _position(connection: Connection) -> Position | None:
    row = connection.exec_driver_sql(POSITION).one_or_none()
    return None if row is None else Position._make(row)


def _put_position(connection: Connection, position: Position) -> None:
    if connection.exec_driver_sql(MOVE, position).rowcount == 0:
        connection.execute(t.position.insert().values(position._asdict()))

"""Commits ahead of the tables: small ones are stored in a file of frames first, and many go into the tables together.

A commit of DuckDB takes milliseconds, however little it stores: half of one for each table, and as much for its end. A
frame takes one flush of the disk. Commits are counted, those to the tables and frames alike, and the tables hold the
number of the last one that they have, set by its transaction: what a crash left in the file and not in the tables is
brought there when the store is opened. A frame follows on its tables alone. It has sums as they are after it.

What payments made of accounts and charges are sums of rows that the tables have. Large commits leave them to be written
later, those of many commits at once: to change a row costs as much as to add several. What a crash left unwritten is
summed anew.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, select

from fhir_service.paths import exists
from fhir_service.store import accounts
from fhir_service.store.dialects import DuckDb
from fhir_service.store.frames import ROOM, Frames
from fhir_service.store.rows import Rows, Sums
from fhir_service.store.tables import BODIES, STORE, columns_of

NAME = "ahead"
"""The name under which the store says the number of the last commit that its tables have."""
OWING = "owing"
"""Stands behind that number while the tables lack sums."""
MOST_ENTRIES = 500
"""Entries that may be ahead of the tables, give or take a commit."""
_MOST_BYTES = ROOM
MOST_SUMS = 20_000
"""Accounts and charges whose sums are written later. Writing them takes less than a tenth of a second."""
_RESOURCES = {table.name for table in BODIES.values()}
(_ID,) = {columns_of(table).index("id") for table in BODIES.values()}

log = logging.getLogger(__name__)


def file_of(store: Path) -> Path:
    """`<store>.ahead`"""
    return store.with_name(f"{store.name}.ahead")


class Ahead:
    """Records that are stored and not in the tables yet. For the writer's thread alone, but for `waits` and `ids`."""

    def __init__(self, path: Path, key: bytes, dialect: DuckDb) -> None:
        self._frames, self._dialect = Frames(path, key), dialect
        self._number = self._entries = self._size = 0
        self._rows = Rows()
        self._broken = self._void = self._behind = self._unsure = False
        self.ids: set[str] = set()
        """The ids of resources that the tables may lack: from before they are acknowledged until they are there."""

    @property
    def path(self) -> Path:
        return self._frames.path

    @property
    def waits(self) -> bool:
        """True if the tables lack something that is stored, or do not void yet what failed."""
        return bool(self._entries) or self._void

    @property
    def owes(self) -> bool:
        """True if sums of accounts or charges are to be written."""
        return self._unsure or bool(self._rows.changed)

    @property
    def full(self) -> bool:
        """True if it is time to bring what is stored into the tables."""
        return (
            self._entries >= MOST_ENTRIES
            or self._size >= _MOST_BYTES
            or sum(map(len, self._rows.changed.values())) >= MOST_SUMS
        )

    @property
    def works(self) -> bool:
        """True if more can be put: the file has never failed, and the tables are not left behind."""
        return not (self._broken or self._void or self._behind or self.full)

    def recover(self, engine: Engine) -> None:
        """Bring into the tables what the file has and they have not; nothing else has the store open.

        A file that begins later than the tables end is of a newer state of the store, which was put back from a copy
        since: it is kept aside.
        """
        with engine.connect() as connection:
            said = connection.execute(select(STORE.c.value).where(STORE.c.name == NAME)).scalar_one()
        there = int(said.removesuffix(OWING))
        frames = list(self._frames.read())
        if frames and frames[0].number > there + 1:
            self._put_aside()
            frames = []
        for frame in frames:
            if frame.number > there:
                self._rows.follow(Rows.decoded(frame.content))
        self._number = max([there, *(frame.number for frame in frames)])
        self._unsure = said.endswith(OWING)
        if self._rows or self._unsure:
            self.catch_up(engine)
        self._frames.remove()

    def _put_aside(self) -> None:
        path = self._frames.path
        aside = next(
            found for n in range(1, 1_000_000) if not exists(found := path.with_name(f"{path.name}.{n}.unused"))
        )
        path.rename(aside)
        log.warning("the store is older than %s: its creates are not in the store, and the file is %s", path, aside)

    def put(self, rows: Rows, entries: int) -> None:
        """Store a commit of so many entries durably. Raises OSError: whether it is stored is then not known."""
        content = rows.encoded()
        # The number is taken, whatever comes of it: tables that have it void a frame that failed.
        self._number += 1
        try:
            self._frames.put(self._number, content)
        except BaseException:
            self._broken = self._void = True
            raise
        self._rows.follow(rows)
        self.ids.update(row[_ID] for name in _RESOURCES & rows.added.keys() for row in rows.added[name])
        self._dialect.put_off(rows.added)
        self._size += len(content)
        self._entries += entries

    @contextmanager
    def passed_by(self, connection: Connection, sums: Sums | None = None) -> Iterator[None]:
        """Count a commit of resources that goes straight into the tables: the block ends it. None is ahead of it.

        sums: of the rows of that commit, to be written later.
        """
        self._number += 1
        try:
            self._say_number(connection, owing=self.owes or bool(sums))
            yield
        except BaseException:
            # The tables may lack the number: no frame may follow on them before a later commit has said its own.
            # They may have the rows, and whoever sums up later must count them.
            self._behind, self._unsure = True, self._unsure or bool(sums)
            raise
        self._behind = False
        for table, values in (sums or {}).items():
            self._rows.changed[table] |= values

    def _say_number(self, connection: Connection, owing: bool) -> None:
        said = f"{self._number} {OWING}" if owing else str(self._number)
        self._dialect.change(connection, STORE, [(NAME, said)], ("name", "value"))

    def catch_up(self, engine: Engine) -> None:
        """Bring what is stored into the tables, by one transaction. Where that fails, it stays what it is."""
        with engine.connect() as connection:
            connection.begin()
            self._rows.write(connection, self._dialect)
            if self._unsure:
                accounts.sum_anew(connection)
            self._say_number(connection, owing=False)
            connection.commit()
        self._rows, self.ids = Rows(), set()
        self._void = self._behind = self._unsure = False
        self._entries = self._size = 0
        self._frames.clear()

    def close(self) -> None:
        """Let the file go; it is removed where nothing is ahead."""
        if self.waits:
            self._frames.close()
        else:
            self._frames.remove()

"""Store small commits ahead of the tables, in a file of frames, and bring many of them into the tables together.

A commit of DuckDB takes milliseconds, however little it stores: half a millisecond for each table, and as much for its
end. A frame takes one flush of the disk.

Commits to the tables and to frames share one sequence of numbers. The transaction of each commit to the tables also
stores its number there. When the store is opened, the frames with higher numbers are brought into the tables: a crash
loses nothing. A frame is valid only for the tables that it continues, and holds sums as they are after it.

The sums that accounts and charges have paid can be computed from other rows. Large commits leave them to be written
later, for many commits at once: changing a row costs as much as adding several. After a crash they are computed again.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, select

from fhir_service.paths import exists
from fhir_service.store import accounts
from fhir_service.store.dialects import DuckDb
from fhir_service.store.frame_file import ROOM, Frames
from fhir_service.store.rows import Rows, Sums
from fhir_service.store.tables import BODIES, STORE, columns_of

NAME = "ahead"
"""The name in the table `store` of the number of the last commit in the tables."""
OWING = "owing"
"""The suffix of that number while the tables lack sums."""
MOST_ENTRIES = 500
"""About so many entries may be ahead of the tables."""
_MOST_BYTES = ROOM
MOST_SUMS = 20_000
"""The most accounts and charges whose sums are written later. Writing them takes less than a tenth of a second."""
_RESOURCES = {table.name for table in BODIES.values()}
(_ID,) = {columns_of(table).index("id") for table in BODIES.values()}

log = logging.getLogger(__name__)


def file_of(store: Path) -> Path:
    """Return the path of the file of frames: `<store>.ahead`."""
    return store.with_name(f"{store.name}.ahead")


class Ahead:
    """What is stored ahead of the tables. Only `waits` and `ids` are for other threads than the writer's."""

    def __init__(self, path: Path, key: bytes, dialect: DuckDb) -> None:
        self._frames, self._dialect = Frames(path, key), dialect
        self._number = self._entries = self._size = 0
        self._rows = Rows()
        self._broken = self._void = self._behind = self._unsure = False
        self.ids: set[str] = set()
        """The ids of resources that the tables may lack. Ids are added before their acknowledgement."""

    @property
    def path(self) -> Path:
        return self._frames.path

    @property
    def waits(self) -> bool:
        """True if the tables lack a commit, or if they do not have a number yet that voids a failed frame."""
        return bool(self._entries) or self._void

    @property
    def owes(self) -> bool:
        """True if sums of accounts or charges still have to be written."""
        return self._unsure or bool(self._rows.changed)

    @property
    def full(self) -> bool:
        """True if it is time to bring the frames and sums into the tables."""
        return (
            self._entries >= MOST_ENTRIES
            or self._size >= _MOST_BYTES
            or sum(map(len, self._rows.changed.values())) >= MOST_SUMS
        )

    @property
    def works(self) -> bool:
        """True if `put` may be called: the file has never failed, and the tables have the last number."""
        return not (self._broken or self._void or self._behind or self.full)

    def recover(self, engine: Engine) -> None:
        """Bring the frames of the file that the tables lack into them. Nothing else may have the store open.

        If there is a gap between the tables and the first frame, the store was put back from an older copy. The file
        belongs to the newer state; it is renamed and kept.
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
        log.warning(
            "the store is an older copy: the creates in %s are missing from it; they are kept in %s", path, aside
        )

    def put(self, rows: Rows, entries: int) -> None:
        """Store a commit of so many entries durably. After an OSError it may be stored or not."""
        content = rows.encoded()
        # The number is used up even by a failure. Once the tables have this number or a later one, the failed frame is
        # void.
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
        """Give the next number to a commit of resources to the tables, which the block carries out.

        Nothing may be ahead of the tables.

        sums: the sums of this commit, to be written later.
        """
        self._number += 1
        try:
            self._say_number(connection, owing=self.owes or bool(sums))
            yield
        except BaseException:
            # If the tables lack the number, no frame may follow before a later commit has stored its own. If they have
            # the rows, the sums have to include them: compute all sums again.
            self._behind, self._unsure = True, self._unsure or bool(sums)
            raise
        self._behind = False
        for table, values in (sums or {}).items():
            self._rows.changed[table] |= values

    def _say_number(self, connection: Connection, owing: bool) -> None:
        said = f"{self._number} {OWING}" if owing else str(self._number)
        self._dialect.change(connection, STORE, [(NAME, said)], ("name", "value"))

    def catch_up(self, engine: Engine) -> None:
        """Bring all frames and sums into the tables, by one transaction. If it fails, they stay ahead."""
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
        """Close the file. Remove it if nothing is ahead of the tables."""
        if self.waits:
            self._frames.close()
        else:
            self._frames.remove()

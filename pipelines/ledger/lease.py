"""The lease that lets one loader at a time work on a target: owner, heartbeat, takeover after silence."""

import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from sqlalchemy import ColumnElement, Connection, Engine, Select, Table, and_, bindparam, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from pipelines.ledger import tables as t
from pipelines.ledger.tables import LedgerError

Clock = Callable[[], datetime]
Read = Callable[[Select[Any]], Iterable[Any]]

SILENCE = timedelta(seconds=60)
SILENCE_SECONDS = SILENCE.total_seconds()
BEAT_SECONDS = 10.0
MOST_BETWEEN_LOOKS = 5.0


LATEST = "9"
"""A text that sorts after every moment in the ledger's form."""


class LeaseLost(LedgerError):
    """Another loader took over after our heartbeat was missing: this loader must send nothing more."""


class Holder(NamedTuple):
    """The process that works on the target. Times are UTC text."""

    owner: str
    host: str
    machine: str
    pid: int
    taken_at: str
    heartbeat_at: str


def utc_text(moment: datetime) -> str:
    """Return a moment in the ledger's form: UTC, microseconds, `Z`."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def is_moment(said: object) -> bool:
    """True if a value is a moment in the ledger's form."""
    with suppress(ValueError, OverflowError):
        return isinstance(said, str) and utc_text(datetime.fromisoformat(said)) == said
    return False


def this_machine() -> str:
    """Return an id of this boot and its process numbers, which shows that a holder is dead; empty if there is none."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def is_dead(holder: Holder, in_file: bool = False) -> bool:
    """True if the process of a holder is surely dead.

    in_file: True if the ledger is a file. Its processes share memory, and so run on one machine; a process from before
    the machine's last start is dead.
    """
    ours = this_machine()
    if not (holder.machine and ours):
        return False
    if in_file and holder.host == platform.node() and holder.machine.partition("/")[0] != ours.partition("/")[0]:
        return True
    if holder.machine != ours:
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def holders_in(read: Read, table: Table, target: str | None = None) -> set[Holder]:
    """Return the holders of all rows of a table, or of those of one target, each with its last heartbeat.

    read: runs a query on the ledger.
    """
    query = select(*(table.c[name] for name in Holder._fields)).where(table.c.owner != "")
    return {Holder(*each) for each in read(query if target is None else query.where(table.c.target == target))}


def holders(read: Read, target: str | None = None) -> set[Holder]:
    """Return the holders of all targets, or of one, that are not surely dead."""
    return {each for each in holders_in(read, t.lease, target) if not is_dead(each)}


def seen_of_late(read: Read, now: datetime, target: str | None = None) -> set[Holder]:
    """Return the holders with a heartbeat within `SILENCE` by the ledger's clock. For display only."""
    since = utc_text(now - SILENCE)
    return {each for each in holders(read, target) if each.heartbeat_at >= since}


class Silence:
    """The silence of lease holders, measured by this process in repeated looks.

    No clock time is used: another machine's clock may be minutes off, and any clock may be set forward. Between two
    looks at most `most_between` seconds count, since a machine that slept has not looked.
    """

    def __init__(self, most_between: float = MOST_BETWEEN_LOOKS) -> None:
        self._silent: dict[Holder, float] = {}
        self._most_between, self._looked_at = most_between, time.monotonic()

    def look(self, holders: Iterable[Holder]) -> set[Holder]:
        """Return the present holders that have been silent for 60 s."""
        now = time.monotonic()
        passed, self._looked_at = min(now - self._looked_at, self._most_between), now
        self._silent = {each: self._silent[each] + passed if each in self._silent else 0.0 for each in holders}
        return {each for each, seconds in self._silent.items() if seconds > SILENCE_SECONDS}


def check_owner(connection: Connection, table: Table, target: str, owner: str) -> None:
    """Raise `LeaseLost` unless this owner holds a target by a table's row. Lock the row until the transaction ends."""
    this = and_(table.c.target == target, table.c.owner == owner)
    if connection.execute(select(table.c.target).where(this).with_for_update(read=True)).first() is None:
        raise LeaseLost(f"another loader took over the target {target}")


class LeasedLedger(Protocol):
    """The parts of a ledger that a lease needs."""

    engine: Engine

    def transaction(self) -> AbstractContextManager[Connection]:
        """A transaction that writes."""

    def doubt_sending(self, target: str) -> None:
        """Put every row in doubt that is `sending`."""


class HeldRight:
    """A right to a target or to a part, held by a row of a table and a heartbeat.

    table: the table of that row. owner: the random id by which this process recognizes its row.
    """

    table: Table

    def __init__(self, ledger: "LeasedLedger", target: str, clock: Clock, owner: str, beat_seconds: float) -> None:
        self.target, self.owner = target, owner
        self._ledger, self._clock, self._beat_seconds = ledger, clock, beat_seconds
        self._engine = ledger.engine.execution_options(writes=True)
        self._ended = threading.Event()
        self._lost = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease heartbeat", daemon=True)

    def confirm(self, connection: Connection) -> None:
        """Raise `LeaseLost` if the heartbeat found another owner, or the ledger has another now."""
        if self._lost.is_set():
            raise LeaseLost(f"another loader took over the target {self.target}")
        check_owner(connection, self.table, self.target, self.owner)

    def _mine(self) -> ColumnElement[bool]:
        return and_(self.table.c.target == self.target, self.table.c.owner == self.owner)

    def _told(self) -> dict[str, object]:
        """Return the columns that a heartbeat writes."""
        return {"heartbeat_at": utc_text(self._clock())}

    def _begin(self) -> None:
        self._thread.start()

    def _end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(self._beat_seconds):
            try:
                with self._engine.begin() as connection:
                    if connection.execute(update(self.table).where(self._mine()).values(self._told())).rowcount == 0:
                        self._lost.set()
                        return
            except (SQLAlchemyError, LedgerError):  # busy or away for a moment: the next beat tries again
                continue


class Lease(HeldRight):
    """The right to write to a target, held within `with`.

    It is granted if the target is free, if this process has seen its holder silent for 60 s (`Silence`), or if the
    holder's process is surely dead. A process that loads a part into the target counts as a holder too. No other
    loader is at work then, so every row still `sending` becomes `in_doubt`. `waiting` is called with the holder, once
    a second, while the target is taken.
    """

    table = t.lease

    def __init__(
        self,
        ledger: "LeasedLedger",
        target: str,
        clock: Clock,
        waiting: Callable[[Holder], None] | None = None,
        *,
        poll_seconds: float = 1.0,
        beat_seconds: float = BEAT_SECONDS,
    ):
        super().__init__(ledger, target, clock, uuid.uuid4().hex, beat_seconds)
        self._waiting, self._poll_seconds = waiting, poll_seconds

    def __enter__(self) -> Self:
        silence, silent = Silence(), set[Holder]()
        while holders := self._take(silent):
            silent |= silence.look(holders)  # silent holders are not looked at again; a heartbeat makes another holder
            if self._waiting:
                self._waiting(holders[0])
            time.sleep(self._poll_seconds)
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        with self._engine.begin() as connection:
            connection.execute(t.lease.delete().where(self._mine()))

    def _take(self, silent: Collection[Holder]) -> list[Holder]:
        """Return no holder if the lease is ours now, else those at work. silent: holders without heartbeat for 60 s."""
        try:
            with self._ledger.transaction() as connection:
                holders = self._replace_holders(connection, silent)
                if not holders:
                    self._ledger.doubt_sending(self.target)
                return holders
        except IntegrityError:  # another loader was first, between our look and our insert
            return [Holder("", "another loader", "", 0, "", "")]

    def _replace_holders(self, connection: Connection, silent: Collection[Holder]) -> list[Holder]:
        """Replace holders that are gone; return those at work, which prevent it. Parts go with the old lease."""
        before = self._holders(connection, t.lease)
        found = [*before, *self._holders(connection, t.part)]
        in_file = self._engine.dialect.name == "sqlite"
        at_work = [each for each in found if each not in silent and not is_dead(each, in_file)]
        if at_work:
            return at_work
        connection.execute(t.part.delete().where(t.part.c.target == self.target))
        ours = this_process(self.owner, utc_text(self._clock()))
        if before:
            connection.execute(update(t.lease).where(t.lease.c.target == self.target).values(ours))
        else:
            connection.execute(t.lease.insert().values(target=self.target, **ours))
        return []

    def _holders(self, connection: Connection, table: Table) -> list[Holder]:
        return [Holder(*row) for row in connection.execute(_held(table), {"target": self.target})]


@cache
def _held(table: Table) -> Select[Any]:
    """Select the holders at a target and lock their rows until the transaction ends."""
    columns = [table.c[name] for name in Holder._fields]
    return select(*columns).where(table.c.target == bindparam("target"), table.c.owner != "").with_for_update()


def this_process(owner: str, now: str) -> dict[str, object]:
    """Return this process as a holder, by column."""
    return Holder(owner, platform.node(), this_machine(), os.getpid(), now, now)._asdict()

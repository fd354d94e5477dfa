"""The lease that lets one loader at a time work on a target: owner, heartbeat, takeover after silence."""

import os
import platform
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from sqlalchemy import ColumnElement, Connection, Engine, and_, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from pipelines.ledger import tables as t
from pipelines.ledger.tables import LedgerError

Clock = Callable[[], datetime]

SILENCE = timedelta(seconds=60)
BEAT_SECONDS = 10.0


class LeaseLost(LedgerError):
    """Another loader took over after a silence of ours: nothing more may be sent."""


class Holder(NamedTuple):
    """The process that works on the target; times are UTC text."""

    owner: str
    host: str
    machine: str
    pid: int
    taken_at: str
    heartbeat_at: str


def utc_text(moment: datetime) -> str:
    """The ledger's form of a moment: UTC, microseconds, `Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def is_moment(said: object) -> bool:
    """True if this is a moment in the ledger's form."""
    with suppress(ValueError, OverflowError):
        return isinstance(said, str) and utc_text(datetime.fromisoformat(said)) == said
    return False


def this_machine() -> str:
    """Name this boot and its process numbers, so that a dead holder is known for dead; else empty."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _is_dead(holder: Holder) -> bool:
    if not holder.machine or holder.machine != this_machine():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


class Leased(Protocol):
    """The parts of a ledger that a lease needs."""

    engine: Engine

    def transaction(self) -> AbstractContextManager[Connection]:
        """A transaction that writes."""

    def doubt_sending(self, target: str) -> int:
        """Every row that is `sending` comes in doubt; how many."""


class Lease:
    """The right to write to a target, held within `with`.

    It is entered when the target is free, when its holder was silent for 60 s, or when the holder's process is surely
    dead. Silence is read from the holder's last heartbeat. It is also measured by watching, since a heartbeat lies
    ahead after a clock was put back. No other loader is at work then, so every row still `sending` becomes `in_doubt`;
    the attribute `in_doubt` counts these. `waiting` is called with the holder, once a second, while the target is
    taken.
    """

    def __init__(
        self,
        ledger: "Leased",
        target: str,
        clock: Clock,
        waiting: Callable[[Holder], None] | None = None,
        *,
        poll_seconds: float = 1.0,
        beat_seconds: float = BEAT_SECONDS,
    ):
        self.target, self.owner, self.in_doubt = target, uuid.uuid4().hex, 0
        self._ledger, self._clock, self._waiting = ledger, clock, waiting
        self._engine = ledger.engine.execution_options(writes=True)
        self._poll_seconds, self._beat_seconds = poll_seconds, beat_seconds
        self._ended = threading.Event()
        self._lost = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease heartbeat", daemon=True)

    def __enter__(self) -> Self:
        seen, since = None, time.monotonic()
        while (holder := self._take(seen if time.monotonic() - since > SILENCE.total_seconds() else None)) is not None:
            if holder != seen:
                seen, since = holder, time.monotonic()
            if self._waiting:
                self._waiting(holder)
            time.sleep(self._poll_seconds)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        with self._engine.begin() as connection:
            connection.execute(t.lease.delete().where(self._mine()))

    def check(self) -> None:
        """Raises `LeaseLost` when the heartbeat found another owner. `Ledger.intend` also asks the ledger itself."""
        if self._lost.is_set():
            raise LeaseLost(f"another loader took over the target {self.target}")

    def _mine(self) -> ColumnElement[bool]:
        return and_(t.lease.c.target == self.target, t.lease.c.owner == self.owner)

    def _take(self, silent: Holder | None) -> Holder | None:
        """Return None if the lease is ours now, else its holder. silent: a holder that was watched for 60 s without a
        heartbeat.
        """
        try:
            with self._ledger.transaction() as connection:
                holder = self._replace_holder(connection, silent)
                if holder is None:
                    self.in_doubt = self._ledger.doubt_sending(self.target)
                return holder
        except IntegrityError:  # another loader was first, between our look and our insert
            return Holder("", "another loader", "", 0, "", "")

    def _replace_holder(self, connection: Connection, silent: Holder | None) -> Holder | None:
        columns = [t.lease.c[name] for name in Holder._fields]
        row = connection.execute(
            select(*columns).where(t.lease.c.target == self.target).with_for_update()
        ).one_or_none()
        if row is None:
            connection.execute(t.lease.insert().values(target=self.target, **self._self()))
            return None
        holder = Holder(*row)
        beats = holder != silent and holder.heartbeat_at >= utc_text(self._clock() - SILENCE)
        if beats and not _is_dead(holder):
            return holder
        connection.execute(update(t.lease).where(t.lease.c.target == self.target).values(**self._self()))
        return None

    def _self(self) -> dict[str, object]:
        now = utc_text(self._clock())
        me = Holder(self.owner, platform.node(), this_machine(), os.getpid(), now, now)
        return me._asdict()

    def _beat(self) -> None:
        while not self._ended.wait(self._beat_seconds):
            try:
                with self._engine.begin() as connection:
                    beat = update(t.lease).where(self._mine()).values(heartbeat_at=utc_text(self._clock()))
                    if connection.execute(beat).rowcount == 0:
                        self._lost.set()
                        return
            except SQLAlchemyError:  # busy or away for a moment: the next beat tells
                continue

"""Parts: ranges of a batch's lanes that workers load side by side, each under a lease of its own.

Parts are laid out under the lease of the target, and are removed when that ends. They are not facts of the journal:
the records show what a part has done.
"""

import uuid
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple, Self

from sqlalchemy import ColumnElement, Connection, Select, and_, select, update

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.lease import (
    Clock,
    HeldRight,
    Holder,
    LeasedLedger,
    LeaseLost,
    Silence,
    check_owner,
    holders_in,
    is_dead,
    this_process,
    utc_text,
)
from pipelines.ledger.ledger import Ledger

BEGINNINGS = 3
"""How often a part is begun at most. A part whose workers die again and again is left to the next run."""
BEAT_SECONDS = 1.0


class PartState(NamedTuple):
    """The state of a part: how often it was begun, if a worker holds it now, its counts so far, and its outcome.

    holder: the worker that holds the part, or that held it last and did not release it.
    """

    number: int
    attempts: int
    held: bool
    counts: str | None
    outcome: str | None
    holder: Holder | None = None

    @property
    def is_left(self) -> bool:
        """True if a worker can begin the part."""
        return self.outcome is None and not self.held and self.attempts < BEGINNINGS


class PartLease(HeldRight):
    """The right to load one part, held within `with`. attempts: 1 for the first worker that begins it."""

    table = t.part

    def __init__(self, ledger: LeasedLedger, target: str, number: int, attempts: int, owner: str, clock: Clock) -> None:
        super().__init__(ledger, target, clock, owner, BEAT_SECONDS)
        self.number, self.attempts = number, attempts
        self.counting: Callable[[], str] | None = None

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        """Release the part. If it has no outcome, another worker can take it."""
        self._end()
        with self._engine.begin() as connection:
            connection.execute(update(t.part).where(self._mine()).values(owner="", **self._told()))

    def done(self, outcome: str) -> None:
        """Write the outcome of the part. Raises `LeaseLost`."""
        with self._engine.begin() as connection:
            if connection.execute(update(t.part).where(self._mine()).values(outcome=outcome)).rowcount == 0:
                raise LeaseLost(f"another loader took over the target {self.target}")

    def _told(self) -> dict[str, object]:
        told = super()._told()
        if self.counting:
            with suppress(Exception):  # counts may change while they are read: this heartbeat goes without them
                told["counts"] = self.counting()
        return told


def lay_out(ledger: LedgerAccess, lease: HeldRight, number: int) -> None:
    """Make `number` free parts of the batch that is loaded under the target's lease, in place of earlier ones; 0 once
    it is loaded. Raises `LeaseLost`.
    """
    free = {"attempts": 0, "owner": "", "host": "", "machine": "", "pid": 0, "taken_at": "", "heartbeat_at": ""}
    with _begin(ledger) as connection:
        check_owner(connection, t.lease, lease.target, lease.owner)
        connection.execute(t.part.delete().where(t.part.c.target == lease.target))
        if parts := [{"target": lease.target, "part": each, **free} for each in range(number)]:
            connection.execute(t.part.insert(), parts)


def claim(
    ledger: Ledger, target: str, loader: str, ends_all: Callable[[str], bool] = lambda _: False
) -> PartLease | None:
    """Take a part that is free, or whose worker is dead; return None if there is none now.

    loader: the owner of the target's lease, under which the parts were laid out. ends_all: True for an outcome after
    which no further part is begun. Raises `LeaseLost`.
    """
    with _begin(ledger) as connection:
        check_owner(connection, t.lease, target, loader)
        came_to = select(t.part.c.outcome).where(t.part.c.target == target, t.part.c.outcome.is_not(None))
        if any(map(ends_all, connection.execute(came_to).scalars())):
            return None
        found = connection.execute(_some(target, t.part.c.owner == "").limit(1)).first()
        held = connection.execute(_some(target, t.part.c.owner != "")) if found is None else ()
        number = found.part if found else next((each.part for each in held if is_dead(_holder(each))), None)
        if number is None:
            return None
        ours = this_process(uuid.uuid4().hex, utc_text(ledger.clock()))
        this = and_(t.part.c.target == target, t.part.c.part == number)
        attempts = connection.execute(
            update(t.part).where(this).values(**ours, attempts=t.part.c.attempts + 1).returning(t.part.c.attempts)
        ).scalar_one()
    return PartLease(ledger, target, number, attempts, str(ours["owner"]), ledger.clock)


def states(ledger: LedgerAccess, target: str) -> list[PartState]:
    """Return the parts of the batch that is loaded into a target."""
    query = select(t.part).where(t.part.c.target == target).order_by(t.part.c.part)
    return [_state(each) for each in ledger.read(query)]


def free(ledger: LedgerAccess, target: str, silent: Collection[Holder]) -> None:
    """Release the parts of silent workers, unless a worker has sent a heartbeat since."""
    with _begin(ledger) as connection:
        for each in silent:
            this = (t.part.c.owner == each.owner, t.part.c.heartbeat_at == each.heartbeat_at)
            connection.execute(update(t.part).where(t.part.c.target == target, *this).values(owner=""))


def _state(row: Any) -> PartState:
    holder = _holder(row) if row.owner else None
    held = holder is not None and not is_dead(holder)
    return PartState(row.part, row.attempts, held, row.counts, row.outcome, holder)


class LoaderWatch:
    """Watch the loader that holds the target's lease, for a worker that joins the load.

    It uses no clock times: a holder that is seen without a heartbeat for 60 s counts as gone. is_lost: True if that
    was so at the last look and no other loader has taken the target.
    """

    def __init__(self, ledger: LedgerAccess, target: str) -> None:
        self.is_lost = False
        self._ledger, self._target, self._silence = ledger, target, Silence()

    def look(self) -> str | None:
        """Return the owner of the target's lease if it is at work, else None.

        If none is at work, the parts are leftovers of a load that has ended.
        """
        holders = holders_in(self._ledger.read, t.lease, self._target)
        silent = self._silence.look(holders)
        at_work = next((each.owner for each in holders if each not in silent and not is_dead(each)), None)
        self.is_lost = bool(holders) and at_work is None
        return at_work


def _begin(ledger: LedgerAccess) -> AbstractContextManager[Connection]:
    return ledger.engine.execution_options(writes=True).begin()


def _some(target: str, which: ColumnElement[bool]) -> Select[tuple[object, ...]]:
    """Select parts that can be begun, except those that another transaction has locked.

    SQLite does not know `SKIP LOCKED`, and needs no such clause: it runs only one writing transaction at a time.
    """
    part = t.part.c
    here = (part.target == target, part.outcome.is_(None), part.attempts < BEGINNINGS, which)
    return select(t.part).where(*here).order_by(part.part).with_for_update(skip_locked=True)


def _holder(row: object) -> Holder:
    return Holder(*(getattr(row, name) for name in Holder._fields))

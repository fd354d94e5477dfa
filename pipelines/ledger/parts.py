"""Parts: ranges of a batch's lanes, which workers load side by side, each under a lease of its own.

They are laid out under the lease of the target, and are gone when that ends. They are no facts: what was done of a part
is in its records.
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
    Held,
    Holder,
    Leased,
    LeaseLost,
    Silence,
    is_dead,
    this_process,
    utc_text,
)
from pipelines.ledger.ledger import Ledger

BEGINNINGS = 3
"""How often a part is begun: one whose workers die again and again is left to the next run."""
BEAT_SECONDS = 1.0


class PartState(NamedTuple):
    """A part: how often it was begun, whether a worker has it just now, its counts so far, and what it came to.

    holder: the worker that has it, or has had it last and did not let it go.
    """

    number: int
    attempts: int
    held: bool
    counts: str | None
    outcome: str | None
    holder: Holder | None = None

    @property
    def is_left(self) -> bool:
        """True if a worker can begin it."""
        return self.outcome is None and not self.held and self.attempts < BEGINNINGS


class PartLease(Held):
    """The right to load one part, held within `with`. attempts: 1 for who begins it first."""

    table = t.part

    def __init__(self, ledger: Leased, target: str, number: int, attempts: int, owner: str, clock: Clock) -> None:
        super().__init__(ledger, target, clock, owner, BEAT_SECONDS)
        self.number, self.attempts = number, attempts
        self.counting: Callable[[], str] | None = None

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        """Let the part go: without an outcome, for who takes it up next."""
        self._end()
        with self._engine.begin() as connection:
            connection.execute(update(t.part).where(self._mine()).values(owner="", **self._told()))

    def done(self, outcome: str) -> None:
        """Write down what the part came to. Raises `LeaseLost`."""
        with self._engine.begin() as connection:
            if connection.execute(update(t.part).where(self._mine()).values(outcome=outcome)).rowcount == 0:
                raise LeaseLost(f"another loader took over the target {self.target}")

    def _told(self) -> dict[str, object]:
        told = super()._told()
        if self.counting:
            with suppress(Exception):  # counts change under the hand: this sign of life goes without them
                told["counts"] = self.counting()
        return told


def lay_out(ledger: LedgerAccess, lease: Held, number: int) -> None:
    """Make so many parts of what is loaded under a lease of the target; they are free. Raises `LeaseLost`."""
    free = {"attempts": 0, "owner": "", "host": "", "machine": "", "pid": 0, "taken_at": "", "heartbeat_at": ""}
    with _begin(ledger) as connection:
        _check(connection, lease.target, lease.owner)
        connection.execute(t.part.delete().where(t.part.c.target == lease.target))
        connection.execute(t.part.insert(), [{"target": lease.target, "part": each, **free} for each in range(number)])


def remove_parts(ledger: LedgerAccess, lease: Held) -> None:
    """Remove the parts of a load that has ended. Raises `LeaseLost`."""
    with _begin(ledger) as connection:
        _check(connection, lease.target, lease.owner)
        connection.execute(t.part.delete().where(t.part.c.target == lease.target))


def claim(
    ledger: Ledger,
    target: str,
    loader: str,
    ends_all: Callable[[str], bool] = lambda _: False,
) -> PartLease | None:
    """Take a part that is free, or whose worker is dead; None if there is none just now.

    loader: the owner of the target's lease, under which the parts were laid out. ends_all: true of the outcome of a
    part after which none is begun. Raises `LeaseLost`.
    """
    with _begin(ledger) as connection:
        _check(connection, target, loader)
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
    """The parts of what is loaded into a target."""
    query = select(t.part).where(t.part.c.target == target).order_by(t.part.c.part)
    return [_state(each) for each in ledger.read(query)]


def free(ledger: LedgerAccess, target: str, silent: Collection[Holder]) -> None:
    """Take parts from workers that have been silent, unless they have given a sign of life since."""
    with _begin(ledger) as connection:
        for each in silent:
            this = (t.part.c.owner == each.owner, t.part.c.heartbeat_at == each.heartbeat_at)
            connection.execute(update(t.part).where(t.part.c.target == target, *this).values(owner=""))


def _state(row: Any) -> PartState:
    holder = _holder(row) if row.owner else None
    held = holder is not None and not is_dead(holder)
    return PartState(row.part, row.attempts, held, row.counts, row.outcome, holder)


class LoaderWatch:
    """Watches who leads the load into a target: whoever joins it looks again and again.

    No clock is asked: a holder of the target that is seen without a sign of life for 60 s counts as gone. is_lost: that
    this was so at the last look, and nobody has taken the target over.
    """

    def __init__(self, ledger: LedgerAccess, target: str) -> None:
        self.is_lost = False
        self._ledger, self._target, self._silence = ledger, target, Silence()

    def look(self) -> str | None:
        """Return the owner of the target's lease if it is at work, which alone makes parts more than remains."""
        holders = _holders_of(self._ledger, self._target)
        silent = self._silence.look(holders)
        at_work = next((each.owner for each in holders if each not in silent and not is_dead(each)), None)
        self.is_lost = bool(holders) and at_work is None
        return at_work


def _holders_of(ledger: LedgerAccess, target: str) -> list[Holder]:
    query = select(*(t.lease.c[name] for name in Holder._fields)).where(t.lease.c.target == target)
    return list(map(Holder._make, ledger.read(query)))


def _begin(ledger: LedgerAccess) -> AbstractContextManager[Connection]:
    return ledger.engine.execution_options(writes=True).begin()


def _some(target: str, which: ColumnElement[bool]) -> Select[tuple[object, ...]]:
    """Select parts that can be begun, apart from those that another transaction has just now.

    SQLite has no such clause: there a transaction that writes is alone.
    """
    part = t.part.c
    here = (part.target == target, part.outcome.is_(None), part.attempts < BEGINNINGS, which)
    return select(t.part).where(*here).order_by(part.part).with_for_update(skip_locked=True)


def _holder(row: object) -> Holder:
    return Holder(*(getattr(row, name) for name in Holder._fields))


def _check(connection: Connection, target: str, owner: str) -> None:
    """Raise `LeaseLost` unless the target's lease is held by this owner, which it is until the transaction ends."""
    mine = (t.lease.c.target == target, t.lease.c.owner == owner)
    if connection.execute(select(t.lease.c.owner).where(*mine).with_for_update(read=True)).first() is None:
        raise LeaseLost(f"another loader took over the target {target}")

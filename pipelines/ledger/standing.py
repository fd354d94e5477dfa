"""Standing: what is true of a key now. Whoever asks what the ledger knows of a record asks here.

A record that was taken back is not there. A reject is closed by what is there instead, not by what merely came again.
"""

from collections import Counter
from collections.abc import Collection
from enum import StrEnum

from sqlalchemy import func, select

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.rows import KnownRecord

UNDO = "undo"


class Standing(StrEnum):
    """The answers to: is the record of this key at the target?"""

    ABSENT = "absent"
    """The target surely does not have it: nothing of it was sent, or the target refused it."""
    WAITING = "waiting"
    """It is to be sent."""
    IN_DOUBT = "in doubt"
    """It was sent, and nobody knows whether the target has it."""
    THERE = "there"
    """The target has it with the content that the ledger knows."""
    TAKEN_BACK = "taken back"
    """The target had it, and it was taken back."""


OF_STATE = {
    "planned": Standing.WAITING,
    "sending": Standing.IN_DOUBT,
    "in_doubt": Standing.IN_DOUBT,
    "refused": Standing.ABSENT,
    "undone": Standing.TAKEN_BACK,
}
"""By the state of a record; in every other state it is there."""


def standing_of(record: KnownRecord | None) -> Standing:
    """Return what is true of a key, given the newest generation of its record."""
    return Standing.ABSENT if record is None else OF_STATE.get(record.state, Standing.THERE)


def undone_at(ledger: LedgerAccess, target: str, batches: Collection[str]) -> dict[str, str]:
    """Return when each of these batches was last taken back (UTC text), where somebody has undone it."""
    decision, found = t.decision.c, dict[str, str]()
    query = select(decision.subject, decision.at).where(decision.target == target, decision.command == UNDO)
    with ledger.engine.connect() as connection:
        for subject, at in connection.execute(query.order_by(decision.at)):
            if subject in batches:
                found[subject] = at
    return found


def undone_by_batch(ledger: LedgerAccess) -> Counter[tuple[str, str]]:
    """Count the records that are taken back now, by target and batch, of batches that somebody has undone."""
    decision, found = t.decision.c, Counter[tuple[str, str]]()
    with ledger.engine.connect() as connection:
        batches = (
            connection.execute(select(decision.subject).distinct().where(decision.command == UNDO)).scalars().all()
        )
        for batch_id in batches:
            for lines in (t.record.c, t.repeat.c):
                query = select(lines.target, func.count()).where(lines.batch_id == batch_id, lines.state == "undone")
                for target, number in connection.execute(query.group_by(lines.target)):
                    found[target, batch_id] += int(number)
    return found

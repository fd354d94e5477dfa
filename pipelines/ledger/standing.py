"""Standing: what is true of a key now. Whoever asks what the ledger knows of a record asks here.

A record that was taken back is not there. A reject is closed by what is there instead, not by what merely came again.
"""

from collections import Counter
from collections.abc import Collection
from enum import StrEnum

from sqlalchemy import exists, func, select

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
    for subject, at in ledger.read(query.order_by(decision.at)):
        if subject in batches:
            found[subject] = at
    return found


def undone_by_batch(ledger: LedgerAccess, batch_id: str | None = None) -> Counter[tuple[str, str]]:
    """Count the lines whose records are taken back now, by target and batch, as `import_row` of the tables has them.

    batch_id: the one batch to count; None for all. However they were taken back: a lost ledger has no decisions.
    """
    record, version, batch = t.records.c, t.versions.c, t.batch.c
    has_record = exists().where(
        record.batch_no == version.batch_no,
        record.line == version.line,
        record.stream_id == version.stream_id,
        record.key == version.key,
    )
    found = Counter[tuple[str, str]]()
    with ledger.reading():
        for lines, *which in ((t.records,), (t.versions, t.IS_OUTCOME, ~has_record)):
            query = select(batch.target, batch.batch_id, func.count()).select_from(
                lines.join(t.batch, lines.c.batch_no == batch.batch_no)
            )
            if batch_id is not None:
                query = query.where(batch.batch_id == batch_id)
            query = query.where(lines.c.state == "undone", *which).group_by(batch.target, batch.batch_id)
            for target, name, number in ledger.read(query):
                found[target, name] += int(number)
    return found

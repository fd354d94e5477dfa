"""Standing: the present relation of a key's record to the target. All code that asks for it asks here.

A record that was taken back is not at the target. A reject is closed by a record at the target, not by one that merely
came again.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import and_, exists, func, select

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.row_fates import AGAIN
from pipelines.ledger.rows import KnownRecord
from pipelines.ledger.states import CUT_OFF, MADE, ROW_STATES, in_sql

UNDO, ENDED = "undo", "undo: ended"
"""Decisions: a batch was taken back, and was ended because it was not finished."""


class Standing(StrEnum):
    """The answers to: is the record of this key at the target?"""

    ABSENT = "absent"
    """The target surely does not have it: it was not sent, or the target refused it."""
    WAITING = "waiting"
    """The record is to be sent."""
    IN_DOUBT = "in doubt"
    """The record was sent, and it is unknown if the target has it."""
    THERE = "there"
    """The target has the record with the content that the ledger knows."""
    TAKEN_BACK = "taken back"
    """The target had the record, and it was taken back."""


OF_STATE = {
    "planned": Standing.WAITING,
    "sending": Standing.IN_DOUBT,
    "in_doubt": Standing.IN_DOUBT,
    "refused": Standing.ABSENT,
    "undone": Standing.TAKEN_BACK,
}
"""Standing by the state of a record. In every other state the record is `THERE`."""
STATES_THERE = tuple(state for state in ROW_STATES if OF_STATE.get(state, Standing.THERE) is Standing.THERE)
OF_KEYS = f"""
SELECT key, CASE WHEN state IN ({in_sql(STATES_THERE)}) AND COALESCE(finished_at, '') < ?
    THEN content_hash END,
  patient_id, source_at, amount_cents,
  CASE WHEN batch_no = (SELECT batch_no FROM batch WHERE target = ? AND batch_id = ?) THEN line END
FROM record
WHERE stream_id = (SELECT stream_id FROM stream WHERE target = ? AND source = ? AND resource_type = ?)
  AND key IN ({{keys}})"""


def standing_of(record: KnownRecord | None) -> Standing:
    """Return the standing of a key from the newest generation of its record."""
    return Standing.ABSENT if record is None else OF_STATE.get(record.state, Standing.THERE)


class RecordContent(NamedTuple):
    """A record's content. content_hash: None unless it is `THERE`. line: None if the record is from another batch."""

    key: str
    content_hash: str | None
    patient_id: str | None
    source_at: str | None
    amount_cents: int | None
    line: int | None


def contents_of(
    ledger: LedgerAccess, of: tuple[str, str, str], batch_id: str, keys: Sequence[str], before: str
) -> Iterator[tuple[Any, ...]]:
    """Yield the `RecordContent` of each record of these keys as a plain tuple. of: target, source and type.

    A record is `THERE` by the same table as in `standing_of`. before: a record with its outcome at this moment or
    later counts as absent.
    """
    return ledger.rows_of_keys(OF_KEYS, (before, of[0], batch_id, *of), keys)


def undone_at(ledger: LedgerAccess, target: str, batches: Collection[str]) -> dict[str, str]:
    """Return when each of these batches was last undone (UTC text), for those that a person has undone."""
    decision = t.decision.c
    query = select(decision.subject, func.max(decision.at)).group_by(decision.subject)
    undone = ledger.read(query.where(decision.target == target, decision.command == UNDO))
    return {subject: at for subject, at in undone if subject in batches}


def ended_at(ledger: LedgerAccess, target: str, batch_id: str) -> str:
    """Return when undo ended a batch before it was finished (UTC text); empty text if not, or if it was loaded again
    since.
    """
    decision = t.decision.c
    query = select(decision.command, decision.at).where(decision.target == target, decision.subject == batch_id)
    found = ledger.read(query.where(decision.command.in_((ENDED, AGAIN))).order_by(decision.at.desc()).limit(1))
    return next((str(at) for command, at in found if command == ENDED), "")


def is_ended_by_undo(state: str, last_run: str | None) -> bool:
    """True if undo has ended a batch, by its state and that of its last run: a check stops a run with its batch."""
    return state == "stopped" and last_run != "stopped"


def next_step(batch_id: str, state: str, last_run: str | None, open_rejects: int) -> str:
    """Return what to do about a file that was not loaded, in sentences.

    last_run: the state of its newest run. open_rejects: while there are any, its rows cannot be purged.
    """
    there = f"batches/{batch_id}/source has it"
    if state == "failed" and last_run == CUT_OFF:
        return f"Import it again, with a later version of Chartferry or with more memory: {there}."
    if is_ended_by_undo(state, last_run):
        load = f"chartferry import --again {batch_id} loads it whole."
    elif state == "stopped":
        load = (
            "Do what the problem says; or correct the file, its control totals or its feed file, and import it again,"
            f" with its control totals if it has some: {there}."
        )
    else:
        load = f"Correct the file or its feed file, and import it again: {there}."
    first = "set its open rejects aside by chartferry rejects discard, and then " if open_rejects else ""
    return f"{load} If records are left that are not needed, {first}give them up by chartferry purge {batch_id}."


def how_taken_back(batch_id: str, at: str | None) -> str:
    """Return words for how a batch's record was taken back. at: when a person undid the batch; None if nobody did."""
    return f"by undo of {batch_id} at {at[:19]}Z" if at else f"at the target, with what {batch_id} had made"


def undone_by_batch(ledger: LedgerAccess, batch_id: str | None = None) -> Counter[tuple[str, str]]:
    """Count the lines whose records are taken back now, by target and batch, as `import_row` of the tables has them.

    batch_id: the one batch to count; None for all. Records count however they were taken back, since a lost ledger has
    no decisions.
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
        for lines, *which in (
            (t.records, t.IS_UNDONE),
            (t.versions, version.state == "undone", t.IS_OUTCOME, ~has_record),
        ):
            query = select(batch.target, batch.batch_id, func.count()).select_from(
                lines.join(t.batch, lines.c.batch_no == batch.batch_no)
            )
            if batch_id is not None:
                query = query.where(batch.batch_id == batch_id)
            query = query.where(*which).group_by(batch.target, batch.batch_id)
            for target, name, number in ledger.read(query):
                found[target, name] += int(number)
    return found


def undo_left_by_batch(ledger: LedgerAccess) -> Counter[tuple[str, str]]:
    """Count, by target and batch, the records that an undo may or may not have taken back.

    The undo was cut off, or the target did not answer. Records that a later file has updated since are at the target
    and do not count.
    """
    record, version, batch = t.records.c, t.versions.c, t.batch.c
    names = ("stream_id", "key", "generation", "batch_no")
    same = and_(*(record[name] == version[name] for name in names))
    query = select(batch.target, batch.batch_id, func.count()).select_from(
        t.versions.join(t.records, same).join(t.batch, record.batch_no == batch.batch_no)
    )
    query = query.where(version.fate == "standing", record.state.in_(MADE)).group_by(batch.target, batch.batch_id)
    return Counter({(str(target), str(name)): int(number) for target, name, number in ledger.read(query)})

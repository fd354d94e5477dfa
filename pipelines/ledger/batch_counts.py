"""Counts of a batch: those of its lines, and its rows by first outcome, whatever later runs of the file met."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import and_, select

from pipelines.ledger import tables as t
from pipelines.ledger.columns import LINES
from pipelines.ledger.inserting import keep_others_out
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.row_fates import OPEN
from pipelines.ledger.states import OUTCOMES, UNDECIDED


def with_outcomes(
    ledger: Ledger, target: str, batch_id: str, lines: Mapping[str, Any], all_have_one: bool = False
) -> dict[str, int]:
    """Return the counts of a batch's lines, its rows by first outcome, and the cents created.

    A reject that a later run has sent is an accepted row, although its lines were counted before. Rows that only an
    earlier content of the feed took are records too. all_have_one: True if each accepted row has an outcome.
    """
    rows = ledger.row_counts(target, batch_id)
    outcomes = {name: rows.get(name, (0, 0)) for name in OUTCOMES}
    counts = {name: int(lines[name] or 0) for name in LINES} | {name: number for name, (number, _) in outcomes.items()}
    accepted = sum(number for number, _ in outcomes.values())
    if all_have_one or accepted > counts["accepted"]:
        cents = sum(cents for _, cents in outcomes.values())
        if others := max(accepted - counts["records"], 0):
            counts |= {"records": accepted, "not_taken": max(counts["not_taken"] - others, 0)}
            counts["amount_received"] = max(counts["amount_received"], cents)
        counts |= {"accepted": accepted, "rejected": counts["records"] - accepted, "amount_accepted": cents}
    return counts | {"amount_created": outcomes["created"][1]}


def are_of_lines(counts: Mapping[str, Any], lines: Mapping[str, Any]) -> bool:
    """True if counts of rows fit these lines: no more rows, and no larger amount."""
    return all(
        counts[of_rows] <= int(lines[of_lines] or 0)
        for of_rows, of_lines in (("accepted", "records"), ("amount_accepted", "amount_received"))
    )


def counts_so_far(ledger: Ledger, batch: Mapping[str, Any]) -> dict[str, int]:
    """Return the counts of an unfinished batch, with the line counts of its newest run until it has its own.

    Records without lines are rows that an earlier version counted before a run had ended.
    """
    target, batch_id = batch["target"], batch["batch_id"]
    lines: Mapping[str, Any] = batch
    if not batch["lines"]:
        lines = next((run for run in reversed(ledger.runs(target, batch_id)) if run["records"]), batch)
    return with_outcomes(ledger, target, batch_id, lines)


def as_of_now(ledger: Ledger, batch: dict[str, Any]) -> dict[str, Any]:
    """Return a batch with its present counts, also if it has not ended."""
    return batch | counts_so_far(ledger, batch) if batch["state"] == "running" else batch


def hold_batch(ledger: Ledger, target: str, batch_id: str) -> None:
    """Lock a batch and its rows until the transaction ends, so that counts read here remain true. Call within a
    transaction.

    The order of locks matters: first the run's row is written, then the batch is locked, then the journal, as where a
    run begins.
    """
    ledger.read(
        select(t.batch.c.batch_no).where(t.batch.c.target == target, t.batch.c.batch_id == batch_id).with_for_update()
    )
    keep_others_out(ledger)


def rows_left(
    ledger: Ledger, target: str, batch_id: str, most: int | None = None, among: Sequence[str] = UNDECIDED
) -> list[str]:
    """Return keys of a batch's rows without an outcome, at most `most`. A batch with such a row has not ended.

    A planned row whose reject is open is left out: it waits for a correction or a retry. among: states.
    """
    record, reject, stream = t.records.c, t.reject.c, t.stream.c
    its_reject = select(reject.reject_id).where(
        stream.stream_id == record.stream_id,
        *(reject[name] == stream[name] for name in t.OF_STREAM),
        reject.source_key == record.key,
        reject.batch_id == batch_id,
        reject.state.in_(OPEN),
    )
    waits = and_(record.state == "planned", its_reject.exists())
    query = select(record.key).where(t.of_batch(t.records, target, batch_id), record.state.in_(among), ~waits)
    return [key for (key,) in ledger.read(query.limit(most))]


def keep_so_far(ledger: Ledger) -> None:
    """Write the present counts of the batches that have not ended, unless one ends meanwhile."""
    for batch in ledger.batches():
        if batch["state"] == "running":
            ledger.count_batch(batch["target"], batch["batch_id"], counts_so_far(ledger, batch))

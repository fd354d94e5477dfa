"""Find rows that look like a total: their amount is the sum of the rows before them."""

from collections.abc import Iterator

import numpy as np

from pipelines.feeds.reading.chunks import Notice
from pipelines.home import spill
from pipelines.validation.outcome import ValidationResult

LOOKS_LIKE_TOTAL = "LOOKS-LIKE-TOTAL"
SAID = "the row looks like a total: its amount is the sum of the rows before it, and is counted as received"
TAKEN = "the row looks like a total: its amount is the sum of all other rows, and it was taken as a payment"
SURE = 5
"""The number of other rows from which on an accepted row may look like a total: the last of three instalments may be
the sum of the other two.
"""
DO = "chartferry rejects discard closes it, and [trailer] in the feed file takes it out of the next export"
NAMED = 5
AMOUNT = ("line", "amount_cents")


def notice_totals(found: ValidationResult) -> None:
    """Note the rows that look like a total. The folder's files must be complete.

    They are rejects below all accepted rows, whose amount is the sum of the rows before them. One row before is not
    enough: two equal payments are not a payment and its total.
    """
    if not found.amount_received or not (found.rejected or found.accepted > SURE):
        return
    newest, last, number, total = (0, 0), 0, 0, 0
    for name in ("accepted", "skipped"):
        for line, cents in _amounts(found, name):
            last, number, total = max(last, line), number + 1, total + cents
            newest = max(newest, (line, cents)) if name == "accepted" else newest
    for line, cents in map(np.void.item, np.sort(np.fromiter(_amounts(found, "rejects"), "i8,i8"))):
        if line > last and number > 1 and cents == total:
            found.noticed.append(Notice(line, LOOKS_LIKE_TOTAL, SAID))
        number, total = number + 1, total + cents
    if found.accepted > SURE and newest[1] * 2 == found.amount_received:
        found.noticed.append(Notice(newest[0], LOOKS_LIKE_TOTAL, TAKEN))


def _amounts(found: ValidationResult, name: str) -> Iterator[tuple[int, int]]:
    """Yield line and amount of each row of one of the run's files that has an amount other than zero."""
    rows = spill.rows_of(found.folder / f"{name}.parquet", *AMOUNT)
    yield from ((line, cents) for line, cents in rows if cents)


def total_said(found: ValidationResult) -> str | None:
    """Return the sentence that names rows which look like a total; None if there are none."""
    noticed = [notice for notice in found.noticed if notice.rule == LOOKS_LIKE_TOTAL]
    if taken := [notice.line for notice in noticed if notice.message == TAKEN]:
        return (
            f"line {taken[0]}: {TAKEN}; if it is a total, correct that payment in the chart, and describe the total by"
            " [trailer] in the feed file"
        )
    lines = [notice.line for notice in noticed]
    if not lines:
        return None
    named = ", ".join(f"line {line}" for line in lines[:NAMED])
    more = f" and {len(lines) - NAMED:,} more" if len(lines) > NAMED else ""
    return (
        f"{named}{more}: a rejected row looks like a total, since its amount is the sum of the rows before it, and is"
        f" counted as received; {DO}"
    )

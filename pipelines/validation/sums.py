"""Find rows that look like a total: their amount is the sum of the rows before them."""

from pathlib import Path

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
AMOUNTS = ("accepted", "skipped", "rejects")
"""The files of a run with amounts."""


def notice_totals(scratch: Path, found: ValidationResult) -> None:
    """Note the rows that look like a total. The folder's files must be complete. scratch: where sorting may spill."""
    if not found.amount_received or not (found.rejected or found.accepted > SURE):
        return
    with spill.sorter(scratch) as database:
        if found.rejected:
            lines = spill.rows(database, _query(found.folder))
            found.noticed += [Notice(line, LOOKS_LIKE_TOTAL, SAID) for (line,) in lines]
        if found.accepted > SURE:
            ((line, cents),) = spill.rows(database, _last(found.folder))
            if cents and cents * 2 == found.amount_received:
                found.noticed.append(Notice(line, LOOKS_LIKE_TOTAL, TAKEN))


def _query(folder: Path) -> str:
    """Return the query for rejects at the end of the file whose amount is the sum of two or more rows before them.

    One row before is not enough: two equal payments are not a payment and its total. No accepted row may come after
    them.
    """
    amounts = " union all ".join(
        f"select line, amount_cents as cents, {name == 'rejects'} as rejected"
        f" from read_parquet('{_quoted(folder / name)}.parquet') where amount_cents <> 0"
        for name in AMOUNTS
    )
    before = "(order by line rows between unbounded preceding and 1 preceding)"
    return f"""
        select line from (
            select line, cents, sum(cents) over {before} as sum, count(*) over {before} as rows,
                coalesce(max(line) filter (where not rejected) over (), 0) as last
            from ({amounts})
        ) where rows > 1 and cents = sum and line > last order by line
    """


def _last(folder: Path) -> str:
    """Return the query for line and amount of the last accepted row."""
    return f"select max(line), arg_max(amount_cents, line) from read_parquet('{_quoted(folder)}/accepted.parquet')"


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def total_said(found: ValidationResult) -> str | None:
    """Return the sentence that names rows which look like a total; None if there are none."""
    noticed = [notice for notice in found.noticed if notice.rule == LOOKS_LIKE_TOTAL]
    if taken := [notice.line for notice in noticed if notice.message == TAKEN]:
        return f"line {taken[0]}: {TAKEN}; if it is none, chartferry undo takes it back, and [trailer] is for the next"
    lines = [notice.line for notice in noticed]
    if not lines:
        return None
    named = ", ".join(f"line {line}" for line in lines[:NAMED])
    more = f" and {len(lines) - NAMED:,} more" if len(lines) > NAMED else ""
    return (
        f"{named}{more}: a rejected row looks like a total, since its amount is the sum of the rows before it, and is"
        f" counted as received; {DO}"
    )

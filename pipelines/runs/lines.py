"""Show sums and rows as lines of text, for commands."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

SHOWN_NEXT = "the tables and the report page show it after the next import, or after chartferry reports"
"""The message of a command that changes the content of the tables and does not publish them."""
IN_DOUBT_NEXT = "chartferry doubts resolve looks again, and says what to do"


def dollars(cents: int) -> str:
    """Return cents as dollars, exactly."""
    return f"{'-' if cents < 0 else ''}{abs(cents) // 100:,}.{abs(cents) % 100:02}"


def aligned(rows: Sequence[Sequence[str]], texts: int = 2) -> Iterable[str]:
    """Yield rows as lines of columns: texts to the left, numbers to the right.

    texts: the number of text columns, which come first.
    """
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = [c.ljust(w) if at < texts else c.rjust(w) for at, (c, w) in enumerate(zip(row, widths, strict=True))]
        yield "  ".join(cells).rstrip()


def first_of(lines: Iterable[str], most: int, total: int, others: str) -> Iterator[str]:
    """Yield the first lines, and a line with the number of further ones, if any."""
    yield from islice(lines, most)
    if total > most:
        yield f"and {total - most:,} more {others}"


def undo_left(batch_id: str, records: int) -> str:
    """Return the sentence about an undo that was not finished."""
    return (
        f"{batch_id}: it is not known whether an undo took {records:,} of its records back; chartferry undo {batch_id}"
        " goes on with it"
    )

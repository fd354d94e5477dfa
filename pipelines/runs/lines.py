"""Sums and rows as lines of text: how commands show them."""

from collections.abc import Iterable, Sequence


def dollars(cents: int) -> str:
    """Cents as dollars, exactly."""
    return f"{'-' if cents < 0 else ''}{abs(cents) // 100:,}.{abs(cents) % 100:02}"


def aligned(rows: Sequence[Sequence[str]], texts: int = 2) -> Iterable[str]:
    """Rows as lines of columns: the first ones to the left, numbers to the right.

    texts: how many columns are texts.
    """
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = [c.ljust(w) if at < texts else c.rjust(w) for at, (c, w) in enumerate(zip(row, widths, strict=True))]
        yield "  ".join(cells).rstrip()

"""Words by which rows begin that are no records: totals, and what stands below a table."""

import re
from collections.abc import Sequence

TOTALS = (
    *("total", "totals", "grand total", "subtotal", "sub-total", "sum", "summe", "gesamt", "gesamtsumme"),
    *("zwischensumme", "record count", "records:", "rows:", "count:", "anzahl"),
)
FOOTS = ("end of", "end of report", "page ", "seite ", "report ", "printed ", "generated ", "***", "---", "===")
"""Beginnings of rows that are no records: totals, and what stands below a table."""


def total_word(text: str) -> str:
    """The word by which a text begins as that of a total, or of what stands below a table; empty for none."""
    found = [word for word in (*TOTALS, *FOOTS) if re.match(re.escape(word) + r"(?:\W|\Z|(?<=\W))", text.lower())]
    return text[: len(max(found, key=len))].strip() if found else ""


def is_title(cells: Sequence[str]) -> bool:
    """True if a row has one text alone that is no total, and not what stands below a table."""
    texts = [cell for cell in cells if cell.strip()]
    return len(texts) == 1 and not total_word(texts[0].strip())

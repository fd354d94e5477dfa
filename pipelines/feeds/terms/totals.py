"""Words at the beginning of rows that are no records: totals, and lines below a table."""

import re
from collections.abc import Sequence

TOTALS = (
    *("total", "totals", "grand total", "subtotal", "sub-total", "sum", "summe", "gesamt", "gesamtsumme"),
    *("zwischensumme", "record count", "records:", "rows:", "count:", "anzahl"),
)
FOOTS = ("end of", "end of report", "page ", "seite ", "report ", "printed ", "generated ", "***", "---", "===")
"""Beginnings of rows that are no records: totals, and lines below a table."""


def total_word(text: str) -> str:
    """Return the word of a total, or of a line below a table, with which a text begins; empty for none."""
    found = [word for word in (*TOTALS, *FOOTS) if re.match(re.escape(word) + r"(?:\W|\Z|(?<=\W))", text.lower())]
    return text[: len(max(found, key=len))].strip() if found else ""


_FOOT = (
    r"page\W{0,3}\d{1,9}|seite\W{0,3}\d{1,9}|(?:end of|ende de[rs]) (?:the )?\w{1,40}"
    r"|(?:report )?(?:generated|printed)|report (?:end|date)|gedruckt|erstellt|fortsetzung"
    r"|continued(?: on (?:the )?next page| from (?:the )?previous page)?"
)
_SMALL = (
    r"of|von|on|at|am|pm|um|uhr|utc|gmt|by\W{1,3}\w{1,40}|t|z"
    r"|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}|(?:mon|tues?|wednes|thurs?|fri|satur|sun)(?:day)?"
)
_BEGINS = re.compile(rf"(?:{_FOOT})(?![^\W\d_])")
_GOES_ON = re.compile(rf"[\W\d_]*(?:{_FOOT}|{_SMALL})(?![^\W\d_])")
"""The phrases that make up a page footer, such as `Page 2 of 3, printed 1 May 2024`; any other text is a title."""


def is_aside(cells: Sequence[str], usual: int) -> bool:
    """True if a row is mostly empty. usual: the number of cells that a record fills."""
    return 0 < filled_cells(cells) * 2 <= usual


def filled_cells(cells: Sequence[str]) -> int:
    """Return the number of cells with text."""
    return sum(1 for cell in cells if cell.strip())


def is_title(cells: Sequence[str]) -> bool:
    """True if a row's texts have letters, and are neither a total nor a page footer. Not meant for records."""
    text = " ".join(cell.strip() for cell in cells if cell.strip()).lower()
    text = text[next((place for place, sign in enumerate(text) if sign.isalnum()), len(text)) :]
    return not _is_total(text) and has_letters(_without_foot(text))


def _is_total(text: str) -> bool:
    """True if a text is a word for a total alone, or with a number: `Total refunds` may be a title."""
    found = max((word for word in TOTALS if re.match(rf"{re.escape(word)}(?!\w)", text)), key=len, default="")
    return bool(found) and (any(map(str.isdigit, text)) or not has_letters(text[len(found) :]))


def _without_foot(text: str) -> str:
    """Return a text without the footer phrases with which it begins."""
    found, place = _BEGINS.match(text), 0
    while found:
        place = found.end()
        found = _GOES_ON.match(text, place)
    return text[place:]


def has_letters(text: str) -> bool:
    """True if a text has a letter of any script."""
    return any(map(str.isalpha, text))

"""Numbers with what they count, and lists of names, as sentences have them."""

from collections.abc import Sequence
from decimal import Decimal


def counted(number: int, one: str, others: str | None = None) -> str:
    """Return a number with the words behind it, such as `1 row is` or `1,200 rows are`; see `word_for`."""
    return f"{number:,} {word_for(number, one, others)}"


def word_for(number: float | Decimal, one: str, others: str | None = None) -> str:
    """Return the words for a number. others: those for numbers but 1; `one` with an s where there are none."""
    return one if number == 1 else others or f"{one}s"


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names with commas, and how many more there are, if any."""
    more = [f"and {len(names) - most:,} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more])

"""Numbers with the words for what they count, and lists of names, for sentences."""

from collections.abc import Sequence
from decimal import Decimal


def counted(number: int, one: str, others: str | None = None) -> str:
    """Return a number with the words after it, such as `1 row is` or `1,200 rows are`; see `word_for`."""
    return f"{number:,} {word_for(number, one, others)}"


def word_for(number: float | Decimal, one: str, others: str | None = None) -> str:
    """Return the words for a number. others: for all numbers but 1; by default `one` with an s."""
    return one if number == 1 else others or f"{one}s"


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names with commas, and the number of further ones, if any."""
    more = [f"and {len(names) - most:,} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more])

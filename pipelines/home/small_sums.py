"""Which sums may leave the places of patient data: a sum of few records tells what a person paid."""

from collections.abc import Iterable

FEWEST = 5
"""The fewest records whose sum a log, an event, a cursor, a plot or an alert may hold."""


def may_be_told(records: int, others: Iterable[int] = ()) -> bool:
    """True if the sum of so many records tells of nobody, nor does what it differs by from sums of `others` of them."""
    apart = (abs(records - other) for other in others)
    return records >= FEWEST and all(number == 0 or number >= FEWEST for number in apart)

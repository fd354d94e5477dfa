"""Decide which sums may leave the places of patient data: a sum of few records reveals what a person paid."""

from collections.abc import Iterable

FEWEST = 5
"""The fewest records whose sum a log, an event, a cursor, a plot or an alert may contain."""


def may_be_told(records: int, others: Iterable[int] = ()) -> bool:
    """True if a sum of so many records reveals nothing about a person.

    others: numbers of records in other sums that may leave. The difference from each must reveal nothing, too.
    """
    apart = (abs(records - other) for other in others)
    return records >= FEWEST and all(number == 0 or number >= FEWEST for number in apart)

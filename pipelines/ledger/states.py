"""The states of a row, and the sets of them that are asked for. A state means the same wherever it is read."""

from collections.abc import Iterable
from typing import Literal, get_args

RowState = Literal[
    "planned",
    "sending",
    "created",
    "adopted",
    "unchanged",
    "updated",
    "superseded",
    "skipped",
    "refused",
    "in_doubt",
    "undone",
]
ROW_STATES: tuple[RowState, ...] = get_args(RowState)

ASKED: tuple[RowState, ...] = ("sending", "in_doubt")
"""The record was sent, and its outcome is unknown."""
UNDECIDED: tuple[RowState, ...] = ("planned", *ASKED)
"""It is open what becomes of it."""
NOT_THERE: tuple[RowState, ...] = ("planned", "refused")
"""Surely nothing of it is at the target."""
MADE: tuple[RowState, ...] = ("created", "adopted", "updated", "superseded")
"""It made or changed the resource that stands for it."""
LANDED: tuple[RowState, ...] = (*MADE, "unchanged", "skipped")
"""Nothing more is to be done with it: the target has its record."""
OUTCOMES: tuple[RowState, ...] = tuple(each for each in ROW_STATES if each not in ("planned", "sending", "undone"))
"""The outcomes that a batch and a run count."""

NOT_LOADED = ("stopped", "failed")
"""States of a batch of which nothing was sent."""
CUT_OFF = "cut off"
"""State of a run that did not come to its end: it was killed, or this program failed."""


def in_sql(states: Iterable[str]) -> str:
    """Return states as a query lists them."""
    return ", ".join(f"'{state}'" for state in states)

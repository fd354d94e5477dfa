"""The states of a row, and the sets of states that code asks for. A state means the same everywhere."""

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
"""States of a record that was sent and whose outcome is unknown."""
UNDECIDED: tuple[RowState, ...] = ("planned", *ASKED)
"""States of a record whose outcome is open."""
NOT_THERE: tuple[RowState, ...] = ("planned", "refused")
"""States of a record of which surely nothing is at the target."""
MADE: tuple[RowState, ...] = ("created", "adopted", "updated", "superseded")
"""States of a record that made or changed its resource."""
NOT_MADE: tuple[RowState, ...] = (*UNDECIDED, "refused")
"""States of a record that has not come to the target. If it was there before, its last earlier version still counts."""
LANDED: tuple[RowState, ...] = (*MADE, "unchanged", "skipped")
"""States of a record that is done: the target has it."""
OUTCOMES: tuple[RowState, ...] = tuple(each for each in ROW_STATES if each not in ("planned", "sending", "undone"))
"""The outcomes that a batch and a run count."""

NOT_LOADED = ("stopped", "failed")
"""States of a batch that ended without sending anything."""
CUT_OFF = "cut off"
"""The state of a run that did not come to its end: it was killed, or this program failed."""


def in_sql(states: Iterable[str]) -> str:
    """Return states as a list for SQL."""
    return ", ".join(f"'{state}'" for state in states)

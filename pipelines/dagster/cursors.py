"""Reads what a sensor wrote down for its next look. Dagster's pages let anybody write something else there."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

Read = TypeVar("Read")


def understood(cursor: str | None, read: Callable[[Any], Read], otherwise: Read) -> Read:
    """Return what `read` makes of a cursor's JSON; `otherwise` for an empty cursor, and for one of another form."""
    try:
        return read(json.loads(cursor)) if cursor else otherwise
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
        return otherwise

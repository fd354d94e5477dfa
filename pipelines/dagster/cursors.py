"""Reads sensor cursors safely: anyone can edit a cursor on Dagster's pages, so its form is never trusted."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

Read = TypeVar("Read")


def understood(cursor: str | None, read: Callable[[Any], Read], otherwise: Read) -> Read:
    """Return `read` of the cursor's JSON, or `otherwise` if the cursor is empty or has another form."""
    try:
        return read(json.loads(cursor)) if cursor else otherwise
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
        return otherwise

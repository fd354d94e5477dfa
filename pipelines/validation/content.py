"""Mapped content as text: JSON that keeps a decimal's digits, and the hash over it."""

import hashlib
from decimal import Decimal
from typing import Any

import orjson


def dump(found: Any) -> str:
    return to_json(found).decode()


def to_json(found: Any) -> bytes:
    """Raises TypeError for what has no JSON, such as half a character."""
    return orjson.dumps(found, default=_number)


def _number(value: object) -> orjson.Fragment:
    """A decimal as JSON, digit for digit."""
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    raise TypeError


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

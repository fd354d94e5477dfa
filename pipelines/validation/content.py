"""Mapped content as text: JSON that keeps a decimal's digits, and the hash of it."""

import hashlib
from decimal import Decimal
from typing import Any

import orjson

from fhir_service.interface.json_text import dump_json


def dump(found: Any) -> str:
    """Return a value as JSON. Raises TypeError if it has no JSON form, such as half a character."""
    return dump_json(found).decode()


def canonical(found: Any) -> str:
    """Return one text for equal content, whatever the order of its elements and the form of its numbers."""
    return orjson.dumps(found, default=_value, option=orjson.OPT_SORT_KEYS).decode()


def _value(number: object) -> orjson.Fragment:
    """Return a decimal by its value, so that 1, 1.0 and 1.00 are equal. No digit is rounded."""
    if not isinstance(number, Decimal):
        raise TypeError
    sign, digits, exponent = number.as_tuple()
    said = "".join(map(str, digits))
    shortest = said.strip("0") or "0"
    power = int(exponent) + len(said) - len(said.rstrip("0")) if number else 0
    return orjson.Fragment(f"{'-' if sign and number else ''}{shortest}E{power}")


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

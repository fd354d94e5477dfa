"""Read and write the JSON of bodies: keep every digit of a number, refuse repeated keys and deep nesting."""

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

import orjson


class Malformed(ValueError):
    """A text that is not JSON as the interface accepts it. The message names the fault, never a value."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("an object repeats a key")
    return found


def _refuse_constant(_: str) -> NoReturn:
    raise Malformed("NaN and infinities are not JSON")


def is_readable(number: Decimal) -> bool:
    """True if a number is within the range of a double, as which other programs read it."""
    return abs(number.adjusted()) <= LARGEST_EXPONENT


def _bounded(text: str) -> Decimal:
    if not is_readable(value := Decimal(text)):
        raise Malformed(NOT_READABLE)
    return value


NOT_READABLE = "the number is larger or smaller than other programs can read"


LARGEST_EXPONENT = 307
_LONG_NUMBER = re.compile(r"(?:\A|[\s:,\[])-?\d(?:[\d.]{300}|[\d.]*[eE][+-]?\d{3})")
"""Matches numbers that may exceed a double. Ids with an `e` between digits follow other characters."""
_NUMBERS: dict[str, Any] = {"parse_float": Decimal, "parse_int": Decimal, "parse_constant": _refuse_constant}
_BOUNDED = _NUMBERS | {"parse_float": _bounded, "parse_int": _bounded}
_QUICK = json.JSONDecoder(**_NUMBERS)
_CAREFUL = json.JSONDecoder(**_NUMBERS, object_pairs_hook=_object)
_SUSPICIOUS = json.JSONDecoder(**_BOUNDED, object_pairs_hook=_object)

DEEPEST = 100
"""The most levels of nesting in a body: far more than any form has, and few enough for recursive functions."""


def parse_json(raw: bytes | str) -> Any:
    """Return the value of a JSON text, with every number a Decimal.

    Raises Malformed, also for a repeated key, NaN, deep nesting and bad UTF-8.
    """
    return _parsed(raw, None)


def object_in(raw: bytes | str) -> dict[str, Any] | None:
    """Return the JSON object of a text; None if the text is not one."""
    try:
        found = parse_json(raw)
    except (Malformed, ArithmeticError):
        return None
    return found if isinstance(found, dict) else None


def parse_bounded(raw: bytes | str) -> Any:
    """Parse a text whose numbers are stored as they are. Raises Malformed for a number that exceeds a double, too."""
    return _parsed(raw, _LONG_NUMBER)


def _parsed(raw: bytes | str, long_number: re.Pattern[str] | None) -> Any:
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8")
        suspicious = long_number is not None and long_number.search(text) is not None
        found = None if suspicious else _quickly(text)
        value = (_SUSPICIOUS if suspicious else _CAREFUL).decode(text) if found is None else found
    except UnicodeDecodeError:
        raise Malformed("the text is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Malformed(f"the text is not JSON (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise Malformed("the text is nested too deeply") from None
    except InvalidOperation:
        raise Malformed("a number is too large, too small, or has too many digits") from None
    if found is None and _too_deep(value):
        raise Malformed("the text is nested too deeply")
    return value


_WRITTEN_LEVELS = 254
"""The most levels that orjson writes."""


def _quickly(text: str) -> Any | None:
    """Return the value of a text without repeated keys and deep nesting; None if that takes a careful look.

    The trick is to write the value again and to count quotation marks: after a repeated key, marks are missing. (A mark
    that is escaped as `\\u0022` would spoil the count.) Lists around the value make orjson fail if it is too deep.
    Numbers are written as booleans, which have no marks.
    """
    try:
        value = _QUICK.decode(text)
        wrapped = value
        for _ in range(_WRITTEN_LEVELS - DEEPEST):
            wrapped = [wrapped]
        marks = orjson.dumps(wrapped, default=bool).count(b'"')
    except (ValueError, TypeError, RecursionError, InvalidOperation):
        return None
    return value if marks == text.count('"') and "\\u0022" not in text else None


def _too_deep(value: Any) -> bool:
    level: list[Any] = [[value]]
    for _ in range(DEEPEST + 1):
        level = [
            part
            for parent in level
            for part in (parent.values() if type(parent) is dict else parent)
            if type(part) is dict or type(part) is list
        ]
        if not level:
            return False
    return True


def plain_number(number: Decimal) -> str:
    """Return a decimal as JSON, with all its digits."""
    return str(number)


def _raw_decimal(value: object) -> orjson.Fragment:
    if isinstance(value, Decimal):
        return orjson.Fragment(plain_number(value))
    raise TypeError


def dump_json(value: Any, pretty: bool = False) -> bytes:
    """Return the JSON text of a body, with all digits of decimals. pretty: with line breaks, for people."""
    return orjson.dumps(value, default=_raw_decimal, option=orjson.OPT_INDENT_2 if pretty else None)

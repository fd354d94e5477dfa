"""The JSON of bodies: numbers digit for digit, no repeated key, no deep nesting."""

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

import orjson


class Malformed(ValueError):
    """A body that is no JSON as the interface takes it. The message names the fault, never a value."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("an object repeats a key")
    return found


def _refuse_constant(_: str) -> NoReturn:
    raise Malformed("NaN and infinities are not JSON")


def is_readable(number: Decimal) -> bool:
    """True for a number that a double can be, which is what other programs read it as."""
    return abs(number.adjusted()) <= LARGEST_EXPONENT


def _bounded(text: str) -> Decimal:
    if not is_readable(value := Decimal(text)):
        raise Malformed(NOT_READABLE)
    return value


NOT_READABLE = "the number is larger or smaller than other programs can read"


LARGEST_EXPONENT = 307
_LONG_NUMBER = re.compile(r"(?:\A|[\s:,\[])-?\d(?:[\d.]{300}|[\d.]*[eE][+-]?\d{3})")
"""Places of numbers that may exceed a double. Ids with an `e` between digits come after other characters."""
_NUMBERS: dict[str, Any] = {"parse_float": Decimal, "parse_int": Decimal, "parse_constant": _refuse_constant}
_BOUNDED = _NUMBERS | {"parse_float": _bounded, "parse_int": _bounded}
_QUICK = json.JSONDecoder(**_NUMBERS)
_CAREFUL = json.JSONDecoder(**_NUMBERS, object_pairs_hook=_object)
_SUSPICIOUS = json.JSONDecoder(**_BOUNDED, object_pairs_hook=_object)

DEEPEST = 100
"""Levels of nesting in a body: far more than any form has, far fewer than what walks over bodies can bear."""


def parse_json(raw: bytes | str) -> Any:
    """The value of a JSON text, every number a Decimal. Refuses duplicate keys, NaN, deep nesting and bad UTF-8."""
    return _parsed(raw, None)


def object_in(raw: bytes | str) -> dict[str, Any] | None:
    """Return the object that a JSON text is; None of any other text."""
    try:
        found = parse_json(raw)
    except (Malformed, ArithmeticError):
        return None
    return found if isinstance(found, dict) else None


def parse_bounded(raw: bytes | str) -> Any:
    """Parse a text whose numbers are stored as they are. Refuses those that exceed a double, too."""
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
        raise Malformed("a number is beyond what can be computed with") from None
    if found is None and _too_deep(value):
        raise Malformed("the text is nested too deeply")
    return value


_WRITTEN_LEVELS = 254
"""Levels that orjson writes, and not one more."""


def _quickly(text: str) -> Any | None:
    """The value of a text that surely repeats no key and is not too deep; None where a careful look is needed.

    The value is written again, with as many levels around it as leave it those that it may have. A repeated key would
    miss its quotation marks then, of which there are as many as in the text, unless one was escaped by its number.
    Numbers are written as booleans, so that none needs a mark.
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
    """A decimal as JSON writes it, digit for digit."""
    return str(number)


def _raw_decimal(value: object) -> orjson.Fragment:
    if isinstance(value, Decimal):
        return orjson.Fragment(plain_number(value))
    raise TypeError


def dump_json(value: Any, pretty: bool = False) -> bytes:
    """JSON text of a body, decimals digit for digit. pretty: in lines, for people."""
    return orjson.dumps(value, default=_raw_decimal, option=orjson.OPT_INDENT_2 if pretty else None)

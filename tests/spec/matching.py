"""Whole bodies compared with what a case expects, with placeholders where a value cannot be known beforehand.

In the text of an expected value: `{now}` a time within the last minutes, `{uuid}` an id of the service's making,
`{url}` an absolute address, `{any}` one or more characters, `{rest}` none or more, `{digits}1.50` a number in exactly
these digits; any other `{name}` is a word the caller gives. Numbers are compared by value, all else by equality.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_PATTERNS = {"uuid": UUID, "url": r"https?://[^\s/]+(?:/\S*)?", "any": r"(?:.|\n)+", "rest": r"(?:.|\n)*"}
_NOW = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?\+00:00\Z")


def differences(expected: Any, actual: Any, words: dict[str, str], path: str = "$") -> list[str]:
    """Return a line for each place where the actual value differs from the expected one."""
    match expected:
        case dict():
            return _objects(expected, actual, words, path)
        case list():
            return _arrays(expected, actual, words, path)
        case str() if expected.startswith("{digits}"):
            same = isinstance(actual, Decimal) and str(actual) == expected.removeprefix("{digits}")
        case str():
            same = isinstance(actual, str) and _texts(expected, actual, words)
        case bool() | None:
            same = actual is expected
        case _:
            same = isinstance(actual, int | Decimal) and not isinstance(actual, bool) and actual == expected
    return [] if same else [f"{path}: expected {expected!r}, got {actual!r}"]


def _objects(expected: dict[str, Any], actual: Any, words: dict[str, str], path: str) -> list[str]:
    if not isinstance(actual, dict):
        return [f"{path}: expected an object, got {actual!r}"]
    found = [f"{path}.{name}: missing" for name in expected if name not in actual]
    found += [f"{path}.{name}: unexpected {actual[name]!r}" for name in actual if name not in expected]
    for name, value in expected.items():
        if name in actual:
            found += differences(value, actual[name], words, f"{path}.{name}")
    return found


def _arrays(expected: list[Any], actual: Any, words: dict[str, str], path: str) -> list[str]:
    if not isinstance(actual, list) or len(actual) != len(expected):
        return [f"{path}: expected {len(expected)} elements, got {actual!r}"]
    return [
        line
        for index, (value, given) in enumerate(zip(expected, actual, strict=True))
        for line in differences(value, given, words, f"{path}[{index}]")
    ]


def _texts(expected: str, actual: str, words: dict[str, str]) -> bool:
    if expected == "{now}":
        return is_now(actual)
    parts = re.split(r"\{(\w+)\}", expected)
    pattern = "".join(_placeholder(part, words) if index % 2 else re.escape(part) for index, part in enumerate(parts))
    return re.fullmatch(pattern, actual) is not None


def _placeholder(name: str, words: dict[str, str]) -> str:
    if name in words:
        return re.escape(words[name])
    return _PATTERNS.get(name, re.escape(f"{{{name}}}"))


def is_now(text: str) -> bool:
    """True if a text is a UTC datetime of the last ten minutes."""
    if not _NOW.match(text):
        return False
    return timedelta(seconds=-5) < datetime.now(UTC) - datetime.fromisoformat(text) < timedelta(minutes=10)

"""Mistakes in the shape of a feed file, in the words of its writer: key, expected value, line."""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from pipelines.feeds.terms.schema import Expect, FeedFile, Join, Query
from pipelines.feeds.terms.values import Comment, Crosswalk, Test, Trailer, Value

_MODELS: dict[str, type[BaseModel]] = {
    "crosswalk": Crosswalk,
    "trailer": Trailer,
    "comments": Comment,
    "query": Query,
    "join": Join,
    "expect": Expect,
}
_WORDS = {
    "missing": "required, but missing",
    "string_type": "must be a text in quotes",
    "string_too_short": "must not be empty",
    "bool_type": "must be true or false, without quotes",
    "bool_parsing": "must be true or false, without quotes",
    "int_type": "must be a whole number, without quotes",
    "tuple_type": "must be a list in brackets",
    "dict_type": "must be a table: { ... }",
    "model_type": "must be a table: { ... }",
    "too_short": "must have at least one entry",
    "too_long": "has too many entries",
}
_NAME_OF_A_TABLE = "[key]"
_NAMED = "must have 1 to 64 letters, digits, '.', '-' and '_', and begin with a letter or a digit"
_FORMS = {
    "name": _NAMED,
    "source": _NAMED,
    _NAME_OF_A_TABLE: "must have 1 to 40 letters, digits, '-' and '_'",
    "delimiter": "must be one character in quotes",
    "quote": "must be one character in quotes, or empty quotes",
    "escape": "must be one character in quotes, or empty quotes",
    "by": 'must be a time of day in quotes, such as "08:30"',
    "database": "must be the name of an environment variable, such as TILL_URL",
}
"""Keys whose value is a text of a certain form: one message for each mistake in it."""
_EITHER = {"max_rejects": "must be a number", "sheet": "must be a sheet's name or its position (1 is the first)"}
"""Keys whose value is of one of two types: one message that replaces the mistakes for each type."""


def mistakes(error: ValidationError, text: str) -> Iterator[str]:
    """Yield a line for each mistake, perhaps several times. text: the text of the feed file."""
    for found in error.errors(include_url=False, include_context=False, include_input=False):
        path = [part for part in found["loc"] if not (isinstance(part, str) and part.startswith("function-"))]
        message = _message(found, path)
        if len(path) > 1 and path[0] in _EITHER:
            path, message = path[:1], _EITHER[str(path[0])]
        path = [part for part in path if part != _NAME_OF_A_TABLE]
        place = ".".join(str(part) for part in path) or "the file"
        yield f"{place}: {message}{at_line(text, path or message.partition(':')[0].split('.'))}"


def at_line(text: str, path: Sequence[object]) -> str:
    line = line_of(text, path)
    return f" (line {line})" if line else ""


def _message(found: Any, path: Sequence[object]) -> str:
    if found["type"] == "extra_forbidden":
        near = get_close_matches(str(path[-1]), _keys(path), n=1, cutoff=0.7)
        return (
            f"unknown key; did you mean {near[0]}?" if near else f"unknown key; possible here: {', '.join(_keys(path))}"
        )
    if path[-1:] == ["each"] and found["type"] == "dict_type":
        return 'must be a table with a path within the object for each part: { text = "body" }'
    if found["type"].startswith("string_") and path[-1] in _FORMS:
        return _FORMS[str(path[-1])]
    said = str(found["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    return _WORDS.get(found["type"]) or said


def _keys(path: Sequence[object]) -> list[str]:
    """Return the keys that are allowed where a path ends."""
    model: type[BaseModel] = Value
    if len(path) == 1:
        model = FeedFile
    elif path[0] in ("take", "skip") or {"when", "where"} & set(path[:-1]):
        model = Test
    else:
        model = next(
            (_MODELS[part] for part in reversed(path[:-1]) if isinstance(part, str) and part in _MODELS), Value
        )
    return [field.alias or name for name, field in model.model_fields.items() if name != "steps"]


# -- lines: TOML's reader gives no lines, and an error with its line is corrected sooner

_NAME = r"""(?:[A-Za-z0-9_\-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_NAMES = rf"({_NAME}(?:\s*+\.\s*+{_NAME})*+)"
_PART = re.compile(_NAME)
_TABLE = re.compile(rf"\s*+(\[\[?+)\s*+{_NAMES}\s*+\]\]?\s*+(?:#.*)?$")
_KEY = re.compile(rf"\s*+{_NAMES}\s*+=")


def line_of(text: str, path: Sequence[object]) -> int | None:
    """Return the line of the key that a path leads to, or of its nearest parent in the text."""
    wanted = [str(part) for part in path]
    best, found = 0, None
    for line, key in _written(text):
        if key == wanted[: len(key)] and len(key) > best:
            best, found = len(key), line
    return found


def _written(text: str) -> list[tuple[int, list[str]]]:
    """Return tables and keys with their lines. An entry of an array of tables has its number after its name."""
    found: list[tuple[int, list[str]]] = []
    numbers: dict[str, int] = {}
    table: list[str] = []
    for line, content in enumerate(text.splitlines(), 1):
        if head := _TABLE.match(content):
            table = _parts(head[2])
            if head[1] == "[[":
                numbers[head[2]] = numbers.get(head[2], -1) + 1
                table.append(str(numbers[head[2]]))
            found.append((line, table))
        elif key := _KEY.match(content):
            found.append((line, table + _parts(key[1])))
    return found


def _parts(text: str) -> list[str]:
    return [part[1:-1] if part[0] in "\"'" else part for part in _PART.findall(text)]

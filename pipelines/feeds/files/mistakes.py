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
    "missing": "required, and not there",
    "string_type": "a text is expected",
    "string_too_short": "a text is expected",
    "bool_type": "true or false is expected",
    "bool_parsing": "true or false is expected",
    "int_type": "a whole number is expected",
    "tuple_type": "a list is expected",
    "dict_type": "a table is expected",
    "model_type": "a table is expected",
    "too_short": "at least one is expected",
}
_EITHER = {
    "max_rejects": "a number is expected",
    "sheet": "a sheet's name, or its place (1 is the first), is expected",
}
"""Keys whose value is of one of two types: one message that replaces the mistakes for each type."""


def mistakes(error: ValidationError, text: str) -> Iterator[str]:
    """Yield a line for each mistake, without repeats. text: the text of the feed file."""
    yield from dict.fromkeys(_mistakes(error, text))


def _mistakes(error: ValidationError, text: str) -> Iterator[str]:
    for found in error.errors(include_url=False, include_context=False, include_input=False):
        path = [part for part in found["loc"] if not (isinstance(part, str) and part.startswith("function-"))]
        message = _message(found, path)
        if len(path) > 1 and path[0] in _EITHER:
            path, message = path[:1], _EITHER[str(path[0])]
        place = ".".join(str(part) for part in path) or "the file"
        yield f"{place}: {message}{at_line(text, path or message.partition(':')[0].split('.'))}"


def at_line(text: str, path: Sequence[object]) -> str:
    line = line_of(text, path)
    return f" (line {line})" if line else ""


def _message(found: Any, path: Sequence[object]) -> str:
    if found["type"] == "extra_forbidden":
        near = get_close_matches(str(path[-1]), _keys(path), n=1, cutoff=0.7)
        return f"no such key; did you mean {near[0]}?" if near else f"no such key here ({', '.join(_keys(path))})"
    if path[-1:] == ["each"] and found["type"] == "dict_type":
        return 'a table of parts is expected, each by its path in the object: { text = "body" }'
    return _WORDS.get(found["type"]) or str(found["msg"]).removeprefix("Value error, ")


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

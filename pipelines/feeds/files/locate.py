"""Find the line of a key in a TOML text. TOML's reader gives no lines, and an error that names one is mended sooner."""

import re
from collections.abc import Sequence

_NAME = r"""(?:[A-Za-z0-9_\-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_NAMES = rf"({_NAME}(?:\s*+\.\s*+{_NAME})*+)"
_PART = re.compile(_NAME)
_TABLE = re.compile(rf"\s*+(\[\[?+)\s*+{_NAMES}\s*+\]\]?\s*+(?:#.*)?$")
_KEY = re.compile(rf"\s*+{_NAMES}\s*+=")


def line_of(text: str, path: Sequence[object]) -> int | None:
    """The line of the key that a path leads to, or of the nearest one above it that is written down."""
    wanted = [str(part) for part in path]
    best, found = 0, None
    for line, key in _keys(text):
        if key == wanted[: len(key)] and len(key) > best:
            best, found = len(key), line
    return found


def _keys(text: str) -> list[tuple[int, list[str]]]:
    """Tables and keys with their lines. An entry of an array of tables has its number behind its name."""
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

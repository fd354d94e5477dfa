"""Paths into JSON objects: `requester.reference`, `code.coding[0].code`."""

import re
from functools import lru_cache
from typing import Any

_STEP = re.compile(r"([^.\[\]]+)((?:\[\d{1,4}\])*)\Z")

Path = tuple[str | int, ...]


class BadPath(ValueError):
    """A text is no path."""


@lru_cache(maxsize=1024)
def parse_path(text: str) -> Path:
    """Return the steps of a path: names, and numbers for places in an array. Raises BadPath."""
    steps: list[str | int] = []
    for part in text.split("."):
        match = _STEP.match(part)
        if not match:
            raise BadPath(f"{text} is not a path; write one such as requester.reference or code.coding[0].code")
        steps.append(match[1])
        steps.extend(int(number) for number in re.findall(r"\d+", match[2]))
    return tuple(steps)


def walk_path(found: Any, path: Path) -> Any:
    """Return the value at a path, or None. The rest of a path may be one name, as programs that flatten objects write
    it: `{"requester.reference": ...}`.
    """
    for place, step in enumerate(path):
        if isinstance(step, str):
            if not isinstance(found, dict):
                return None
            if step not in found:
                return found.get(".".join(map(str, path[place:])))
            found = found[step]
        elif isinstance(found, list) and step < len(found):
            found = found[step]
        else:
            return None
    return found

"""Readers of formats of dates: what is written just so is read by a pattern, all else as `strptime` reads it."""

import re
from collections.abc import Callable
from datetime import date, datetime

_FIGURES = {"Y": r"(\d{4})", **dict.fromkeys("mdHIMS", r"(\d\d)"), "p": "([AaPp])[Mm]"}
_PLACES = {"Y": 0, "m": 1, "d": 2, "H": 3, "I": 3, "M": 4, "S": 5}
_DIRECTIVE = re.compile(r"%(.)")
_CLOCK = ("%H", "%I", "%X", "%c")
"""The directives of a time of day."""


def reader_of_form(form: str) -> Callable[[str], date]:
    """The function that reads texts of a format; it raises ValueError for others."""
    has_clock = any(part in form for part in _CLOCK)
    plain = _plain_reader(form)

    def read(text: str) -> date:
        found = (plain(text) if plain else None) or datetime.strptime(text, form)  # noqa: DTZ007 - made aware later
        return found if has_clock else found.date()

    return read


def _plain_reader(form: str) -> Callable[[str], datetime | None] | None:
    """The reader of texts in which figures stand just as a format has them; None for a format with other parts.

    It gives None for any other text, which `strptime` may take.
    """
    parts = _DIRECTIVE.findall(form)
    needed = {"Y", "m", "d"} | ({"I", "p"} if "I" in parts or "p" in parts else set())
    if not needed <= {*parts} <= {*_FIGURES} or len({*parts}) < len(parts) or {"H", "I"} <= {*parts}:
        return None
    literals = _DIRECTIVE.split(form)[::2]
    match = re.compile(_pattern(literals, parts), re.ASCII).fullmatch
    places = [_PLACES.get(part, -1) for part in parts]

    def read(text: str) -> datetime | None:
        found = match(text)
        if found is None:
            return None
        values, half = [0, 0, 0, 0, 0, 0], ""
        for place, figures in zip(places, found.groups(), strict=True):
            if place < 0:
                half = figures
            else:
                values[place] = int(figures)
        if half:
            if not 1 <= values[3] <= 12:
                return None
            values[3] = values[3] % 12 + (12 if half in "Pp" else 0)
        try:
            return datetime(*values)  # type: ignore[arg-type]  # noqa: DTZ001 - made aware later
        except ValueError:
            return None

    return read


def _pattern(literals: list[str], parts: list[str]) -> str:
    """The pattern of a format. A figure that a sign parts from the next may have one digit."""
    found = re.escape(literals[0])
    for number, part in enumerate(parts):
        behind = literals[number + 1]
        is_parted = behind != "" or number + 1 == len(parts)
        before = literals[number] != "" or number == 0
        figures = _FIGURES[part]
        found += r"(\d\d?)" if figures == r"(\d\d)" and is_parted and before else figures
        found += re.escape(behind)
    return found

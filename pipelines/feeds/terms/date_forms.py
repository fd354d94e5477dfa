"""Readers of formats of dates: what is written just so is read by a pattern, all else as `strptime` reads it.

Where `strptime` has a choice, or passes over what contradicts it, there is no date: a shape of the format says so.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime

_FIGURES = {"Y": r"(\d{4})", **dict.fromkeys("mdHIMS", r"(\d\d)"), "p": "([AaPp])[Mm]"}
_PLACES = {"Y": 0, "m": 1, "d": 2, "H": 3, "I": 3, "M": 4, "S": 5}
_DIRECTIVE = re.compile(r"%(.)")
_BLANKS = re.compile(r"\s+")
_CLOCK = ("%H", "%I", "%X", "%c")
"""The directives of a time of day."""


def reader_of_form(form: str) -> Callable[[str], date]:
    """The function that reads texts of a format; it raises ValueError for others."""
    has_clock = any(part in form for part in _CLOCK)
    plain, shape = _plain_reader(form), _shape(form)

    def read(text: str) -> date:
        found = (plain(text) if plain else None) or _parsed(text, form, shape)
        return found if has_clock else found.date()

    return read


_OF_UTC = ("UTC", "GMT")
"""Names of zones that have one meaning everywhere. `strptime` takes them, and those of the machine, for no zone."""
_NOON = 12
_WITH_BLANKS = "cxXZ"
"""Directives of which a text may hold blanks. All others end at one, so that no number of blanks is tried twice."""
_WIDTHS = {"Y": r"\d{4}", "j": r"\d{3}", "f": r"(?:\d{3}|\d{6})", **dict.fromkeys("ymdHIMS", r"\d\d")}


def _parsed(text: str, form: str, shape: re.Pattern[str]) -> datetime:
    """Return the time that a text says by a format. Raises ValueError if it could be another."""
    seen, found = shape.fullmatch(text), None
    if seen is None:  # which is told sooner than by `strptime`
        raise ValueError
    for name in _OF_UTC if "%Z" in form else ():
        with suppress(ValueError):
            found = datetime.strptime(text, form.replace("%Z", name)).replace(tzinfo=UTC)
    if "%Z" not in form:
        found = datetime.strptime(text, form)  # noqa: DTZ007 - made aware later
    half = seen.groupdict().get("half")
    if found is None or (half and (half in "Pp") != (found.hour >= _NOON)):
        raise ValueError
    return found


def _shape(form: str) -> re.Pattern[str]:
    """The shape of a format's texts: figures that nothing parts have all their places, and which half of the day it is.

    Else `1112026` could be the first of November as well as the eleventh of January.
    """
    literals, parts = _DIRECTIVE.split(form)[::2], _DIRECTIVE.findall(form)
    shape = _literal(literals[0])
    for number, part in enumerate(parts):
        beside = [
            parts[at] for at in (number - 1, number + 1) if 0 <= at < len(parts) and not literals[max(at, number)]
        ]
        is_joined = part in _WIDTHS and any(other in _WIDTHS for other in beside)
        other = ".+?" if part in _WITH_BLANKS else r"\S+?"
        shape += "(?P<half>[AaPp])[Mm]" if part == "p" else _WIDTHS[part] if is_joined else other
        shape += _literal(literals[number + 1])
    return re.compile(shape, re.IGNORECASE | re.DOTALL)


def _literal(text: str) -> str:
    """A pattern for what stands between directives, as `strptime` takes it: any blanks for blanks."""
    return r"\s+".join(map(re.escape, _BLANKS.split(text)))


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

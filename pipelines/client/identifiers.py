"""The value of a record's identifier at a target, from its key and generation and back: no two records share one."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from pipelines.feeds.terms.texts import composed, folded

NOBODY = "urn:chartferry:nobody|nothing"
"""An identifier that no record has, as a search names it."""
IMPORTERS = "urn:chartferry:"
"""The beginning of the systems of identifiers that importers give."""
VALUES_A_SEARCH = 25
"""Values that one search asks for: longer addresses are refused by some servers."""
NUMBERED = re.compile(r"(?s)(.+)~([1-9][0-9]{0,8})")
SPECIAL = re.compile(r"([\\,|$])")
LOOKS_NUMBERED = re.compile(r"~[0-9]+\Z")


def identifier_value(key: str, generation: int) -> str:
    """The key, with `~2`, `~3`, ... behind it once an earlier generation has used the one before.

    A key that itself ends like that has `~1` behind it in its first generation.
    """
    return f"{key}~{generation}" if generation > 1 or LOOKS_NUMBERED.search(key) else key


def record_of(value: str) -> tuple[str, int]:
    """Key and generation of the record whose identifier has this value."""
    if found := NUMBERED.fullmatch(value):
        key, generation = found[1], int(found[2])
        if identifier_value(key, generation) == value:
            return key, generation
    return value, 1


def search_token(system: str, value: str) -> str:
    """The value of a search by identifier, as it stands in an address."""
    return "|".join(map(search_value, (system, value)))


def search_value(text: str) -> str:
    """A text as one value of a search, as it stands in an address."""
    return quote(SPECIAL.sub(r"\\\1", text), safe=":/|")


def specials_of(value: str) -> frozenset[str]:
    """The characters of a value that a search has to escape. Not every target undoes that."""
    return frozenset(SPECIAL.findall(value))


def is_written_otherwise(value: str, shown: Any) -> bool:
    """True if a target shows this value in other letters, blanks or accents: some keep identifiers in lower case."""
    return value != shown and _alike(value) == _alike(str(shown))


def _alike(value: str) -> str:
    return folded(composed(value)).casefold()


def values_of(system: str, body: Mapping[str, Any]) -> list[Any]:
    """The values of a resource's identifiers of a system."""
    return [each.get("value") for each in _of_system(system, body)]


def has_names_of(sent: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    """True if a resource has all identifiers by which importers name what was sent."""
    return all(each.get("value") in values_of(str(each["system"]), body) for each in _of_importers(sent))


def has_names_of_another(sent: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    """True if importers name a resource otherwise than what was sent: one without such a name may be of any row."""
    others = any(values_of(str(each["system"]), body) for each in _of_importers(sent))
    return others and not has_names_of(sent, body)


def identifier_of(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The identifier that an importer gave a resource, which need not be its only one; else its first."""
    return next(iter([*_of_importers(body), *identifiers_in(body)]), {})


def _of_importers(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in identifiers_in(body) if str(each.get("system")).startswith(IMPORTERS)]


def values_in_use(system: str, body: Mapping[str, Any], today: str) -> list[Any]:
    """The values of those that are neither `old` nor ended before a date (`YYYY-MM-DD`)."""
    shown = _of_system(system, body)
    return [each.get("value") for each in shown if each.get("use") != "old" and not _has_ended(each, today)]


def _of_system(system: str, body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in identifiers_in(body) if each.get("system") == system]


def identifiers_in(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The identifiers of a resource, one or a list of them, as far as they are objects."""
    there = body.get("identifier")
    return [each for each in (there if isinstance(there, list) else [there]) if isinstance(each, dict)]


def _has_ended(identifier: Mapping[str, Any], today: str) -> bool:
    """True if the period has ended. An end without a day or month lasts as long as that month or year."""
    period = identifier.get("period")
    end = str(period.get("end") or "") if isinstance(period, dict) else ""
    return "" < end[:10] < today[: len(end[:10])]

"""Convert a record's key and generation to its identifier's value at a target, and back. Each record has its own."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from pipelines.feeds.terms.texts import composed_text, folded_text

NOBODY = "urn:chartferry:nobody|nothing"
"""An identifier that no record has, in the form of a search."""
IMPORTERS = "urn:chartferry:"
"""The beginning of the systems of identifiers that importers give."""
VALUES_A_SEARCH = 25
"""The number of values that one search asks for: some servers refuse longer addresses."""
NUMBERED = re.compile(r"(?s)(.+)~([1-9][0-9]{0,8})")
SPECIAL = re.compile(r"([\\,|$])")
LOOKS_NUMBERED = re.compile(r"~[0-9]+\Z")


def identifier_value(key: str, generation: int) -> str:
    """Return the key, with `~2`, `~3`, ... appended in later generations.

    A key that itself ends so gets `~1` in its first generation.
    """
    return f"{key}~{generation}" if generation > 1 or LOOKS_NUMBERED.search(key) else key


def record_of(value: str) -> tuple[str, int]:
    """Return key and generation of the record whose identifier has this value."""
    if found := NUMBERED.fullmatch(value):
        key, generation = found[1], int(found[2])
        if identifier_value(key, generation) == value:
            return key, generation
    return value, 1


def search_token(system: str, value: str) -> str:
    """Return the value of a search by identifier, escaped for an address."""
    return "|".join(map(search_value, (system, value)))


def search_value(text: str) -> str:
    """Return a text as one value of a search, escaped for an address."""
    return quote(SPECIAL.sub(r"\\\1", text), safe=":/|")


def specials_of(value: str) -> frozenset[str]:
    """Return the characters of a value that a search must escape. Not every target unescapes them."""
    return frozenset(SPECIAL.findall(value))


def is_written_otherwise(value: str, shown: Any) -> bool:
    """True if a target shows this value with other case, blanks or accents: some store identifiers in lower case."""
    return value != shown and _alike(value) == _alike(str(shown))


def _alike(value: str) -> str:
    return folded_text(composed_text(value)).casefold()


def values_of(system: str, body: Mapping[str, Any]) -> list[Any]:
    """Return the values of a resource's identifiers of a system."""
    return [each.get("value") for each in _of_system(system, body)]


def has_names_of(sent: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    """True if a resource has all importers' identifiers of the body that was sent."""
    return all(each.get("value") in values_of(str(each["system"]), body) for each in _of_importers(sent))


def has_names_of_another(sent: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    """True if a resource has importers' identifiers of another record. One without any may belong to any row."""
    others = any(values_of(str(each["system"]), body) for each in _of_importers(sent))
    return others and not has_names_of(sent, body)


def is_named_alike(sent: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    """True if a resource has all identifiers by which importers name what was sent, some of them written otherwise."""
    return all(
        any(is_written_otherwise(str(each.get("value")), shown) for shown in values_of(str(each["system"]), body))
        for each in _of_importers(sent)
    )


def identifier_of(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the identifier that an importer gave a resource, else the resource's first one."""
    return next(iter([*_of_importers(body), *identifiers_in(body)]), {})


def _of_importers(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in identifiers_in(body) if str(each.get("system")).startswith(IMPORTERS)]


def values_in_use(system: str, body: Mapping[str, Any], today: str) -> list[Any]:
    """Return the values of a system's identifiers that are neither `old` nor ended before a date (`YYYY-MM-DD`)."""
    shown = _of_system(system, body)
    return [each.get("value") for each in shown if each.get("use") != "old" and not _has_ended(each, today)]


def _of_system(system: str, body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in identifiers_in(body) if each.get("system") == system]


def identifiers_in(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the identifiers of a resource, single or in a list, that are objects."""
    there = body.get("identifier")
    return [each for each in (there if isinstance(there, list) else [there]) if isinstance(each, dict)]


def _has_ended(identifier: Mapping[str, Any], today: str) -> bool:
    """True if an identifier's period has ended. An end without day or month means the end of that month or year."""
    period = identifier.get("period")
    end = str(period.get("end") or "") if isinstance(period, dict) else ""
    return "" < end[:10] < today[: len(end[:10])]

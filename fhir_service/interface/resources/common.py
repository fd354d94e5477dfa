"""Rules and parameters that several resources share."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from fhir_service.interface.datatypes import id_of
from fhir_service.interface.fast.forms import DrawnValues, Each, Text
from fhir_service.interface.outcomes import BUSINESS_RULE, INVALID
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Found, Param, Rule, World, rule

EXTENSION_VALUES = ("valueId", "valueReference", "valueString")


def records_exist(rule_id: str, named: Callable[[Any], Iterable[tuple[str, str]]]) -> Rule:
    """The rule that every record a body names is stored (decision T6). `named` gives `(expression, Type/id)`."""

    @rule(rule_id, BUSINESS_RULE, needs="state", given=False)
    def names_stored_records(body: Any, world: World) -> Found:
        """The records that a body names are known to the target."""
        exists = world.known.exists
        for expression, target in named(body):
            if not exists(target):
                yield expression, f"{target} is not known"

    return replace(names_stored_records, named=named)


def extensions_are_listed(resource: str, listed: Callable[[Site], dict[str, str]]) -> Rule:
    """The rule that an extension is one the interface lists, with its value, once (COMMON-45).

    `listed` gives each address with the element that must come with it.
    """

    @rule("COMMON-45", INVALID, given=False, of="extension")
    def lists_extensions(body: Any, site: Site) -> Found:
        """An extension is one that the interface lists for the resource, with its value, once."""
        if not body.extension:
            return
        values, seen = listed(site), set()
        for index, extension in enumerate(body.extension):
            at = f"{resource}.extension[{index}]"
            if extension.url not in values:
                yield f"{at}.url", "the extension is not known here"
            elif extension.url in seen:
                yield f"{at}.url", "the extension is sent twice"
            elif unused := _elements(extension) - {"url", values[extension.url]}:
                yield f"{at}.{min(unused)}", "the element is not known in this extension"
            elif getattr(extension, values[extension.url]) is None:
                yield f"{at}.{values[extension.url]}", "a required element is missing"
            seen.add(extension.url)

    return lists_extensions


def _elements(extension: Any) -> set[str]:
    """The names of what an extension holds."""
    return {name for name in ("url", *EXTENSION_VALUES) if getattr(extension, name, None) is not None}


def extension_value(body: Any, url: str, element: str) -> Any:
    """The value of the extension with this address, or None."""
    if body.extension is None:
        return None
    return next((getattr(e, element) for e in body.extension if e.url == url), None)


def reference_id(element: str) -> DrawnValues:
    """Draw the id of a stored resource's reference."""
    return DrawnValues(element, "reference", convert=id_of)


def codings(element: str) -> Callable[[dict[str, Any]], list[tuple[str | None, str | None]]]:
    """Draw the codings of a stored CodeableConcept, or of a list of them or of codings."""

    def draw(stored: dict[str, Any]) -> list[tuple[str | None, str | None]]:
        found = stored.get(element) or []
        concepts = found if isinstance(found, list) else [found]
        return [(c.get("system"), c.get("code")) for concept in concepts for c in concept.get("coding", [concept])]

    return draw


identifiers = DrawnValues("identifier[]", many=True, members=("system", "value"))
"""Draws the business identifiers of a stored resource."""
IDENTIFIERS = Each("identifier", {"system": Text("system"), "value": Text("value")})
"""The stored form of a body's business identifiers."""


def optional(shown: dict[str, Any]) -> dict[str, Any]:
    """Remove the elements that are absent from a body, and return it."""
    for name in [name for name, value in shown.items() if not value and (value is None or value == [])]:
        del shown[name]
    return shown


ID = Param("_id", "id", lambda stored: stored["id"])
IDENTIFIER = Param("identifier", "codes", identifiers)

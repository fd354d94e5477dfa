"""The elements of R4's types: the type of each element, and if it repeats.

`fhir_types.txt` has a line for each type: its name, the type it extends, and its elements as `name:type`. A `*` marks
an element that repeats; `name[x]` is followed by all types of a choice. The file is made from the library that models
R4, since loading that library takes as long as publishing a small file.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

PRIMITIVES = {
    "base64Binary", "boolean", "canonical", "code", "date", "dateTime", "decimal", "id", "instant", "integer",
    "integer64", "markdown", "oid", "positiveInt", "string", "time", "unsignedInt", "uri", "url", "uuid", "xhtml",
}  # fmt: skip
ABSTRACT = {
    "Element": "id:id extension:Extension*",
    "BackboneElement": "id:id extension:Extension* modifierExtension:Extension*",
    "Resource": "id:id implicitRules:uri language:code meta:Meta",
    "DomainResource": "id:id implicitRules:uri language:code meta:Meta contained:?* extension:Extension* "
    "modifierExtension:Extension* text:Narrative",
}
"""Types that others extend. The elements of an element that is declared with one of these types are unknown."""
RESOURCES = ("Resource", "DomainResource")
CHOICE = "[x]"


class Element(NamedTuple):
    """An element of a type. type: None if unknown. choice: for an element of a choice, its name without the type."""

    type: str | None
    many: bool
    choice: str | None = None


def is_resource(name: str) -> bool:
    """True if R4 has a resource of this name."""
    return name in _lines() and _lines()[name].partition(" ")[0] in RESOURCES


def is_type(name: str) -> bool:
    """True if R4 has a primitive or complex type, or a resource, of this name."""
    return name in PRIMITIVES or name in ABSTRACT or name in _lines()


@cache
def elements(type_name: str) -> Mapping[str, Element]:
    """Return the elements of a type; none for an unknown type."""
    if type_name not in _lines():
        return {}
    extended, _, own = _lines()[type_name].partition(" ")
    return dict(_read(f"resourceType:code {ABSTRACT[extended]} {own}"))


def choices(type_name: str, name: str) -> dict[str, str]:
    """Return the elements of a choice such as `value`, each by its type."""
    return {e.type: key for key, e in elements(type_name).items() if e.choice == name and e.type is not None}


def with_type(name: str, type_name: str) -> str:
    """Return the name that an element of a choice has in JSON."""
    return name + type_name[:1].upper() + type_name[1:]


@cache
def _lines() -> dict[str, str]:
    """Return for each type its line: the type it extends, and its elements."""
    lines = Path(__file__).with_name("fhir_types.txt").read_text(encoding="ascii").splitlines()
    return {name: rest for name, _, rest in (line.partition(" ") for line in lines)}


def _read(written: str) -> Iterator[tuple[str, Element]]:
    for name, _, types in (each.partition(":") for each in written.split()):
        if name.endswith(CHOICE):
            choice = name.removesuffix(CHOICE)
            yield from ((with_type(choice, each), Element(each, False, choice)) for each in types.split("|"))
        else:
            kind = types.removesuffix("*")
            yield name, Element(None if kind == "?" else kind, types != kind)

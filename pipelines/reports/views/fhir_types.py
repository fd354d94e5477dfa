"""The elements of R4's types: the type of each, and if it repeats. Taken from the library that models them."""

import re
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

_UNKNOWN_TYPES = {"Resource", "Element", "BackboneElement"}
PRIMITIVES = {
    "base64Binary", "boolean", "canonical", "code", "date", "dateTime", "decimal", "id", "instant", "integer",
    "integer64", "markdown", "oid", "positiveInt", "string", "time", "unsignedInt", "uri", "url", "uuid", "xhtml",
}  # fmt: skip
_BY_CLASS = {name.lower(): name for name in PRIMITIVES} | {"bool": "boolean", "uuidversion": "uuid"}
_NAME = re.compile(r"[A-Z][A-Za-z]*")


class Element(NamedTuple):
    """An element of a type. type: None if unknown. choice: the element's name without its type, if it has one."""

    type: str | None
    many: bool
    choice: str | None = None


def is_resource(name: str) -> bool:
    """True if R4 has a resource of this name."""
    model = _model(name)
    return model is not None and name not in _UNKNOWN_TYPES and any(
        each.__name__ == "Resource" for each in model.__mro__[1:]
    )  # fmt: skip


def is_type(name: str) -> bool:
    """True if R4 has a primitive or complex type, or a resource, of this name."""
    return name in PRIMITIVES or _model(name) is not None


@cache
def elements(type_name: str) -> Mapping[str, Element]:
    """Return the elements of a type; none for a type that is not known."""
    model = _model(type_name)
    if model is None or type_name in _UNKNOWN_TYPES:
        return {}
    return {
        field.alias or name: _element(field)
        for name, field in model.model_fields.items()
        if (field.json_schema_extra or {}).get("element_property") or name == "resource_type"
    } | {"resourceType": Element("code", False), "id": Element("id", False)}


def choices(type_name: str, name: str) -> dict[str, str]:
    """Return the elements of a choice such as `value`, each by its type."""
    return {e.type: key for key, e in elements(type_name).items() if e.choice == name and e.type is not None}


def with_type(name: str, type_name: str) -> str:
    """Return the name that an element of a choice has in JSON."""
    return name + type_name[:1].upper() + type_name[1:]


@cache
def _model(name: str) -> Any:
    """Return the library's class of a type, or None. The library is slow to import."""
    from fhir.resources.R4B import get_fhir_model_class

    try:
        return get_fhir_model_class(name) if _NAME.fullmatch(name) else None
    except ValueError:
        return None


def _element(field: Any) -> Element:
    said, many = field.annotation, False
    while True:
        origin = get_origin(said)
        if origin is list:
            many, said = True, get_args(said)[0]
        elif origin in (Union, UnionType):
            said = get_args(said)[0]
        else:
            break
    name = type(get_args(said)[-1]).__name__ if origin is Annotated else said.__name__
    known = _BY_CLASS.get(name.lower(), name.removesuffix("Type"))
    return Element(None if known in _UNKNOWN_TYPES else known, many, (field.json_schema_extra or {}).get("one_of_many"))

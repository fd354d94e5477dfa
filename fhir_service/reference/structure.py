"""Validate records as FHIR R4 by `fhir.resources`. Its findings are given without values of the record."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from pydantic import BaseModel, ValidationError

from fhir_service.interface.shape import fhir_path
from fhir_service.reference.reading import Flaw

_TEXTS = {
    "missing": "a required element is missing",
    "model_field_validation.missing": "a required element is missing",
    "extra_forbidden": "FHIR R4 has no such element here",
    "string_type": "a string is expected",
    "list_type": "an array is expected",
    "dict_type": "an object is expected",
    "model_type": "an object is expected",
    "bool_type": "true or false is expected",
    "bool_parsing": "true or false is expected",
    "decimal_type": "a number is expected",
    "decimal_parsing": "a number is expected",
    "int_type": "a whole number is expected",
    "int_parsing": "a whole number is expected",
    "int_from_float": "a whole number is expected",
}
_STARTS = {
    "Value error, Any of one field": "only one of the alternatives of an element may be given",
    "Value error, Expect any of field": "one of the alternatives of an element is required",
}


@cache
def _model(resource_type: str) -> type[BaseModel]:
    module = import_module(f"fhir.resources.R4B.{resource_type.lower()}")
    model: type[BaseModel] = getattr(module, resource_type)
    return model


def flaws_of(resource_type: str, body: dict[str, Any]) -> Iterator[Flaw]:
    """Return what is wrong with the structure of a record of this type by FHIR R4."""
    try:
        _model(resource_type).model_validate(body)
    except ValidationError as error:
        for found in error.errors(include_url=False, include_input=False, include_context=False):
            text = _text(found["type"], found["msg"])
            yield Flaw(fhir_path(resource_type, found["loc"]), text)
    except (ValueError, TypeError, AttributeError, ArithmeticError):
        yield Flaw(resource_type, "a value is not valid in FHIR R4")


def _text(kind: str, message: str) -> str:
    alternatives = (text for start, text in _STARTS.items() if message.startswith(start))
    return _TEXTS.get(kind) or next(alternatives, "the value is not valid here")

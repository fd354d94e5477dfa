"""Check the shape of a body. Each structural problem names the FHIRPath of its element, and never a value."""

import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from fhir_service.interface.json_text import NOT_READABLE
from fhir_service.interface.outcomes import INVALID
from fhir_service.interface.vocabulary import Problem


def shape(
    model: type[BaseModel], body: Any, name: str, most: int | None = None
) -> tuple[BaseModel | None, list[Problem]]:
    """Return the model of a body, or its structural problems: all of them, or the first few."""
    try:
        parsed = model.model_validate(body)
    except ValidationError as error:
        nulls = [problem for problem in _nothings(body, name) if problem.text == _NOTHING[type(None)]]
        return None, [*nulls, *structural(error, name, most)]
    if _holds_nothing(body):
        return None, list(_nothings(body, name))
    return parsed, []


_NOTHING: dict[type, str] = {
    type(None): "null is not allowed",
    str: "an empty string is not allowed",
    list: "an empty array is not allowed",
    dict: "an empty object is not allowed",
}
_MAY_BE_EMPTY = ("payment", "recipient")


def _holds_nothing(body: Any) -> bool:
    """True if something at any depth is null or empty: the quick question before `_nothings` says where.

    A loop over a growing list: this is asked of every body, and generators take three times as long.
    """
    holders = [body] if type(body) in _HOLDERS else []
    for holder in holders:
        for part in holder.values() if type(holder) is dict else holder:
            if part:
                if type(part) is dict or type(part) is list:
                    holders.append(part)
            elif _is_nothing(part) and (part != {} or not _may_be_empty(holder, part)):
                return True
    return False


_HOLDERS = (dict, list)


def _may_be_empty(holder: Any, part: dict[str, Any]) -> bool:
    """True if this empty object is one of the unused objects of a PaymentNotice."""
    return type(holder) is dict and any(holder.get(name) is part for name in _MAY_BE_EMPTY)


def _is_nothing(value: Any) -> bool:
    return not value and type(value) in _NOTHING


def _nothings(value: Any, path: str) -> Iterator[Problem]:
    """Yield problems for null and empty elements (COMMON-42), except for the unused objects of a PaymentNotice."""
    if _is_nothing(value):
        yield Problem("COMMON-42", INVALID, path, _NOTHING[type(value)], given=False)
    elif isinstance(value, dict):
        for name, part in value.items():
            if part != {} or name not in _MAY_BE_EMPTY:
                yield from _nothings(part, f"{path}.{printable(name)}")
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _nothings(part, f"{path}[{index}]")


_STRUCTURAL: dict[str, tuple[str, str]] = {
    "missing": ("COMMON-38", "a required element is missing"),
    "extra_forbidden": ("COMMON-37", "the element is not known here"),
    "string_type": ("COMMON-35", "a string is expected"),
    "string_unicode": ("COMMON-46", "the text is not valid Unicode"),
    "string_too_short": ("COMMON-42", "an empty string is not allowed"),
    "too_short": ("COMMON-42", "an empty array is not allowed"),
    "list_type": ("COMMON-35", "an array is expected"),
    "dict_type": ("COMMON-35", "an object is expected"),
    "model_type": ("COMMON-35", "an object is expected"),
    "model_attributes_type": ("COMMON-35", "an object is expected"),
    "is_instance_of": ("COMMON-35", "a number is expected"),
    "decimal_type": ("COMMON-35", "a number is expected"),
    "not_readable": ("COMMON-35", NOT_READABLE),
    "value_error": ("COMMON-31", "not a date, or a datetime with an offset"),
    "type_agrees": ("COMMON-11", "type contradicts reference"),
    "literal_error": ("COMMON-11", "not the type that is expected here"),
}
_PATTERNS: dict[str, tuple[str, str]] = {
    "reference": ("COMMON-09", "not a reference of the form <Type>/<id> to a type that is allowed here"),
    "id": ("COMMON-39", "not an id of 1 to 64 letters, digits, dashes and dots"),
    "system": ("COMMON-39", "not a URL: it is empty, or holds a blank or a control character"),
    "url": ("COMMON-39", "not a URL: it is empty, or holds a blank or a control character"),
}


def structural(error: ValidationError, name: str, most: int | None = None) -> list[Problem]:
    """Return pydantic's findings as problems, or only the first few: rule, FHIRPath and a text without a value."""
    return [
        _structural(found["type"], found["loc"], name)
        for found in error.errors(include_url=False, include_context=False, include_input=False)[:most]
    ]


def _structural(kind: str, loc: tuple[int | str, ...], name: str) -> Problem:
    last = next((part for part in reversed(loc) if isinstance(part, str)), "")
    if kind == "string_pattern_mismatch":
        rule_id, text = _PATTERNS.get(last, ("COMMON-46", "the text is empty or holds a control character"))
    elif kind == "literal_error" and last == "resourceType":
        rule_id, text = "COMMON-43", "not the resource type that is expected here"
    elif kind == "missing" and last == "resourceType":
        rule_id, text = "COMMON-43", "a required element is missing"
    else:
        rule_id, text = _STRUCTURAL.get(kind, ("COMMON-35", "not a value of the right type"))
    return Problem(rule_id, INVALID, fhir_path(name, loc), text, given=False)


def fhir_path(name: str, loc: tuple[int | str, ...]) -> str:
    """`Task.note[0].text` of `("note", 0, "text")`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{printable(part)}" for part in loc]
    return name + "".join(parts)


_NAME = re.compile(r"[A-Za-z_$][\w\-]{0,63}\Z", re.ASCII)


def printable(name: str) -> str:
    """Return an element's name for an outcome. A text that does not look like a name is not repeated."""
    return name if _NAME.match(name) else "?"

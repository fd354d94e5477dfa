"""Apply rules to the well-formed parts of a body whose shape is wrong.

A wrong or missing element is no attribute of its parent. A rule that needs it ends there and finds nothing more.
"""

import types
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError

from fhir_service.interface.outcomes import BUSINESS_RULE, INVALID
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Lookup, Problem, Resource, Rule, World

Kept = dict[str, list[int]]
"""For each list that lost members, by its FHIRPath: the former positions of the members that are left."""

_WRONG = object()


def part_problems(resource: Resource, body: Any, site: Site, lookup: Lookup) -> Iterator[Problem]:
    """Yield the problems that the rules find in the well-formed parts of a body."""
    kept: Kept = {}
    parsed = _element(resource.model, body, resource.name, kept)
    if parsed is _WRONG:
        return
    world = World(site, lookup, {})
    for outcome in (INVALID, BUSINESS_RULE):
        for needs, rules in resource.ordered_rules[outcome.code]:
            seen = site if needs == "payload" else world
            found = [problem for rule in rules for problem in _of_rule(rule, parsed, seen, kept)]
            yield from sorted(found, key=resource.order) if resource.order else found


def _of_rule(rule: Rule, parsed: Any, seen: Any, kept: Kept) -> Iterator[Problem]:
    with suppress(AttributeError):
        for expression, *said in rule.function(parsed, seen):
            yield rule.problem(_placed(expression, kept), *said)


def _element(model: type[BaseModel], value: Any, path: str, kept: Kept) -> Any:
    """Return an element with its well-formed members."""
    if not isinstance(value, dict):
        return _WRONG
    found = model.model_construct()
    for name, (key, hint) in _members(model).items():
        if key in value:
            part = _part(hint, value[key], f"{path}.{key}", kept)
            if part is _WRONG:
                found.__dict__.pop(name, None)
            else:
                found.__dict__[name] = part
    return found


def _part(hint: Any, value: Any, path: str, kept: Kept) -> Any:
    if value is None or value in ("", []):
        return _WRONG
    try:
        return _adapter(hint).validate_python(value, strict=True)
    except ValidationError:
        pass
    kind = _bare(hint)
    if get_origin(kind) is list and isinstance(value, list):
        return _list(get_args(kind)[0], value, path, kept)
    return _element(kind, value, path, kept) if isinstance(kind, type) and issubclass(kind, BaseModel) else _WRONG


def _list(kind: Any, value: list[Any], path: str, kept: Kept) -> Any:
    """Return the members without any fault, if there are some."""
    found: dict[int, Any] = {}
    for at, one in enumerate(value):
        with suppress(ValidationError):
            found[at] = _adapter(kind).validate_python(one, strict=True)
    kept[path] = list(found)
    return list(found.values()) or _WRONG


@cache
def _members(model: type[BaseModel]) -> dict[str, tuple[str, Any]]:
    hints = get_type_hints(model, include_extras=True)
    return {name: (info.alias or name, hints[name]) for name, info in model.model_fields.items()}


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)


def _bare(hint: Any) -> Any:
    """Return a type without annotations and without None."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (part for part in get_args(hint) if part is not type(None))
        return _bare(hint)
    return hint


def _placed(expression: str, kept: Kept) -> str:
    """Return a FHIRPath with the positions that members had in the body as sent."""
    for path, places in kept.items():
        head, bracket, tail = expression.partition("[")
        if head == path and bracket:
            number, _, rest = tail.partition("]")
            return f"{path}[{places[int(number)]}]{rest}"
    return expression

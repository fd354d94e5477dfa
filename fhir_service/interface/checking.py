"""Check a body by the rules of its resource: `check` is the one way to ask whether a body is acceptable."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from fhir_service.interface.outcomes import BUSINESS_RULE, INVALID, Outcome
from fhir_service.interface.shape import shape
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import EVERYTHING, Lookup, Needs, Problem, Resource, World


@dataclass(frozen=True, slots=True)
class CheckedBody:
    """The result of a check: the model, if the shape is right, and the problems in order."""

    model: Any | None
    problems: list[Problem]


def check(
    resource: Resource,
    body: Any,
    site: Site,
    lookup: Lookup | None = None,
    needs: Collection[Needs] = ("payload", "reference"),
    model: type[BaseModel] | None = None,
) -> CheckedBody:
    """Return all problems of a body: those of its shape, or else those that the rules find, in rule order.

    `body` is what `parse_json` gives. Rules that need more than `needs` says are not applied.
    Without a `lookup`, neither are those that need one.
    """
    parsed, problems = shape(model or resource.model, body, resource.name)
    if parsed is None:
        return CheckedBody(None, problems)
    for outcome in (INVALID, BUSINESS_RULE):
        problems += rule_problems(resource, parsed, site, lookup, needs, outcome)
    return CheckedBody(parsed, problems)


def parse(
    resource: Resource, body: Any, site: Site, additions: bool, model: type[BaseModel] | None = None
) -> BaseModel:
    """Return the model of a body. Raises the 400 of the first problem of its shape."""
    if not additions and isinstance(body, dict) and "identifier" in body:
        raise Problem("EXTRA-04", INVALID, f"{resource.name}.identifier", "the element is not known here").error()
    parsed, problems = shape(model or resource.model, body, resource.name, most=1)
    if parsed is None:
        raise problems[0].error()
    for problem in rule_problems(resource, parsed, site, None, outcome=INVALID):
        raise problem.error()
    return parsed


def rule_problems(
    resource: Resource,
    parsed: Any,
    site: Site,
    lookup: Lookup | None,
    needs: Collection[Needs] = EVERYTHING,
    outcome: Outcome = BUSINESS_RULE,
) -> Iterator[Problem]:
    """Yield the problems by rules with this outcome in a body of the right shape (a model or its struct), in rule
    order.
    """
    world = None if lookup is None else World(site, lookup, {})
    for needed, rules in resource.ordered_rules[outcome.code]:
        if needed not in needs or (world is None and needed != "payload"):
            continue
        if needed == "reference" and world and resource.settled(parsed, world):
            continue
        seen = site if needed == "payload" else world
        found = [rule.problem(*found) for rule in rules for found in rule.function(parsed, seen)]
        yield from sorted(found, key=resource.order) if resource.order and len(found) > 1 else found


def is_sound(resource: Resource, parsed: Any, world: World, named: Collection[str]) -> bool:
    """True if `rule_problems` finds nothing: after a rule that finds something none is asked.

    world: what its memo holds is of another body, and goes. named: the references that the resource names.
    """
    if not all(map(world.known.exists, named)):
        return False
    world.memo.clear()
    for needed, hold in resource.meaning:
        if needed == "reference" and resource.settled(parsed, world):
            continue
        seen = world.site if needed == "payload" else world
        if not hold(parsed, seen):
            return False
    return True

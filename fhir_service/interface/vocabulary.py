"""What a resource of the interface is made of: model, rules, search parameters; and `check`, the one entry point.

A rule is a small generator that yields `(expression, text)` or `(expression, text, message)` for each thing that
is wrong, and never raises: `expression` is the FHIRPath of the element, `text` says what is wrong in codes, ids and
paths, `message` is the interface's own wording where it has one.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

from pydantic import BaseModel, ValidationError

from fhir_service.interface.datatypes import NOT_READABLE
from fhir_service.interface.outcomes import BUSINESS_RULE, INVALID, FhirError, Outcome
from fhir_service.interface.site import Site

Needs = Literal["payload", "reference", "state"]
EVERYTHING: tuple[Needs, ...] = ("payload", "reference", "state")
Found = Iterator[tuple[str, str] | tuple[str, str, str]]
Interaction = Literal["create", "read", "update", "search"]


class Lookup(Protocol):
    """The records that a rule may ask for. The writer answers from a prefetched view, the pipelines over HTTP."""

    def questionnaire(self, questionnaire_id: str) -> Any | None:
        """The Questionnaire model with this id, active or retired; None when there is none."""


class Note(Protocol):
    """A note of a chart: whose it is, in which encounter, and `open`, `cancelled` or `deleted`."""

    id: str
    patient: str
    encounter: str | None
    state: str


class State(Lookup, Protocol):
    """Facts that only the service knows: the records named in a body, notes and balances."""

    def exists(self, reference: str) -> bool:
        """True if the record is stored; `reference` is `Type/id`."""

    def patient_of(self, reference: str) -> str | None:
        """The id of the patient to whom a stored Claim or Encounter belongs."""

    def display(self, reference: str) -> str | None:
        """The name of a stored Group, Patient or Practitioner."""

    def note_of(self, encounter_id: str) -> Note | None:
        """The note to which a stored Encounter belongs."""

    def note(self, note_id: str) -> Note | None:
        """A note by its identifier."""

    def balance(self, patient_id: str) -> int:
        """Charges less payments, in cents."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a body.

    `rule` is a requirement's id, `given` tells whether the interface or a decision of ours rests behind it.
    """

    rule: str
    outcome: Outcome
    expression: str
    text: str
    message: str | None = None
    given: bool = True

    def error(self) -> FhirError:
        """This problem as the outcome of a request."""
        return FhirError(self.outcome, self.text, self.expression, self.message)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the interface: what must be true, as a function that yields what is not.

    named: gives the records that the rule asks for, each as `(expression, Type/id)`, if it is about their existence
    alone.
    """

    id: str
    outcome: Outcome
    needs: Needs
    given: bool
    function: Callable[[Any, Any], Found]
    named: Callable[[Any], Iterable[tuple[str, str]]] | None = None

    @property
    def sentence(self) -> str:
        """What is true when all is well, as the docstring of the function says it."""
        return " ".join((self.function.__doc__ or "").split())

    def problems(self, body: Any, world: Any) -> Iterator[Problem]:
        for found in self.function(body, world):
            yield self.problem(*found)

    def problem(self, expression: str, text: str, message: str | None = None) -> Problem:
        """Return a rule's yield as a problem."""
        return Problem(self.id, self.outcome, expression, text, message, self.given)


def rule(
    id: str, outcome: Outcome, needs: Needs = "payload", given: bool = True
) -> Callable[[Callable[[Any, Any], Found]], Rule]:
    """Make a rule of a generator over `(body, site)`, or `(body, world)` when it needs more than the body."""
    return lambda function: Rule(id, outcome, needs, given, function)


ParamKind = Literal["id", "token", "codes", "reference", "date", "contains", "starts", "exact", "uri"]


@dataclass(frozen=True, slots=True)
class Param:
    """A search parameter. `values` draws what is indexed from a stored resource.

    kind: `id`; `token` (one code without a system, from `allowed`); `codes` (any number of codings); `reference` (an id
    of `target`); `date`; `contains`, `starts`, `exact` (strings); `uri` (the id within an address of `target`).
    values: a list of `(system, code)` for `codes`, of strings for `exact`, else one string or None.
    """

    name: str
    kind: ParamKind
    values: Callable[[Any], Any]
    target: str = ""
    allowed: tuple[str, ...] = ()
    repeats: bool = False
    through: str = ""

    @property
    def column(self) -> str:
        """The column that holds the values of a single-valued parameter."""
        return self.name.replace("-", "_").replace(".", "_").lstrip("_")


class Moment(NamedTuple):
    """The parts of a stored resource that come from its making, not from the body: id, time, and the world it met."""

    id: str
    now: datetime
    state: State
    site: Site
    new_id: Callable[[], str]


class World(NamedTuple):
    """The input of a rule of `reference` or `state`; `memo` holds values that the rules of one body share."""

    site: Site
    known: Any
    memo: dict[str, Any]


def _not_offered(*_: Any) -> NoReturn:
    raise NotImplementedError


def _not_known(*_: Any) -> bool:
    return False


@dataclass(frozen=True)
class Resource:
    """One resource of the interface: the product of its declarations and the interactions is the service.

    prepare: a new resource as it is stored (defaults filled in, markers for placeholders).
    merge: the stored resource after an update.
    order: where a problem of a rule stands, for resources whose items are checked one after another.
    kept: what the store keeps beside the parameters' columns: name -> type and how it is drawn.
    settled: whether the rules that need `reference` surely find nothing in a body, so that none of them need be asked.
    addition: True if the interface does not have the resource, so that `interface_only` leaves it out.
    """

    name: str
    model: type[BaseModel]
    interactions: tuple[Interaction, ...]
    params: tuple[Param, ...]
    rules: tuple[Rule, ...] = ()
    sorts: Mapping[str, str] = field(default_factory=dict)
    update_model: type[BaseModel] | None = None
    prepare: Callable[[Any, Moment], dict[str, Any]] = _not_offered
    merge: Callable[[dict[str, Any], Any, Moment], dict[str, Any]] = _not_offered
    order: Callable[[Problem], tuple[int, ...]] | None = None
    settled: Callable[[Any, World], bool] = _not_known
    kept: Mapping[str, tuple[type, Callable[[dict[str, Any]], Any]]] = field(default_factory=dict)
    addition: bool = False

    def param(self, name: str) -> Param | None:
        return next((param for param in self.params if param.name == name), None)

    @cached_property
    def of_patient(self) -> Param | None:
        """The parameter that says whose a resource is."""
        return next((param for param in self.params if param.target == "Patient"), None)

    @cached_property
    def looks_through(self) -> bool:
        """True if a search can ask for what stands in the Questionnaire that a resource answers."""
        return any(param.through for param in self.params)

    def patient(self, stored: dict[str, Any]) -> str | None:
        """The id of the patient whose a stored resource is."""
        found: str | None = self.of_patient.values(stored) if self.of_patient else None
        return found

    def named(self, body: Any) -> list[str]:
        """Return the references that the rules will ask about, as `Type/id`, so that they can be fetched together."""
        return [target for named in self._naming for _, target in named(body)]

    @cached_property
    def _naming(self) -> tuple[Callable[[Any], Iterable[tuple[str, str]]], ...]:
        return tuple(rule.named for rule in self.rules if rule.named)

    @cached_property
    def meaning(self) -> list[tuple[Needs, tuple[Callable[[Any, Any], Found], ...]]]:
        """The functions of the rules about what a body means, by what they need; not of those about existence alone."""
        return [
            (needs, tuple(rule.function for rule in rules if not rule.named))
            for needs, rules in self.ordered_rules[BUSINESS_RULE.code]
        ]

    @cached_property
    def ordered_rules(self) -> dict[str, list[tuple[Needs, tuple[Rule, ...]]]]:
        """The rules by code of outcome, grouped by what they need (payload, reference, state), each in table order."""
        return {
            outcome.code: [
                (needs, rules)
                for needs in EVERYTHING
                if (rules := tuple(r for r in self.rules if r.outcome == outcome and r.needs == needs))
            ]
            for outcome in (INVALID, BUSINESS_RULE)
        }


@dataclass(frozen=True, slots=True)
class Checked:
    """A body that was checked: its model when the shape is right, and what is wrong, the first problem first."""

    model: Any | None
    problems: list[Problem]


def check(
    resource: Resource,
    body: Any,
    site: Site,
    lookup: Lookup | None = None,
    needs: Collection[Needs] = ("payload", "reference"),
    model: type[BaseModel] | None = None,
) -> Checked:
    """Everything that is wrong with a body: its shape (all problems), else what the rules find, in rule order.

    `body` is what `parse_json` gives. Rules that need more than `needs` says are left out; without a `lookup` so are
    those that need one.
    """
    parsed, problems = shape(model or resource.model, body, resource.name)
    if parsed is None:
        return Checked(None, problems)
    for outcome in (INVALID, BUSINESS_RULE):
        problems += rule_problems(resource, parsed, site, lookup, needs, outcome)
    return Checked(parsed, problems)


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


def is_sound(resource: Resource, parsed: Any, site: Site, known: State, named: Collection[str]) -> bool:
    """True if `rule_problems` finds nothing: no rule is asked further than that.

    named: the references that the resource names.
    """
    if not all(map(known.exists, named)):
        return False
    world = World(site, known, {})
    for needed, functions in resource.meaning:
        if needed == "reference" and resource.settled(parsed, world):
            continue
        seen = site if needed == "payload" else world
        for function in functions:
            for _ in function(parsed, seen):
                return False
    return True


def shape(model: type[BaseModel], body: Any, name: str) -> tuple[BaseModel | None, list[Problem]]:
    """The model of a body, or all structural problems, each with its FHIRPath."""
    try:
        parsed = model.model_validate(body)
    except ValidationError as error:
        nulls = [problem for problem in _nothings(body, name) if problem.text == _NOTHING[type(None)]]
        return None, [*nulls, *structural(error, name)]
    if _holds_nothing(body):
        return None, list(_nothings(body, name))
    return parsed, []


_NOTHING: dict[type, str] = {
    type(None): "null is not a value",
    str: "an empty string is not a value",
    list: "an empty array is not a value",
    dict: "an empty object is not a value",
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
    """Null and empty elements are no values (COMMON-42), except the unused objects of a PaymentNotice."""
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
    "string_too_short": ("COMMON-42", "an empty string is not a value"),
    "too_short": ("COMMON-42", "an empty array is not a value"),
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
    "id": ("COMMON-39", "not an id"),
    "system": ("COMMON-39", "not a URL"),
    "url": ("COMMON-39", "not a URL"),
}


def structural(error: ValidationError, name: str) -> list[Problem]:
    """pydantic's findings as problems of ours: rule, FHIRPath and a text that holds no value."""
    return [
        _structural(found["type"], found["loc"], name)
        for found in error.errors(include_url=False, include_context=False, include_input=False)
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
    """An element's name as it may appear in an outcome: what looks like no name is not repeated."""
    return name if _NAME.match(name) else "?"

"""The parts of a resource of the interface: model, rules, search parameters.

A rule is a small generator that yields `(expression, text)` or `(expression, text, message)` for each thing that
is wrong, and never raises: `expression` is the FHIRPath of the element, `text` says what is wrong in codes, ids and
paths, `message` is the interface's own wording where it has one. A rule that finds one thing at one place, always with
the same text, is a condition: a function that tells whether it holds, which takes less time to ask.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

from pydantic import BaseModel

from fhir_service.interface.fast.forms import Form, Maker, maker
from fhir_service.interface.json_text import parse_json
from fhir_service.interface.outcomes import BUSINESS_RULE, INVALID, FhirError, Outcome
from fhir_service.interface.site import Site

Needs = Literal["payload", "reference", "state"]
EVERYTHING: tuple[Needs, ...] = ("payload", "reference", "state")
Found = Iterator[tuple[str, str] | tuple[str, str, str]]
Interaction = Literal["create", "read", "update", "search"]


class Lookup(Protocol):
    """The records that a rule may ask for. The writer has fetched them before; the pipelines ask over HTTP."""

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
        """Return the note with this identifier."""

    def balance(self, patient_id: str) -> int:
        """Return charges less payments, in cents."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a body.

    rule: the id of a requirement. given: True if the interface says it, False if we decided it.
    """

    rule: str
    outcome: Outcome
    expression: str
    text: str
    message: str | None = None
    given: bool = True

    def error(self) -> FhirError:
        """Return the error that refuses a request for this problem."""
        return FhirError(self.outcome, self.text, self.expression, self.message)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the interface. `function` yields each thing that breaks it.

    named: for a rule about the existence of records, returns each record as `(expression, Type/id)`. holds: for a
    condition, returns True if `function` yields nothing. of: an optional element of the body; without it `function`
    yields nothing.
    """

    id: str
    outcome: Outcome
    needs: Needs
    given: bool
    function: Callable[[Any, Any], Found]
    named: Callable[[Any], Iterable[tuple[str, str]]] | None = None
    holds: Callable[[Any, Any], bool] | None = None
    of: str = ""

    @property
    def sentence(self) -> str:
        """The statement that is true if the rule is kept: the function's docstring."""
        return " ".join((self.function.__doc__ or "").split())

    def problems(self, body: Any, world: Any) -> Iterator[Problem]:
        for found in self.function(body, world):
            yield self.problem(*found)

    def problem(self, expression: str, text: str, message: str | None = None) -> Problem:
        """Return a problem from what `function` has yielded."""
        return Problem(self.id, self.outcome, expression, text, message, self.given)


def rule(
    id: str, outcome: Outcome, needs: Needs = "payload", given: bool = True, of: str = ""
) -> Callable[[Callable[[Any, Any], Found]], Rule]:
    """Make a rule of a generator that takes `(body, site)`, or `(body, world)` if it needs more than the body."""
    return lambda function: Rule(id, outcome, needs, given, function, of=of)


def condition(
    id: str, outcome: Outcome, expression: str, text: str, needs: Needs = "payload", given: bool = True
) -> Callable[[Callable[[Any, Any], bool]], Rule]:
    """Make a rule of a function that returns True if all is well, and of the text for when it is not."""

    def made(holds: Callable[[Any, Any], bool]) -> Rule:
        def breaches(body: Any, seen: Any) -> Found:
            if not holds(body, seen):
                yield expression, text

        breaches.__doc__ = holds.__doc__
        return Rule(id, outcome, needs, given, breaches, holds=holds)

    return made


ParamKind = Literal["id", "token", "codes", "reference", "date", "contains", "starts", "exact", "uri"]


@dataclass(frozen=True, slots=True)
class Param:
    """A search parameter. `values` takes the values to index from a stored resource.

    kind: `id`; `token` (one code without a system, from `allowed`); `codes` (any number of codings); `reference` (an id
    of `target`); `date`; `contains`, `starts`, `exact` (strings); `uri` (the id within an address of `target`).
    values: a list of `(system, code)` for `codes`, of strings for `exact`, else one string or None.
    """

    name: str
    kind: ParamKind
    values: Callable[[Any], Any]
    target: str = ""
    allowed: tuple[str, ...] = ()
    through: str = ""

    @property
    def column(self) -> str:
        """The column that holds the values of a single-valued parameter."""
        return self.name.replace("-", "_").replace(".", "_").lstrip("_")


class Moment(NamedTuple):
    """The circumstances in which a resource is made: the time, and the records that exist."""

    now: datetime
    state: State
    site: Site
    new_id: Callable[[], str]


class World(NamedTuple):
    """The input of a rule of `reference` or `state`; `memo` holds values that the rules of one body share."""

    site: Site
    known: Any
    memo: dict[str, Any]


class RuleGroup(NamedTuple):
    """Rules with the same needs. hold: returns True if a body keeps all of them."""

    needs: Needs
    hold: Callable[[Any, Any], bool]


def conjunction(rules: Sequence[Rule]) -> Callable[[Any, Any], bool]:
    """Return a function that returns True if a body keeps all rules. It asks conditions first, then the others.

    It is made as source with a call for each rule: Python's specialised calls are faster than a loop.
    """
    ordered = sorted(rules, key=lambda rule: rule.holds is None)
    named = {f"asked{number}": rule.holds or rule.function for number, rule in enumerate(ordered)}
    terms = [_term(rule, f"{name}(body, seen)") for rule, name in zip(ordered, named, strict=True)]
    made: Callable[[Any, Any], bool] = eval(f"lambda body, seen: {' and '.join(terms) or True}", dict(named))  # noqa: S307 - of these names
    return made


def _term(rule: Rule, asked: str) -> str:
    """Return the expression that is true if a rule is kept."""
    if rule.holds:
        return asked
    return f"(body.{rule.of} is None or not [*{asked}])" if rule.of else f"not [*{asked}]"


def _not_offered(*_: Any) -> NoReturn:
    raise NotImplementedError


def _not_known(*_: Any) -> bool:
    return False


@dataclass(frozen=True)
class Resource:
    """One resource of the interface: the product of its declarations and the interactions is the service.

    stored: the form of a new resource as it is stored, with defaults, and markers for placeholders.
    merge: returns the stored resource after an update.
    order: returns the position of a problem, for resources whose items are checked one after another.
    kept: further columns of the store, by name: their type, and the function that takes their value.
    settled: returns True if a body surely keeps all rules that need `reference`, so that none has to be asked.
    addition: True if the interface does not have the resource, so that `interface_only` leaves it out.
    """

    name: str
    model: type[BaseModel]
    interactions: tuple[Interaction, ...]
    params: tuple[Param, ...]
    rules: tuple[Rule, ...] = ()
    sorts: Mapping[str, str] = field(default_factory=dict)
    update_model: type[BaseModel] | None = None
    stored: Form | None = None
    merge: Callable[[dict[str, Any], Any, Moment], dict[str, Any]] = _not_offered
    order: Callable[[Problem], tuple[int, ...]] | None = None
    settled: Callable[[Any, World], bool] = _not_known
    kept: Mapping[str, tuple[type, Callable[[dict[str, Any]], Any]]] = field(default_factory=dict)
    addition: bool = False

    @cached_property
    def _make(self) -> Maker:
        return maker(self.stored) if self.stored else _not_offered

    def prepare(self, body: Any, id: str, moment: Moment) -> dict[str, Any]:
        """Return a new resource as it is stored."""
        found: dict[str, Any] = parse_json(self._make(body, id, 0, "", moment)[0][-1])
        return found

    def param(self, name: str) -> Param | None:
        return next((param for param in self.params if param.name == name), None)

    @cached_property
    def of_patient(self) -> Param | None:
        """The search parameter for the patient of a resource; None if it has none."""
        return next((param for param in self.params if param.target == "Patient"), None)

    @cached_property
    def looks_through(self) -> bool:
        """True if a search parameter looks into the Questionnaire that a resource answers."""
        return any(param.through for param in self.params)

    def patient(self, stored: dict[str, Any]) -> str | None:
        """Return the id of a stored resource's patient."""
        found: str | None = self.of_patient.values(stored) if self.of_patient else None
        return found

    def named(self, body: Any) -> list[str]:
        """Return the references that the rules will ask about, as `Type/id`: they are fetched together before."""
        return [target for named in self._naming for _, target in named(body)]

    @cached_property
    def _naming(self) -> tuple[Callable[[Any], Iterable[tuple[str, str]]], ...]:
        return tuple(rule.named for rule in self.rules if rule.named)

    @cached_property
    def meaning(self) -> "list[RuleGroup]":
        """The business rules by their needs, without those that are only about the existence of records."""
        return [
            RuleGroup(needs, conjunction([rule for rule in rules if not rule.named]))
            for needs, rules in self.ordered_rules[BUSINESS_RULE.code]
        ]

    @cached_property
    def ordered_rules(self) -> dict[str, list[tuple[Needs, tuple[Rule, ...]]]]:
        """The rules by the code of their outcome, then by their needs (payload, reference, state), in table order."""
        return {
            outcome.code: [
                (needs, rules)
                for needs in EVERYTHING
                if (rules := tuple(r for r in self.rules if r.outcome == outcome and r.needs == needs))
            ]
            for outcome in (INVALID, BUSINESS_RULE)
        }

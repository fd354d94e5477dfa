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
    alone. holds: tells whether `function` finds nothing, if the rule is a condition. of: an optional element of the
    body, without which `function` finds nothing.
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
        """The statement that is true when all is well: the function's docstring."""
        return " ".join((self.function.__doc__ or "").split())

    def problems(self, body: Any, world: Any) -> Iterator[Problem]:
        for found in self.function(body, world):
            yield self.problem(*found)

    def problem(self, expression: str, text: str, message: str | None = None) -> Problem:
        """Return a rule's yield as a problem."""
        return Problem(self.id, self.outcome, expression, text, message, self.given)


def rule(
    id: str, outcome: Outcome, needs: Needs = "payload", given: bool = True, of: str = ""
) -> Callable[[Callable[[Any, Any], Found]], Rule]:
    """Make a rule of a generator over `(body, site)`, or `(body, world)` when it needs more than the body."""
    return lambda function: Rule(id, outcome, needs, given, function, of=of)


def condition(
    id: str, outcome: Outcome, expression: str, text: str, needs: Needs = "payload", given: bool = True
) -> Callable[[Callable[[Any, Any], bool]], Rule]:
    """Make a rule of a function over the same that tells whether all is well, and of what is wrong if not."""

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
    """The circumstances in which resources are made: the time, and the records that they meet."""

    now: datetime
    state: State
    site: Site
    new_id: Callable[[], str]


class World(NamedTuple):
    """The input of a rule of `reference` or `state`; `memo` holds values that the rules of one body share."""

    site: Site
    known: Any
    memo: dict[str, Any]


class Meaning(NamedTuple):
    """Rules that need the same: whether none of them finds anything."""

    needs: Needs
    hold: Callable[[Any, Any], bool]


def conjunction(rules: Sequence[Rule]) -> Callable[[Any, Any], bool]:
    """Return one function that tells whether no rule finds anything. It asks them in turn, conditions first.

    Python calls each of them faster from a place of its own.
    """
    ordered = sorted(rules, key=lambda rule: rule.holds is None)
    named = {f"asked{number}": rule.holds or rule.function for number, rule in enumerate(ordered)}
    terms = [_term(rule, f"{name}(body, seen)") for rule, name in zip(ordered, named, strict=True)]
    made: Callable[[Any, Any], bool] = eval(f"lambda body, seen: {' and '.join(terms) or True}", dict(named))  # noqa: S307 - of these names
    return made


def _term(rule: Rule, asked: str) -> str:
    """Return the expression that a rule finds nothing."""
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

    stored: the form of a new resource as it is stored (defaults filled in, markers for placeholders).
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
    def meaning(self) -> "list[Meaning]":
        """The rules about what a body means, by what they need; without those about existence alone."""
        return [
            Meaning(needs, conjunction([rule for rule in rules if not rule.named]))
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

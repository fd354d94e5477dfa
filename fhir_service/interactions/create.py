"""Create, for every resource that can be created: the checks of the body, and the entry that the writer carries out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from pydantic import BaseModel

from fhir_service.interactions.conditions import literal, pieces
from fhir_service.interactions.effects import EFFECTS
from fhir_service.interface.datatypes import CONTROLS, dump_json, id_of
from fhir_service.interface.outcomes import INVALID, MULTIPLE_MATCHES, FhirError
from fhir_service.interface.resources.questionnaire_response import note_id_of
from fhir_service.interface.resources.response_model import questionnaire_id
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Moment, Problem, Resource, is_sound, rule_problems, shape
from fhir_service.store.view import Needs
from fhir_service.strangers import Stranger
from fhir_service.writing.entry import Desk

Identifier = tuple[str, str]


class Created(NamedTuple):
    """The id of a resource, and whether it existed before (a conditional create that found it)."""

    id: str
    existed: bool = False


def parse(
    resource: Resource, body: Any, site: Site, additions: bool, model: type[BaseModel] | None = None
) -> BaseModel:
    """The model of a body whose shape is right. Raises the first bad request."""
    if not additions and isinstance(body, dict) and "identifier" in body:
        raise Problem("EXTRA-04", INVALID, f"{resource.name}.identifier", "the element is not known here").error()
    parsed, problems = shape(model or resource.model, body, resource.name)
    if parsed is None:
        raise problems[0].error()
    for problem in rule_problems(resource, parsed, site, None, outcome=INVALID):
        raise problem.error()
    return parsed


# An identifier without escapes: what there is almost always, read without a detour.
_PLAIN = re.compile(r"identifier=([\w.:/\-]+)\|([\w.:/~\-]+)\Z", re.ASCII)


def condition_of(headers: Sequence[str]) -> Identifier | None:
    """Return the identifier of a request's `If-None-Exist` headers, at most one. Raises a bad request."""
    if len(headers) > 1:
        raise FhirError(INVALID, "If-None-Exist is sent twice")
    return condition(*headers)


def condition(text: str | None = None) -> Identifier | None:
    """The identifier of `identifier=<system>|<value>`, None where there is none. Raises a bad request for all else."""
    if text is None:
        return None
    if plain := _PLAIN.match(text):
        return plain[1], plain[2]
    pairs = parse_qsl(text.lstrip("?"), keep_blank_values=True)
    if len(pairs) == 1 and pairs[0][0] == "identifier" and len(list(pieces(pairs[0][1], ","))) == 1:
        parts = [literal(part) for part in pieces(pairs[0][1], "|")]
        if len(parts) == 2 and all(parts) and not CONTROLS.search(pairs[0][1]):
            return parts[0], parts[1]
    raise FhirError(INVALID, "If-None-Exist takes one identifier=<system>|<value>")


def _identifiers(model: Any) -> list[Identifier]:
    """Return the identifiers that a body carries."""
    found = model.identifier or ()
    return [(one.system, one.value) for one in (found if isinstance(found, list | tuple) else [found])]


@dataclass(slots=True)
class Create:
    """The entry of one create. Raises the bad request of a condition that its own body does not meet.

    id: the one that the resource is given; empty for one that is drawn when it is stored.
    """

    resource: Resource
    model: Any
    client: str
    site: Site
    size: int
    condition: Identifier | None = None
    id: str = ""
    named: Sequence[str] = field(init=False)
    patients: tuple[str, ...] = field(init=False, default=())
    """The id of the patient whom the body names; a `Stranger` until the store is known to have that patient."""

    def __post_init__(self) -> None:
        if self.condition and self.condition not in _identifiers(self.model):
            why = "the body lacks the identifier that If-None-Exist asks for, so that each repeat would create"
            raise Problem("EXTRA-COND-12", INVALID, f"{self.resource.name}.identifier", why, given=False).error()
        self.named = self.resource.named(self.model)
        for name in self.named:
            if name.startswith("Patient/"):
                self.patients = (Stranger(id_of(name)),)
                break

    def ask(self, needs: Needs) -> None:
        needs.records.update(self.named)
        if self.condition:
            needs.identifiers[self.resource.name].add(self.condition[1])
        if self.resource.name == "PaymentNotice":
            needs.patients.add(id_of(self.model.request.reference))
        if self.resource.name == "QuestionnaireResponse":
            needs.questionnaires.add(questionnaire_id(self.model.questionnaire, self.site) or "")
            needs.notes.update(filter(None, [note_id_of(self.model, self.site)]))

    def act(self, desk: Desk) -> Created:
        resource, view = self.resource, desk.view
        for patient in self.patients:
            if view.exists(f"Patient/{patient}"):
                self.patients = (str(patient),)
        found = self._existing(desk)
        if found:
            return found
        if not is_sound(resource, self.model, self.site, view, self.named):
            for problem in rule_problems(resource, self.model, self.site, view):
                raise problem.error()
        moment = Moment(self.id or desk.new_id(), desk.now, view, self.site, desk.new_id)
        stored = resource.prepare(self.model, moment)
        desk.changes.add_resource(resource, stored, dump_json(stored).decode(), self.client, desk.now)
        if self.condition:
            desk.changes.claim(resource.name, self.condition)
        if effect := EFFECTS.get(resource.name):
            effect(stored, view, desk.changes)
        view.identify(resource.name, stored)
        return Created(moment.id)

    def _existing(self, desk: Desk) -> Created | None:
        if self.condition is None or not (found := desk.view.identified[self.resource.name].get(self.condition)):
            return None
        if len(found) > 1:
            raise FhirError(MULTIPLE_MATCHES)
        return Created(next(iter(found)), existed=True)

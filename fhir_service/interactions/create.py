"""Create, for every resource that can be created: the checks of the body, and the entry that the writer carries out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fhir_service.audit.unknown_ids import Stranger
from fhir_service.interactions.effects import EFFECTS
from fhir_service.interface.checking import is_sound, rule_problems
from fhir_service.interface.datatypes import id_of
from fhir_service.interface.outcomes import INVALID, MULTIPLE_MATCHES, FhirError
from fhir_service.interface.resources.questionnaire_response import note_id_of
from fhir_service.interface.resources.response_model import questionnaire_id
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Problem, Resource
from fhir_service.store.tables import IDENTIFIERS, MAKERS
from fhir_service.store.view import Needs, View
from fhir_service.writing.entry import CommitContext

Identifier = tuple[str, str]


class CreateResult(NamedTuple):
    """The id of a resource. existed: a conditional create found it instead of making it."""

    id: str
    existed: bool = False


def _identifiers(model: Any) -> list[Identifier]:
    """Return the identifiers that a body carries."""
    found = model.identifier or ()
    return [(one.system, one.value) for one in (found if isinstance(found, list | tuple) else [found])]


@dataclass(slots=True)
class Create:
    """The entry of one create. Raises the bad request of a condition that its own body does not meet.

    id: the one that the resource is given; empty for one that is drawn when it is stored.
    token: the hash of a token without which nothing is done: one that admitted the request, and may have ended since.
    """

    resource: Resource
    model: Any
    client: str
    site: Site
    size: int
    condition: Identifier | None = None
    id: str = ""
    token: str = ""
    named: Sequence[str] = field(init=False)
    _patient: str = field(init=False, default="")
    _known: bool = field(init=False, default=False)
    _owner: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.condition and self.condition not in _identifiers(self.model):
            why = "the body lacks the identifier that If-None-Exist names: each repeat would create another resource"
            raise Problem("EXTRA-COND-12", INVALID, f"{self.resource.name}.identifier", why, given=False).error()
        self.named = self.resource.named(self.model)
        for name in self.named:
            if name.startswith("Patient/"):
                self._patient = name
                break

    @property
    def patients(self) -> tuple[str, ...]:
        """The ids of the patient whose resource a condition found, and of the one whom the body names: a `Stranger`
        until the store is known to have that patient.
        """
        named = self._patient[len("Patient/") :]
        found = (self._owner, named if self._known else Stranger(named))
        return tuple(dict.fromkeys(filter(None, found)))

    def ask(self, needs: Needs) -> None:
        needs.records.update(self.named)
        if self.token:
            needs.tokens.add(self.token)
        if self.condition:
            needs.identifiers[self.resource.name].add(self.condition[1])
        if self.resource.name == "PaymentNotice":
            needs.patients.add(id_of(self.model.request.reference))
        if self.resource.name == "QuestionnaireResponse":
            needs.questionnaires.add(questionnaire_id(self.model.questionnaire, self.site) or "")
            needs.notes.update(filter(None, [note_id_of(self.model, self.site)]))

    def act(self, desk: CommitContext) -> CreateResult:
        resource, view = self.resource, desk.view
        view.require(self.token)
        self._known, self._owner = view.exists(self._patient), None
        if self.condition and (found := self._existing(view, self.condition)):
            return found
        if not is_sound(resource, self.model, desk.world, self.named):
            for problem in rule_problems(resource, self.model, self.site, view):
                raise problem.error()
        id, name, changes = self.id or desk.new_id(), resource.name, desk.changes
        row, sides = made = MAKERS[name](self.model, id, changes.next_seq(), self.client, desk.moment)
        changes.add_made(name, made)
        if self.condition:
            changes.claim(name, self.condition)
        if effect := EFFECTS.get(name):
            effect(self.model, row, view, changes, desk.moment)
        if name in view.identified:
            view.identify(name, id, self._patient[len("Patient/") :], [one[1:3] for one in sides[IDENTIFIERS[name]]])
        return CreateResult(id)

    def _existing(self, view: View, condition: Identifier) -> CreateResult | None:
        found = view.identified[self.resource.name].get(condition)
        if not found:
            return None
        if len(found) > 1:
            why = f"{len(found)} resources have the identifier that If-None-Exist names: none was created"
            raise FhirError(MULTIPLE_MATCHES, why)
        ((id, self._owner),) = found.items()
        return CreateResult(id, existed=True)

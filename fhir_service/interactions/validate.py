"""$validate: the outcome that a create of the same body would have now, with all problems. Nothing is stored."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fhir_service.audit.unknown_ids import Stranger
from fhir_service.interactions.create import Create
from fhir_service.interface.checking import check
from fhir_service.interface.datatypes import ID_PATTERN, id_of, is_id
from fhir_service.interface.outcomes import issue, operation_outcome
from fhir_service.interface.parts import part_problems
from fhir_service.interface.resources.response_model import questionnaire_id
from fhir_service.interface.shape import shape
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import EVERYTHING, Problem, Resource
from fhir_service.store.view import Needs
from fhir_service.writing.entry import CommitContext

_REFERENCE = re.compile(rf"[A-Za-z]{{1,64}}/{ID_PATTERN}\Z")


@dataclass(slots=True)
class Validate:
    """The entry of one validation: it goes through the writer, so that it sees what a create would see.

    patients: the id of the patient whom the body names, once it was validated.
    """

    resource: Resource
    body: Any
    site: Site
    size: int
    patients: tuple[str, ...] = field(init=False, default=())

    def ask(self, needs: Needs) -> None:
        model, _ = shape(self.resource.model, self.body, self.resource.name)
        if model is not None:
            Create(self.resource, model, "", self.site, self.size).ask(needs)
        else:
            self._ask_by_text(needs)

    def _ask_by_text(self, needs: Needs) -> None:
        """Ask for everything that a body of the wrong shape may name."""
        texts = set(_texts(self.body))
        needs.records.update(filter(_REFERENCE.match, texts))
        needs.patients.update(id_of(text) for text in needs.records if text.startswith("Patient/"))
        needs.notes.update(filter(is_id, texts))
        needs.questionnaires.update(filter(None, (questionnaire_id(text, self.site) for text in texts)))

    def act(self, desk: CommitContext) -> list[Problem]:
        if patient := self._patient():
            self.patients = (patient if desk.view.exists(f"Patient/{patient}") else Stranger(patient),)
        checked = check(self.resource, self.body, self.site, desk.view, EVERYTHING)
        if checked.model is not None:
            return checked.problems
        told = {problem.expression for problem in checked.problems}
        further = part_problems(self.resource, self.body, self.site, desk.view)
        return [*checked.problems, *(problem for problem in further if problem.expression not in told)]

    def _patient(self) -> str | None:
        """Return the id of the patient in a body of any shape, if it can be found."""
        with suppress(AttributeError, KeyError, TypeError):
            return self.resource.patient(self.body)
        return None


def _texts(body: Any) -> Iterator[str]:
    """Yield the texts of a body, at any depth."""
    holders = [body]
    for holder in holders:
        if isinstance(holder, str):
            yield holder
        elif isinstance(holder, dict):
            holders += holder.values()
        elif isinstance(holder, list):
            holders += holder


def outcome(problems: list[Problem]) -> dict[str, Any]:
    """The OperationOutcome of a validation: an issue for each problem, or one that says there is none."""
    if not problems:
        return operation_outcome(issue("informational", "No problems found", severity="information"))
    return operation_outcome(
        *(issue(p.outcome.code, p.message or p.outcome.text, p.text, p.expression) for p in problems)
    )

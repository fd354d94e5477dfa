"""$validate: the outcome that a create of the same body would have now, with all problems. Nothing is stored."""

from dataclasses import dataclass
from typing import Any

from fhir_service.interactions.create import Create
from fhir_service.interface.outcomes import issue, operation_outcome
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import EVERYTHING, Problem, Resource, check, shape
from fhir_service.store.view import Needs
from fhir_service.writer import Desk


@dataclass(slots=True)
class Validate:
    """The entry of one validation: it goes through the writer, so that it sees what a create would see."""

    resource: Resource
    body: Any
    site: Site
    size: int

    def ask(self, needs: Needs) -> None:
        model, _ = shape(self.resource.model, self.body, self.resource.name)
        if model is not None:
            Create(self.resource, model, "", self.site, self.size).ask(needs)

    def act(self, desk: Desk) -> list[Problem]:
        return check(self.resource, self.body, self.site, desk.view, EVERYTHING).problems


def outcome(problems: list[Problem]) -> dict[str, Any]:
    """The OperationOutcome of a validation: an issue for each problem, or one that says there is none."""
    if not problems:
        return operation_outcome(issue("informational", "No problems found", severity="information"))
    return operation_outcome(
        *(issue(p.outcome.code, p.message or p.outcome.text, p.text, p.expression) for p in problems)
    )

"""Every case of a body against the rules alone, with the reference world as what is known."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from fhir_service.interface.checking import check
from fhir_service.interface.json_text import Malformed, parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.resources.questionnaire import Questionnaire
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Needs, Problem, Resource
from tests.spec.casebook import Case, cases, world

SITE = Site("http://service.example:8400", "example", "demo")
CASES = [case for case in cases() if case.needs != "request"]
NEEDS: tuple[Needs, ...] = ("payload", "reference", "state")
BALANCES = {"p1": 15025, "p2": 9_000_000_000, "p3": 1550, "p5": 4000, "p7": 50000}


@dataclass(frozen=True)
class Note:
    """A note of the reference world."""

    id: str
    patient: str
    encounter: str | None
    state: str


class World:
    """The known records: the reference data, and the balances of its patients."""

    def __init__(self, balances: dict[str, int]) -> None:
        self._balances = BALANCES | balances

    def questionnaire(self, questionnaire_id: str) -> Questionnaire | None:
        found = world().get(f"Questionnaire/{questionnaire_id}")
        return Questionnaire.model_validate(found) if found else None

    def exists(self, reference: str) -> bool:
        return reference in world()

    def patient_of(self, reference: str) -> str | None:
        found = world()[reference]
        patient: str = (found.get("subject") or found["patient"])["reference"]
        return patient.removeprefix("Patient/")

    def display(self, reference: str) -> str | None:
        return reference

    def note_of(self, encounter_id: str) -> Note | None:
        found = world().get(f"Encounter/{encounter_id}")
        return _note(found) if found else None

    def note(self, note_id: str) -> Note | None:
        notes = (_note(found) for found in world().values() if found["resourceType"] == "Encounter")
        return next((note for note in notes if note.id == note_id), None)

    def balance(self, patient_id: str) -> int:
        return self._balances.get(patient_id, 0)


def _note(encounter: dict[str, Any]) -> Note:
    extension = encounter.get("extension", [{"valueId": f"note-of-{encounter['id']}"}])
    state = {"cancelled": "cancelled", "entered-in-error": "deleted"}.get(encounter["status"], "open")
    patient = encounter["subject"]["reference"].removeprefix("Patient/")
    return Note(extension[0]["valueId"], patient, encounter["id"], state)


def problems(case: Case, resource: Resource) -> list[Problem] | None:
    """Return the problems that the rules find in a case's body; None if it is not JSON."""
    try:
        body = parse_json(case.text(SITE.base_url, "00000000-0000-4000-8000-000000000000"))
    except Malformed:
        return None
    model = resource.update_model if case.interaction == "update" else None
    return check(resource, body, SITE, World(case.balances), NEEDS, model or resource.model).problems


def first(found: list[Problem] | None) -> dict[str, Any] | None:
    """The first problem as an outcome tells it."""
    if found is None:
        return {"status": 400, "code": "invalid", "text": "Bad request", "expression": None}
    if not found:
        return None
    problem = found[0]
    return {
        "status": problem.outcome.status,
        "code": problem.outcome.code,
        "text": problem.message or problem.outcome.text,
        "expression": problem.expression,
    }


def outcome(case: Case) -> dict[str, Any] | None:
    """The outcome that a case expects, None when its body is accepted."""
    if case.expected.outcome is None:
        return None
    return case.expected.row | {"expression": case.expected.expression}


def agrees(case: Case, found: list[Problem] | None) -> bool:
    """True if the problems are those that a case expects, with the expression if the case names one."""
    expected, actual = outcome(case), first(found)
    if expected and actual and expected["expression"] is None:
        actual["expression"] = None
    return expected == actual


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_rules_find_what_the_case_expects(case: Case) -> None:
    found = problems(case, RESOURCES[case.resource])
    assert agrees(case, found), (outcome(case), found)
    if case.expected.rule and found:
        assert found[0].rule == case.expected.rule
    if case.all:
        assert tuple(problem.expression for problem in found or ()) == case.all


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_problems_hold_codes_ids_and_paths_only(case: Case) -> None:
    """ERR-06: no free text and no amount of the body."""
    for problem in problems(case, RESOURCES[case.resource]) or ():
        told = f"{problem.text} {problem.expression} {problem.message or ''}"
        assert "Quill" not in told
        assert problem.text
        if case.resource == "PaymentNotice" and isinstance(case.body.get("amount"), dict):
            assert str(case.body["amount"].get("value", "Quill")) not in problem.text.split()


RULES = [(resource.name, rule.id) for resource in RESOURCES.values() for rule in resource.rules]


@pytest.mark.parametrize(("name", "rule_id"), RULES)
def test_a_case_fails_when_a_rule_is_taken_out(name: str, rule_id: str) -> None:
    resource = RESOURCES[name]
    without = replace(resource, rules=tuple(rule for rule in resource.rules if rule.id != rule_id))
    assert any(not agrees(case, problems(case, without)) for case in CASES if case.resource == name)


@pytest.mark.parametrize(("name", "rule_id"), RULES)
def test_every_rule_has_a_failing_and_a_passing_case(name: str, rule_id: str) -> None:
    of_resource = [case for case in CASES if case.resource == name]
    assert any(case.expected.rule == rule_id for case in of_resource), "no case fails by this rule"
    assert any(case.expected.outcome is None for case in of_resource if rule_id in case.proves), "no case passes it"

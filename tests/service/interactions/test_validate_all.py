"""$validate of bodies whose shape is wrong: what the rules find in the rest of them is said too."""

from random import Random
from typing import Any

import pytest

from tests.conftest import BOTH, Running
from tests.service.interactions.test_additions import validated
from tests.support.bodies import payment, task

STORES = BOTH
NOBODY = {"reference": "Practitioner/nobody"}
FINE = {"reference": "Practitioner/dr1"}


def note(author: Any, text: Any = "x") -> dict[str, Any]:
    return {"text": text, "authorReference": author}


def answer(link: Any, **value: Any) -> dict[str, Any]:
    return {"linkId": link, "answer": [value]}


def response(**changed: Any) -> dict[str, Any]:
    body = {"resourceType": "QuestionnaireResponse", "status": "completed", "subject": {"reference": "Patient/p1"}}
    return body | changed


CASES: list[tuple[Any, list[str]]] = [
    (task(1, status="draft", unknown=1), ["unknown", "status"]),
    (task(1, intent="order", description=5, requester=NOBODY), ["description", "intent", "requester"]),
    (task(1, status=5, intent="order"), ["status", "intent"]),
    (task(1, note=[note(FINE, 5), note(NOBODY)]), ["note[0].text", "note[1].authorReference"]),
    (task(1, note=[note(NOBODY, 5)], intent="order"), ["note[0].text", "intent"]),
    (payment(-100) | {"created": "x"}, ["created", "amount.value"]),
    (payment(10**9) | {"payment": 1}, ["payment", "amount.value", "amount.value"]),
    (payment(100) | {"created": "x"}, ["created"]),
    (payment(100, "nobody") | {"created": "x"}, ["created", "request"]),
    (payment(100) | {"amount": {"value": -1, "currency": 5}}, ["amount.currency", "amount.value"]),
    (response(status="amended"), ["questionnaire", "status"]),
]


@pytest.mark.parametrize(("body", "expected"), CASES)
def test_all_problems_are_shown_those_of_the_shape_first(
    fresh_service: Running, body: dict[str, Any], expected: list[str]
) -> None:
    """EXTRA-VALIDATE-02: and nothing is said of what is right."""
    found = [issue["expression"][0] for issue in validated(fresh_service, body)]
    assert found == [f"{body['resourceType']}.{path}" for path in expected]


@pytest.mark.parametrize("body", [[], 5, "x"])
def test_a_body_that_is_not_an_object_has_one_problem(service: Running, body: Any) -> None:
    """EXTRA-VALIDATE-02."""
    issues = service.client.post("/Task/$validate", json=body).json()["issue"]
    assert [issue["expression"] for issue in issues] == [["Task"]]


def test_answers_of_a_response_are_judged(service: Running) -> None:
    """EXTRA-VALIDATE-02, QR-CREATE-03: in their places."""
    odd = {"system": "http://loinc.org", "code": "nowhere", "display": "x"}
    body = response(
        questionnaire=f"{service.url}/Questionnaire/q-intake",
        item=[answer(5, valueString="x"), answer("mood", valueCoding=odd), answer("nowhere", valueString="x")],
    )
    found = [(issue["expression"][0], issue["code"]) for issue in validated(service, body)]
    assert found[0] == ("QuestionnaireResponse.item[0].linkId", "invalid")
    assert [code for _, code in found[1:]] == ["business-rule"] * 2
    assert [place.split(".")[1] for place, _ in found[1:]] == ["item[1]", "item[2]"]


@pytest.mark.parametrize("seed", range(3))
def test_a_fault_of_the_shape_hides_no_other_and_invents_none(service: Running, seed: int) -> None:
    """EXTRA-VALIDATE-02: an element that is not known, put into any sound or unsound body, adds itself alone."""
    random = Random(seed)
    for _ in range(30):
        body = task(
            1,
            status=random.choice(["requested", "draft"]),
            intent=random.choice(["unknown", "order"]),
            requester=random.choice([FINE, NOBODY]),
            note=[note(random.choice([FINE, NOBODY])) for _ in range(random.choice([1, 3]))],
        )
        before = [issue for issue in validated(service, body) if issue["severity"] == "error"]
        added = validated(service, body | {"colour": "red"})
        assert added[0]["expression"] == ["Task.colour"]
        assert added[1:] == before

"""Items that many responses of a batch share: what was found of one before changes no answer and no stored text."""

import json
from random import Random
from typing import Any

import pytest

from fhir_service.interactions import plain
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.resources import shared_items
from fhir_service.interface.site import Site

LOINC, QUESTIONNAIRES = "http://loinc.org", ("q-intake", "q-odd", "q-old", "nowhere")


def coded(*codes: str, system: str = LOINC, display: str = "Größe") -> list[dict[str, Any]]:
    return [{"valueCoding": {"system": system, "code": code, "display": display}} for code in codes]


def item(link: str, answer: Any = None, **more: Any) -> dict[str, Any]:
    return {"linkId": link} | ({} if answer is None else {"answer": answer}) | more


ITEMS: tuple[Any, ...] = (
    *(item("mood", coded(code)) for code in ("LA6568-5", "LA6569-3", "nowhere")),
    item("mood", coded("LA6568-5"), text="Not stored"),
    item("mood", coded("LA6568-5", display="Another name")),
    item("mood", coded("LA6568-5", "LA6569-3")),
    item("mood", coded("LA6568-5", system="http://other.org")),
    item("mood", coded("LA6568-5"), item=[item("remarks", [{"valueString": "fine"}])]),
    item("mood"),
    item("mixed", coded("LA33-6")),
    item("nowhere", coded("LA6568-5")),
    *(item("remarks", [{"valueString": text}]) for text in ("fine", "x" * shared_items.LONGEST, "\x01", "")),
    item("weight", [{"valueDecimal": 71.5}]),
    item("history", item=[item("allergic", coded("LA33-6"))]),
    item("mood", coded("LA6568-5"), other=1),
)


def response(questionnaire: str, items: list[Any], base_url: str) -> dict[str, Any]:
    return {
        "resourceType": "QuestionnaireResponse",
        "questionnaire": f"{base_url}/Questionnaire/{questionnaire}",
        "status": "completed",
        "subject": {"reference": "Patient/p1"},
        "authored": "2026-01-01T10:00:00Z",
        "item": items,
    }


def bundle(bodies: list[dict[str, Any]]) -> dict[str, Any]:
    request = {"method": "POST", "url": "QuestionnaireResponse"}
    return {
        "resourceType": "Bundle",
        "type": "batch",
        "entry": [{"resource": body, "request": request} for body in bodies],
    }


def told(service, status: int, location: str | None, outcome: Any) -> Any:
    """Return the outcome of a create: its issue, or the stored body without values that always differ."""
    if location is None:
        return status, outcome
    stored = service.client.get(location).json()
    assert stored.pop("id") == location.rpartition("/")[2]
    return status, {name: value for name, value in stored.items() if name != "extension"}


def of_batch(service, bodies: list[dict[str, Any]]) -> list[Any]:
    answered = service.client.post("/", json=bundle(bodies)).json()["entry"]
    found = (one["response"] for one in answered)
    return [told(service, int(one["status"]), one.get("location"), one.get("outcome")) for one in found]


def singly(service, body: dict[str, Any]) -> Any:
    answer = service.client.post("/QuestionnaireResponse", json=body)
    return told(service, answer.status_code, answer.headers.get("location"), answer.json())


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_is_answered_as_its_entries_are_one_by_one(service, seed: int) -> None:
    """EXTRA-BATCH-01, QR-CREATE-03, QR-ITEM-03, QR-ITEM-05, QR-13: whatever stood in those before."""
    random = Random(seed)
    bodies = [
        response(
            random.choice(QUESTIONNAIRES[: 1 + 3 * (n % 2)]), random.choices(ITEMS, k=random.choice((1, 1, 2))), base
        )
        for base in [service.service.site.base_url]
        for n in range(60)
    ]
    plain_ones = [body for body in bodies if plain.bundle(json.dumps(bundle([body])).encode(), service.service.site)]
    assert 30 < len(plain_ones) < len(bodies)
    expected = [singly(service, body) for body in plain_ones]
    assert {status for status, _ in expected} == {201, 422}
    assert of_batch(service, plain_ones) == expected
    assert of_batch(service, plain_ones) == expected


def test_an_item_is_read_once_and_shared() -> None:
    """EXTRA-BATCH-01: by the responses that say it in the same words, unless it is long."""
    site = Site()
    short, long = item("mood", coded("LA6568-5")), item("remarks", [{"valueString": "x" * shared_items.LONGEST}])
    body = response("q-intake", [short, long], site.base_url)
    found = plain.bundle(json.dumps(bundle([body, body])).encode(), site)
    assert found is not None
    (one, mine), (other, theirs) = (created.resource.item for created in found.entry)
    assert one is other
    assert mine is not theirs
    assert mine == theirs


def test_the_memory_of_shared_items_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """EXTRA-BATCH-01."""
    monkeypatch.setattr(shared_items, "MOST", 10)
    monkeypatch.setattr(shared_items, "_read", {})
    questionnaire = RESOURCES["Questionnaire"].model.model_validate(
        {"resourceType": "Questionnaire", "id": "q", "status": "active", "item": []}
    )
    for number in range(25):
        body = response("q", [item(f"link {number}", coded("a"))], Site().base_url)
        created = plain.bundle(json.dumps(bundle([body])).encode(), Site())
        assert created
        shared_items.settle(questionnaire, created.entry[0].resource.item[0], {"linkId": f"link {number}"})  # type: ignore[arg-type]
        assert len(shared_items._read) <= 10
        assert len(questionnaire.settled) <= 10  # type: ignore[attr-defined]


def test_the_own_words_of_a_person_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """EXTRA-BATCH-01: what somebody wrote is in the store, and nowhere else once its request is answered."""
    read: dict[bytes, Any] = {}
    monkeypatch.setattr(shared_items, "_read", read)
    words = item("remarks", [{"valueString": "fine"}])
    under_another = item("mood", coded("b"), item=[words])
    under_an_answer = item("mood", [coded("c")[0] | {"item": [words]}])
    body = response("q", [item("mood", coded("a")), words, under_another, under_an_answer], Site().base_url)
    created = plain.bundle(json.dumps(bundle([body])).encode(), Site())
    assert created
    assert len(read) == 1
    assert b"fine" not in b"".join(read)
    questionnaire = RESOURCES["Questionnaire"].model.model_validate(
        {"resourceType": "Questionnaire", "id": "q", "status": "active", "item": []}
    )
    for each, stored in zip(created.entry[0].resource.item, body["item"], strict=True):
        shared_items.settle(questionnaire, each, stored)  # type: ignore[arg-type]
    assert len(questionnaire.settled) == 1  # type: ignore[attr-defined]

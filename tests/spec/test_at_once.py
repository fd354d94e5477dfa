"""The service's promises for simultaneous requests."""

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.conftest import BOTH, Running
from tests.spec.casebook import from_json, to_json
from tests.spec.test_http import JSON

STORES = BOTH
Sent = tuple[str, dict[str, Any], dict[str, str]]


def at_once(service: Running, requests: Iterable[Sent]) -> list[httpx.Response]:
    """Send creates, each from its own thread. Return the responses in the order of the requests."""

    def send(request: Sent) -> httpx.Response:
        path, body, headers = request
        return service.client.post(path, content=to_json(body).encode(), headers=JSON | headers)

    found = list(requests)
    with ThreadPoolExecutor(len(found)) as threads:
        return list(threads.map(send, found))


def answers(service: Running, **more: Any) -> dict[str, Any]:
    return {
        "resourceType": "QuestionnaireResponse",
        "questionnaire": f"{service.url}/Questionnaire/q-intake",
        "status": "completed",
        "subject": {"reference": "Patient/p1"},
        "authored": "2024-04-01",
        **more,
    }


def payment(amount: int) -> dict[str, Any]:
    return {
        "resourceType": "PaymentNotice",
        "status": "active",
        "request": {"reference": "Patient/p1"},
        "created": "2024-04-01",
        "payment": {},
        "recipient": {},
        "amount": {"value": amount},
    }


def stored(service: Running, response: httpx.Response) -> Any:
    return from_json(service.client.get(response.headers["location"]).content)


def statuses(responses: list[httpx.Response]) -> Counter[int]:
    return Counter(response.status_code for response in responses)


def test_simultaneous_responses_to_different_encounters_are_all_created(fresh_service: Running) -> None:
    """QR-CREATE-07"""
    encounters = ["e1", "e2", "e5"]
    bodies = [answers(fresh_service, encounter={"reference": f"Encounter/{id}"}) for id in encounters]
    responses = at_once(fresh_service, [("/QuestionnaireResponse", body, {}) for body in bodies])
    assert statuses(responses) == {201: 3}
    shown = [stored(fresh_service, response)["encounter"]["reference"] for response in responses]
    assert shown == [f"Encounter/{id}" for id in encounters]


def test_simultaneous_responses_to_one_encounter_are_done_in_some_order(fresh_service: Running) -> None:
    """QR-CREATE-15, QR-NOTE-05, LIMIT-13: each is stored once, none is lost, all are in the encounter's one note."""
    body = answers(fresh_service, encounter={"reference": "Encounter/e2"})
    responses = at_once(fresh_service, [("/QuestionnaireResponse", body, {})] * 16)
    assert statuses(responses) == {201: 16}
    found = [stored(fresh_service, response) for response in responses]
    assert len({response["id"] for response in found}) == 16
    assert len({response["extension"][0]["valueId"] for response in found}) == 1
    bundle = from_json(fresh_service.client.get("/QuestionnaireResponse?_count=100").content)
    assert {entry["resource"]["id"] for entry in bundle["entry"]} == {response["id"] for response in found}


def test_payments_at_once_never_exceed_the_balance(fresh_service: Running) -> None:
    """PAY-CREATE-08: of 16 payments of 20.00 against 150.25, seven fit."""
    responses = at_once(fresh_service, [("/PaymentNotice", payment(20), {})] * 16)
    assert statuses(responses) == {201: 7, 422: 9}
    assert from_json(fresh_service.client.get("/PaymentNotice?request=p1&_count=0").content)["total"] == 7


def test_of_simultaneous_equal_conditional_creates_one_creates(fresh_service: Running) -> None:
    """EXTRA-COND-07: the others answer 200 with its location."""
    condition = {"if-none-exist": "identifier=urn:x|1"}
    body = payment(1) | {"identifier": [{"system": "urn:x", "value": "1"}]}
    responses = at_once(fresh_service, [("/PaymentNotice", body, condition)] * 16)
    assert statuses(responses) == {201: 1, 200: 15}
    assert len({response.headers["location"] for response in responses}) == 1


@pytest.mark.parametrize("order", ["", "&_sort=_id", "&_sort=-_id"])
def test_pages_neither_repeat_nor_miss_while_others_write(fresh_service: Running, order: str) -> None:
    """SEARCH-16, SEARCH-17, BUNDLE-11: rows created after the first page come at the end.

    Where several processes may write, and in another order than that of creation, the pages show the store as of the
    first page.
    """
    task = {"resourceType": "Task", "status": "requested", "intent": "unknown", "description": "Call"}
    body = task | {"requester": {"reference": "Practitioner/dr1"}}

    def create() -> str:
        location: str = at_once(fresh_service, [("/Task", body, {})])[0].headers["location"]
        return location

    created = [create() for _ in range(7)]
    seen: list[str] = []
    url = f"/Task?_count=3{order}"
    while url:
        bundle = from_json(fresh_service.client.get(url).content)
        seen += [f"{fresh_service.url}/Task/{entry['resource']['id']}" for entry in bundle["entry"]]
        url = next((link["url"] for link in bundle["link"] if link["relation"] == "next"), "")
        if len(created) < 9:
            created.append(create())
    if order:
        assert sorted(seen) == sorted(created[:7])
    else:
        assert seen == (created[:7] if fresh_service.service.store.dialect.shared else created)

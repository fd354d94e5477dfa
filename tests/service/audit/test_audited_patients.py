"""A record of the audit names the patients of whom its answer tells, also where the request names another."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.conftest import BOTH, Running
from tests.support.bodies import entry, payment, task
from tests.support.bodies import send as send_batch

STORES = BOTH
CONDITION = "identifier=urn:test|1"
OTHER = {"for": {"reference": "Patient/p2"}}


@pytest.fixture
def recorded(fresh_service: Running) -> Callable[[], list[dict[str, Any]]]:
    """Returns the records since it was asked last."""
    path, seen = fresh_service.service.audit.path, [0]

    def records() -> list[dict[str, Any]]:
        found = path.read_text().splitlines()[seen[0] :]
        seen[0] += len(found)
        return [one for one in map(json.loads, found) if "interaction" in one]

    return records


def once(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    assert client.post(path, json=body, headers={"if-none-exist": CONDITION}).status_code == 200


def in_a_bundle(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    bundle = {"resourceType": "Bundle", "type": "transaction", "entry": [entry(body, CONDITION)]}
    (answered,) = client.post(path.removesuffix("/Task") or "/", json=bundle).json()["entry"]
    assert answered["response"]["status"] == "200"


@pytest.mark.parametrize("sent", [once, in_a_bundle])
@pytest.mark.parametrize("path", ["/Task", "/fhir/Task"])
def test_a_conditional_create_is_on_record_for_the_patient_whose_resource_it_found(
    fresh_service: Running,
    recorded: Callable[[], list[dict[str, Any]]],
    path: str,
    sent: Callable[[httpx.Client, str, dict[str, Any]], None],
) -> None:
    """EXTRA-OPS-04: the answer says where that resource is, and under `/fhir` shows it."""
    (made,) = send_batch(fresh_service.client, [entry(task(1, **OTHER))])
    recorded()
    sent(fresh_service.client, path, task(1))
    (found,) = recorded()
    assert (found["interaction"], found["status"]) == ("create", 200)
    assert made["location"].endswith(found["id"])
    assert found["patients"] == ["p2", "p1"]


def test_entries_of_a_batch_find_the_patient_that_earlier_ones_gave_a_resource(
    fresh_service: Running, recorded: Callable[[], list[dict[str, Any]]]
) -> None:
    """EXTRA-OPS-04, EXTRA-COND-14."""
    (made,) = send_batch(fresh_service.client, [entry(task(1))])
    path = f"Task/{made['location'].rpartition('/')[2]}"
    recorded()
    given = {"resource": task(1, **OTHER), "request": {"method": "PUT", "url": path}}
    new, again = (entry(task(2, **change), "identifier=urn:test|2") for change in (OTHER, {}))
    send_batch(fresh_service.client, [given, entry(task(1), CONDITION), new, again])
    assert [one["patients"] for one in recorded()] == [["p2", "p1"], ["p2", "p1"], ["p2"], ["p2", "p1"]]


@pytest.mark.parametrize("path", ["/PaymentNotice/$validate", "/fhir/PaymentNotice/$validate"])
@pytest.mark.parametrize("change", [{}, {"created": 7}])
def test_the_audit_names_the_patient_whose_balance_a_validation_reveals(
    fresh_service: Running, recorded: Callable[[], list[dict[str, Any]]], path: str, change: dict[str, Any]
) -> None:
    """EXTRA-OPS-04: its problems tell whether an amount is above the patient's balance."""
    answer = fresh_service.client.post(path, json=payment(10**8) | change)
    assert "the payment is above the balance owed" in answer.text
    (found,) = recorded()
    assert (found["interaction"], found["type"], found["status"]) == ("validate", "PaymentNotice", 200)
    assert found["patients"] == ["p1"]


@pytest.mark.parametrize(
    "body", [[], {"resourceType": "Task", "for": 7}, task(1, **{"for": {"reference": "Patient/x"}})]
)
def test_a_validation_of_any_body_is_on_record(
    fresh_service: Running, recorded: Callable[[], list[dict[str, Any]]], body: Any
) -> None:
    """EXTRA-OPS-04: a patient whom the store does not know is replaced by a keyed hash."""
    assert fresh_service.client.post("/Task/$validate", json=body).status_code == 200
    (found,) = recorded()
    assert all(patient.startswith("unknown-") for patient in found.get("patients", ()))
    assert found["status"] == 200

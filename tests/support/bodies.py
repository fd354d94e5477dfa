"""Bodies of creates, entries of batches, and totals of searches, for tests of the service."""

from typing import Any

import httpx

TASK: dict[str, Any] = {
    "resourceType": "Task",
    "status": "requested",
    "intent": "unknown",
    "description": "x",
    "requester": {"reference": "Practitioner/dr1"},
}
"""A task with its required elements only."""


def task(number: int, **changed: Any) -> dict[str, Any]:
    body = {
        "resourceType": "Task",
        "status": "requested",
        "intent": "unknown",
        "description": f"task {number}",
        "for": {"reference": "Patient/p1"},
        "requester": {"reference": "Practitioner/dr1"},
        "identifier": [{"system": "urn:test", "value": str(number)}],
        "input": [{"type": {"text": "label"}, "valueString": f"label {number}"}],
    }
    return body | changed


def payment(cents: int, patient: str = "p1") -> dict[str, Any]:
    return {
        "resourceType": "PaymentNotice",
        "status": "active",
        "request": {"reference": f"Patient/{patient}"},
        "created": "2026-01-01",
        "payment": {},
        "recipient": {},
        "amount": {"value": cents / 100},
    }


def entry(resource: dict[str, Any], condition: str | None = None) -> dict[str, Any]:
    request = {"method": "POST", "url": resource["resourceType"]}
    return {"resource": resource, "request": request | ({"ifNoneExist": condition} if condition else {})}


def send(client: httpx.Client, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answer = client.post("/", json={"resourceType": "Bundle", "type": "batch", "entry": entries})
    assert answer.status_code == 200, answer.text
    return [found["response"] for found in answer.json()["entry"]]


def total(client: httpx.Client, query: str) -> int:
    found: int = client.get(query).json()["total"]
    return found

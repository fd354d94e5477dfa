"""Additions to the interface: $validate and history."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from fhir_service.interactions import history
from tests.conftest import BOTH, Running
from tests.support.bodies import payment, task, total

STORES = BOTH
pytestmark = pytest.mark.crossed


def validated(running: Running, body: dict[str, Any]) -> list[dict[str, Any]]:
    answer = running.client.post(f"/{body['resourceType']}/$validate", json=body)
    assert answer.status_code == 200, answer.text
    issues: list[dict[str, Any]] = answer.json()["issue"]
    return issues


def test_a_faultless_body_gives_one_information(fresh_service: Running) -> None:
    """EXTRA-VALIDATE-03, EXTRA-VALIDATE-04: and nothing is stored."""
    assert [issue["severity"] for issue in validated(fresh_service, task(1))] == ["information"]
    assert total(fresh_service.client, "/Task?_count=0") == 0


@pytest.mark.parametrize(
    "body",
    [
        task(1, status="draft", intent="order"),
        task(1, status=None, unknown=1),
        task(1, requester={"reference": "Practitioner/nobody"}, status="x"),
        payment(10**9),
        payment(1, patient="nobody"),
    ],
)
def test_all_problems_are_listed_the_one_of_a_create_first(fresh_service: Running, body: dict[str, Any]) -> None:
    """EXTRA-VALIDATE-01, EXTRA-VALIDATE-02."""
    issues = validated(fresh_service, body)
    created = fresh_service.client.post(f"/{body['resourceType']}", json=body)
    assert created.json()["issue"][0] == issues[0]


@pytest.mark.parametrize(("amount", "problems"), [("1E+999999", 2), ("-1E+999999", 1), ("1E-999999", 1)])
def test_amounts_beyond_what_can_be_computed_with_are_only_compared(
    fresh_service: Running, amount: str, problems: int
) -> None:
    """EXTRA-VALIDATE-02, PAY-25, PAY-28, PAY-CREATE-04: every rule is asked of them."""
    text = json.dumps(payment(1) | {"amount": {"value": "?", "currency": "USD"}}).replace('"?"', amount)
    headers = {"content-type": "application/json"}
    answer = fresh_service.client.post("/PaymentNotice/$validate", content=text, headers=headers)
    assert answer.status_code == 200
    found = [issue["expression"] for issue in answer.json()["issue"]]
    assert found == [["PaymentNotice.amount.value"]] * problems


def test_several_problems_are_reported_together(fresh_service: Running) -> None:
    """EXTRA-VALIDATE-02."""
    body = task(1, status="draft", intent="order", requester={"reference": "Practitioner/no"})
    issues = validated(fresh_service, body)
    assert [issue["expression"] for issue in issues] == [["Task.status"], ["Task.intent"], ["Task.requester"]]


def test_history_shows_every_version_newest_first(fresh_service: Running) -> None:
    """EXTRA-HISTORY-02, EXTRA-HISTORY-03, EXTRA-HISTORY-06, STATE-TASK-03."""
    client = fresh_service.client
    location = client.post("/Task", json=task(1)).headers["location"]
    task_id = location.rpartition("/")[2]
    for status in ("completed", "cancelled"):
        assert client.put(f"/Task/{task_id}", json=task(1, status=status)).status_code == 200
    other = client.post("/Task", json=task(2)).headers["location"].rpartition("/")[2]
    bundle = client.get(f"/Task/{task_id}/_history").json()
    assert (bundle["type"], bundle["total"]) == ("history", 3)
    shown = [(e["resource"]["status"], e["request"]["method"], e["response"]["etag"]) for e in bundle["entry"]]
    assert shown == [
        ("cancelled", "PUT", 'W/"3"'),
        ("completed", "PUT", 'W/"2"'),
        ("requested", "POST", 'W/"1"'),
    ]
    everything = client.get("/Task/_history").json()
    assert [entry["resource"]["id"] for entry in everything["entry"]] == [other, task_id, task_id, task_id]
    second = datetime.fromisoformat(bundle["entry"][1]["response"]["lastModified"])
    for later, expected in ((history.REACH, 3), (history.REACH + timedelta(microseconds=1), 2)):
        since = client.get("/Task/_history", params={"_since": (second + later).isoformat()}).json()
        assert since["total"] == expected


def test_history_is_paged_like_a_search(fresh_service: Running) -> None:
    """EXTRA-HISTORY-04."""
    for n in range(5):
        fresh_service.client.post("/Task", json=task(n))
    url, seen = "/Task/_history?_count=2", []
    while url:
        page = fresh_service.client.get(url).json()
        seen += [entry["resource"]["description"] for entry in page.get("entry", ())]
        url = next((link["url"] for link in page["link"] if link["relation"] == "next"), "")
    assert seen == [f"task {n}" for n in (4, 3, 2, 1, 0)]


@pytest.mark.parametrize(
    ("path", "status"),
    [("/Task/none/_history", 404), ("/Questionnaire/_history", 404), ("/Task/_history?_since=yesterday", 400),
     ("/Task/_history?status=requested", 400)],
)  # fmt: skip
def test_histories_that_do_not_exist_or_are_asked_for_wrongly_are_refused(
    fresh_service: Running, path: str, status: int
) -> None:
    """EXTRA-HISTORY-05."""
    assert fresh_service.client.get(path).status_code == status

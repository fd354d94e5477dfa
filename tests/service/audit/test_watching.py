"""The audit, metrics and log of requests: who, what and when, but never content."""

import json
import logging
import re
from typing import Any

import pytest
from click.testing import CliRunner

from fhir_service.__main__ import main
from tests.conftest import Running
from tests.support.bodies import entry, payment, send, task

MARKER = "Zebulon-Secret"


def records(running: Running, *options: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(main, ["audit", "--store", running.service.settings.store, *options])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.output.splitlines()]


def test_every_write_read_and_search_leaves_a_record_without_content(fresh_service: Running) -> None:
    """EXTRA-OPS-03, EXTRA-OPS-04, EXTRA-OPS-05."""
    client = fresh_service.client
    correlation = {"x-correlation-id": "the-one"}
    location = client.post("/Task", json=task(1, description=MARKER), headers=correlation).headers["location"]
    task_id = location.rpartition("/")[2]
    client.get(f"/Task/{task_id}")
    client.get("/Task", params={"description": MARKER})
    client.post("/PaymentNotice", json=payment(10**9))
    send(client, [entry(task(2)), entry(task(3, status="draft"))])
    client.put(f"/Task/{task_id}", json=task(1, status="completed"))
    found = records(fresh_service, "--patient", "Patient/p1")
    shown = [(r["interaction"], r["type"], r["status"]) for r in found]
    assert shown == [
        ("create", "Task", 201),
        ("read", "Task", 200),
        ("search", "Task", 200),
        ("create", "PaymentNotice", 422),
        ("create", "Task", 201),
        ("create", "Task", 422),
        ("update", "Task", 200),
    ]
    assert found[0]["correlation"] == "the-one"
    assert found[0]["id"] == task_id
    assert MARKER not in json.dumps(records(fresh_service))


def test_a_task_that_an_update_takes_from_a_patient_is_on_record_for_both(fresh_service: Running) -> None:
    """EXTRA-OPS-03"""
    location = fresh_service.client.post("/Task", json=task(1)).headers["location"]
    moved = task(1) | {"for": {"reference": "Patient/p2"}}
    assert fresh_service.client.put(location, json=moved).status_code == 200
    for patient in ("p1", "p2"):
        assert records(fresh_service, "--patient", patient)[-1]["patients"] == ["p2", "p1"]


@pytest.mark.parametrize("path", ["/Task/{}", "/Task/{}/_history", "/DiagnosticReport/{}/files/presentedForm/0"])
def test_the_audit_records_an_unknown_id_as_a_hash(fresh_service: Running, path: str) -> None:
    """EXTRA-OPS-03: it may be a name that was typed into the address."""
    found = []
    for name in ("Walker", "Walker", "Miller"):
        assert fresh_service.client.get(path.format(name)).status_code == 404
        found.append(records(fresh_service)[-1]["id"])
    assert found[0] == found[1] != found[2]
    assert all(re.fullmatch(r"unknown-[0-9a-f]{16}", each) for each in found)


def test_the_audit_can_be_asked_by_client_and_time(fresh_service: Running) -> None:
    fresh_service.client.get("/Task")
    (record,) = records(fresh_service)
    assert records(fresh_service, "--client", record["client"]) == [record]
    assert records(fresh_service, "--client", "nobody") == []
    assert records(fresh_service, "--since", "2999-01-01") == []
    assert records(fresh_service, "--since", record["time"]) == [record]


def test_metrics_count_requests_by_template_and_need_a_token(fresh_service: Running) -> None:
    """EXTRA-OPS-02, AUTH-25."""
    client = fresh_service.client
    client.get(f"/Task/{MARKER}")
    client.get("/Task", params={"description": MARKER})
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'fhir_requests_total{method="GET",path="/Task/{id}",status="404"} 1.0' in answer.text
    assert MARKER not in answer.text
    assert client.get("/metrics", headers={"authorization": ""}).status_code == 401


def test_a_request_is_logged_on_one_line_without_query_or_body(
    fresh_service: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="fhir_service.access"):
        fresh_service.client.get("/Task", params={"description": MARKER}, headers={"x-correlation-id": "c-1"})
    (line,) = [record.getMessage() for record in caplog.records if record.name == "fhir_service.access"]
    shown = json.loads(line)
    assert set(shown) == {"time", "method", "path", "status", "ms", "client", "correlation"}
    assert (shown["method"], shown["path"], shown["status"], shown["correlation"]) == ("GET", "/Task", 200, "c-1")
    assert MARKER not in caplog.text


@pytest.mark.parametrize("key", ["a|b", "a,b", "a\\b", "a$b", "a b&c=d", "ключ", "a\\,b|c", "%7C", "+"])
def test_keys_of_any_characters_are_found_again(fresh_service: Running, key: str) -> None:
    """SEARCH-TOKEN-06, EXTRA-COND-09: escaped as FHIR has it, then percent-encoded."""
    from urllib.parse import quote

    escaped = key.replace("\\", "\\\\").replace(",", "\\,").replace("|", "\\|").replace("$", "\\$")
    body = task(1, identifier=[{"system": "urn:test", "value": key}])
    headers = {"if-none-exist": f"identifier=urn:test|{quote(escaped, safe='')}"}
    made = [fresh_service.client.post("/Task", json=body, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in made] == [201, 200]
    found = fresh_service.client.get("/Task", params={"identifier": f"urn:test|{escaped}"}).json()
    assert found["total"] == 1

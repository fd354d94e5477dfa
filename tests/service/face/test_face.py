"""The R4 face beside the interface: the same audit and rights, valid R4, and nothing where it is switched off."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpcore
import pytest
from fhir.resources.R4B import get_fhir_model_class

from fhir_service.audit.records import read
from fhir_service.face import including
from fhir_service.face.statement import face_statement
from fhir_service.interface.outcomes import UNAVAILABLE, FhirError
from fhir_service.requests import showing
from fhir_service.settings import Settings
from fhir_service.web.http import FACE
from tests.conftest import Running, running
from tests.support import loopback
from tests.support.bodies import entry, payment, task, total
from tests.support.fuzz import Fuzzer
from tests.support.senders import Sender


def of_patient(body: dict[str, Any]) -> dict[str, Any]:
    return body | {"for": {"reference": "Patient/p1"}}


def test_the_audit_records_requests_to_the_face_as_those_to_the_interface(fresh_service: Running) -> None:
    """EXTRA-R4-01, EXTRA-OPS-03: the resource in the answer to a write is no further read."""

    def acted(below: str) -> list[dict[str, Any]]:
        client, path = fresh_service.client, fresh_service.service.audit.path
        before = len(list(read(path, None, None, None)))
        made = client.post(f"{below}/Task", json=of_patient(task(1))).headers["location"].rpartition("/")[2]
        for one in (
            client.put(f"{below}/Task/{made}", json=of_patient(task(1, status="completed"))),
            client.get(f"{below}/Task/{made}"),
            client.get(f"{below}/Task?patient=p1"),
            client.get(f"{below}/Task/{made}/_history"),
            client.get(f"{below}/Task/none"),
            client.post(f"{below}/Task", json=task(1, status="draft")),
            client.post(f"{below}/", json={"resourceType": "Bundle", "type": "batch", "entry": [entry(task(2))]}),
        ):
            assert one.status_code in (200, 404, 422)
        told = list(read(path, None, None, None))[before:]
        kept = ("interaction", "type", "status", "patients")
        return [{name: line[name] for name in kept if name in line} for line in told]

    assert acted("/fhir") == acted("")


def test_a_create_that_is_stored_answers_201_even_if_it_cannot_be_read_back(
    fresh_service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EXTRA-R4-02: a 503 would mean that nothing was stored."""

    async def fails(*_: Any) -> None:
        raise FhirError(UNAVAILABLE)

    monkeypatch.setattr(showing, "current", fails)
    made = fresh_service.client.post("/fhir/Task", json=task(1))
    assert (made.status_code, made.content) == (201, b"")
    assert made.headers["location"].startswith(f"{fresh_service.url}/fhir/Task/")
    assert total(fresh_service.client, "/Task?_count=0") == 1


def test_the_size_of_included_resources_is_bounded(fresh_service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """EXTRA-R4-03, LIMIT-18: patients with photographs filled the memory."""
    for patient in ("p1", "p2"):
        assert fresh_service.client.post(
            "/Task", json=task(1, **{"for": {"reference": f"Patient/{patient}"}})
        ).is_success
    monkeypatch.setattr(including, "MOST", 1)
    refused = fresh_service.client.get("/fhir/Task?_include=Task:patient")
    assert (refused.status_code, refused.json()["issue"][0]["diagnostics"]) == (
        413,
        "the resources to include are too large: ask for fewer with _count",
    )
    one = fresh_service.client.get("/fhir/Task?_include=Task:patient&_count=1").json()
    assert [entry["search"]["mode"] for entry in one["entry"]] == ["match", "include"]


def test_a_batch_answers_with_no_more_than_there_is_room_for(tmp_path: Path) -> None:
    """EXTRA-R4-02, LIMIT-14: short conditions that find long tasks would make an answer without bound."""
    with running(tmp_path, max_batch=20_000) as service:
        for number in range(6):
            service.client.post("/fhir/Task", json=task(number, description="x" * 6_000)).raise_for_status()
        entries = [entry(task(number), f"identifier=urn:test|{number}") for number in range(6)]
        answer = service.client.post("/fhir", json={"resourceType": "Bundle", "type": "batch", "entry": entries})
        assert len(answer.content) < 22_000
        assert ["resource" in one for one in answer.json()["entry"]] == [True] * 3 + [False] * 3
        assert {one["response"]["etag"] for one in answer.json()["entry"]} == {'W/"1"'}


def test_the_statement_is_valid_R4_and_says_what_the_face_takes() -> None:
    """EXTRA-R4-01"""
    statement = face_statement(Settings("s"), "an-id", "1.2.3")
    get_fhir_model_class("CapabilityStatement").model_validate(statement)
    assert statement["implementation"] == {"description": "urn:uuid:an-id", "url": "http://127.0.0.1:8400/fhir"}
    shown = {one["type"]: one for one in statement["rest"][0]["resource"]}
    assert {one["conditionalRead"] for one in shown.values()} == {"not-match"}
    assert [
        name for name, one in shown.items() if {"name": "_lastUpdated", "type": "date"} not in one["searchParam"]
    ] == []
    assert {name: one.get("searchInclude") for name, one in shown.items()} == {
        "Task": ["Task:owner", "Task:patient", "Task:requester"],
        "PaymentNotice": ["PaymentNotice:request"],
        "Observation": ["Observation:patient"],
        "Questionnaire": None,
        "QuestionnaireResponse": ["QuestionnaireResponse:patient", "QuestionnaireResponse:questionnaire"],
        "DiagnosticReport": ["DiagnosticReport:patient"],
    }


@pytest.mark.parametrize(
    "query", ["Task?_include=*", "PaymentNotice?_summary=true", "DiagnosticReport?_summary=data", "Questionnaire",
              "DiagnosticReport?_elements=subject&_include=*", "Task/_history", "Task?_count=0"],
)  # fmt: skip
def test_bundles_of_the_face_are_valid_R4(service: Running, query: str) -> None:
    """EXTRA-R4-02, EXTRA-R4-03"""
    service.client.post("/fhir/Task", json=of_patient(task(1))).raise_for_status()
    service.client.post("/fhir/PaymentNotice", json=payment(1, "p7")).raise_for_status()
    bundle = service.client.get(f"/fhir/{query}").json()
    get_fhir_model_class("Bundle").model_validate(bundle)
    assert bundle["total"]


def test_the_bare_interface_has_no_face(tmp_path: Path) -> None:
    """EXTRA-02"""
    with running(tmp_path, interface_only=True) as service:
        for path in ("/fhir/Task", "/fhir/metadata", "/fhir", "/fhir/"):
            assert service.client.get(path).status_code == 404
        assert loopback.get(f"{service.url}/fhir/metadata").status_code == 401


def test_links_of_the_face_lead_below_the_base_url(tmp_path: Path) -> None:
    """EXTRA-R4-02, COMMON-18"""
    with running(tmp_path, base_url="https://clinic.example/records") as service:
        made = service.client.post("/records/fhir/Task", json=task(1))
        assert made.headers["location"].startswith("https://clinic.example/records/fhir/Task/")
        page = service.client.get("/fhir/Task?_count=1").json()
        assert page["link"][0]["url"] == "https://clinic.example/records/fhir/Task?_count=1&_offset=0"
        below = page["link"][0]["url"].removeprefix("https://clinic.example")
        assert service.client.get(below).json() == page
        assert (
            loopback.get(f"{service.url}/records/fhir/metadata")
            .json()["implementation"]["url"]
            .endswith("/records/fhir")
        )


def test_below_a_base_url_called_fhir_are_the_interface_and_its_face(tmp_path: Path) -> None:
    """EXTRA-R4-02, COMMON-18: the interface's paths are what they were before there was a face."""
    with running(tmp_path, base_url="https://clinic.example/fhir") as service:
        made = service.client.post("/fhir/Task", json=task(1))
        assert (made.content, made.headers["location"][:33]) == (b"null", "https://clinic.example/fhir/Task/")
        batch = {"resourceType": "Bundle", "type": "batch", "entry": [entry(task(2))]}
        assert "resource" not in service.client.post("/fhir", json=batch).json()["entry"][0]
        faced = service.client.post("/fhir/fhir/Task", json=task(3))
        assert faced.headers["location"] == f"https://clinic.example/fhir/fhir/Task/{faced.json()['id']}"


GENERAL = {
    "_format": ["json", "xml", "", "application/fhir json", "\x00"],
    "_pretty": ["true", "false", "1"],
    "_summary": ["true", "text", "data", "count", "false", "TRUE"],
    "_elements": ["id", "status,description", "", "é", ",", "a" * 200, ",".join("abcdefgh" * 20)],
    "_total": ["none", "accurate", ""],
    "_totalMethod": ["count", "\ud800"],
    "_include": ["*", "Task:patient", "Task:patient:Patient", "Task", ":", "::", "PaymentNotice:request", "\x00"],
    "_lastUpdated": ["ge2020", "lt2100-01-01T00:00:00Z", "sa2020", "9999999", "ge2020-01-01,2021"],
    "_sort": ["_lastUpdated", "-_lastUpdated", "--_lastUpdated", "_lastUpdated,_id"],
}


def test_odd_requests_are_answered_by_what_they_ask_for_or_by_an_outcome(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ERR-01, ERR-02, EXTRA-R4-03"""
    fuzzer, statuses, faults = Fuzzer(20261123, service.url), Counter[int](), []
    with httpcore.ConnectionPool() as pool:
        sender = Sender(service, pool)
        for _ in range(300):
            sent = fuzzer.request()
            most = 2 if sent.method == "GET" else fuzzer.random.choice([0, 0, 0, 1])
            names = fuzzer.random.sample(list(GENERAL), fuzzer.random.randint(0, most))
            general = [(name, fuzzer.random.choice(GENERAL[name])) for name in names]
            query = urlencode(general, errors="surrogatepass")
            target = FACE + sent.target + (("&" if "?" in sent.target else "?") + query if query else "")
            response = sender.send(replace(sent, target=target))
            statuses[response.status_code] += 1
            fuzzer.learn(response)
            content = response.content
            sound = response.status_code == 304 or sent.method == "HEAD" or content[:1] == b"{"
            if response.status_code >= 500 or b"Traceback" in content or not sound:
                faults.append(f"{sent.method} {target[:200]}: {response.status_code} {response.text[:200]}")
    assert not faults, "\n".join(faults[:10])
    assert set(statuses) >= {200, 201, 400, 404, 405, 406, 422}

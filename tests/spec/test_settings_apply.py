"""The effects of a service's settings on its callers: placeholders, additions, limits."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fhir_service.settings import SettingError, Settings
from tests.conftest import Running, running
from tests.spec.casebook import cases, filled, from_json, outcomes, to_json
from tests.spec.matching import differences
from tests.spec.test_http import JSON
from tests.support import loopback
from tests.support.bodies import TASK

IDENTIFIER = [{"system": "urn:x", "value": "1"}]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts services with settings of the test's own, and ends them after it, also when it fails."""
    started: list[AbstractContextManager[Running]] = []

    def start(**settings: Any) -> Running:
        started.append(running(tmp_path, **settings))
        return started[-1].__enter__()

    yield start
    for service in started:
        service.__exit__(None, None, None)


def post(service: Running, path: str, body: Any, **headers: str) -> httpx.Response:
    return service.client.post(path, content=to_json(body).encode(), headers=JSON | headers)


def is_outcome(response: httpx.Response, name: str) -> None:
    """The response has the status, code and text of a row of the Errors table."""
    row = outcomes()[name]
    body = from_json(response.content)
    issue = {"severity": "error", "code": row["code"], "details": {"text": row["text"]}}
    for free in ("diagnostics", "expression"):
        body["issue"][0].pop(free, None)
    assert response.status_code == row["status"], response.text
    assert body == {"resourceType": "OperationOutcome", "issue": [issue]}


def test_interface_only_switches_the_additions_off(serve: Callable[..., Running]) -> None:
    """EXTRA-02, EXTRA-03, EXTRA-04: and /health and /metadata stay."""
    service = serve(interface_only=True)
    batch = {"resourceType": "Bundle", "type": "batch", "entry": []}
    is_outcome(post(service, "/", batch), "unknown-path")
    is_outcome(post(service, "/Task/$validate", TASK), "unknown-path")
    is_outcome(service.client.get("/metrics"), "unknown-path")
    assert service.client.get("/Task/_history").status_code == 404
    is_outcome(post(service, "/Task", TASK | {"identifier": IDENTIFIER}), "bad-request")
    is_outcome(service.client.get("/Task?identifier=urn:x|1"), "bad-request")
    for _ in range(2):
        assert post(service, "/Task", TASK, **{"if-none-exist": "identifier=urn:x|1"}).status_code == 201
    metadata = service.client.get("/metadata")
    assert metadata.status_code == 200
    assert '"batch"' not in metadata.text
    assert '"conditionalCreate":true' not in metadata.text.replace(" ", "")
    assert service.client.get("/health").status_code == 200


def test_vendor_and_customer_fill_the_placeholders(serve: Callable[..., Running]) -> None:
    """COMMON-60, COMMON-61, COMMON-62: in requests and in responses, whatever name they have."""
    case = next(case for case in cases() if case.id == "task-full")
    service = serve(vendor="acme", customer="north")
    is_outcome(service.client.post("/Task", content=case.text(service.url).encode(), headers=JSON), "bad-request")
    sent = case.text(service.url).replace("schemas.example.com", "schemas.acme.com")
    created = service.client.post("/Task", content=sent.encode(), headers=JSON)
    assert created.status_code == 201, created.text
    read = service.client.get(created.headers["location"].removeprefix(service.url))
    urls = [extension["url"] for extension in from_json(read.content)["extension"]]
    assert urls == [f"http://schemas.acme.com/fhir/extensions/{name}" for name in ("task-group", "task-permalink")]
    assert "example.com" not in read.text
    internal = "http://schemas.north.acme.com/fhir/systems/internal"
    assert internal in service.service.site.systems


def test_body_limits_can_be_set(serve: Callable[..., Running]) -> None:
    """LIMIT-07, LIMIT-08: one for a resource, one for a batch."""
    entry = {"resource": TASK, "request": {"method": "POST", "url": "Task"}}
    batch = {"resourceType": "Bundle", "type": "batch", "entry": [entry] * 4}
    size = len(to_json(batch))
    service = serve(max_body=len(to_json(TASK)), max_batch=size)
    assert post(service, "/Task", TASK).status_code == 201
    is_outcome(post(service, "/Task", TASK | {"description": "xs"}), "too-long")
    assert post(service, "/", batch).status_code == 200
    is_outcome(post(service, "/", batch | {"entry": [entry] * 5}), "too-long")
    assert (Settings("x").max_body, Settings("x").max_batch) == (1024 * 1024, 64 * 1024 * 1024)


def test_the_page_size_can_be_set_up_to_a_thousand(serve: Callable[..., Running]) -> None:
    """BUNDLE-18: and not beyond."""
    service = serve(max_page_size=3)
    bundle = service.client.get("/DiagnosticReport?_count=50").json()
    assert (bundle["total"], len(bundle["entry"])) == (8, 3)
    assert bundle["link"][0]["url"] == "/DiagnosticReport?_count=3&_offset=0"
    assert Settings("x", max_page_size=1000).max_page_size == 1000
    with pytest.raises(SettingError):
        Settings("x", max_page_size=1001)


def test_a_client_above_the_rate_is_asked_to_wait(serve: Callable[..., Running]) -> None:
    """LIMIT-11, LIMIT-12: and others are not."""
    service = serve(requests_per_second=5)
    answers = [service.client.get("/Questionnaire/q-score") for _ in range(60)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert {answer.status_code for answer in answers} == {200, 429}
    expected = {"severity": "error", "code": "throttled", "details": {"text": "Too many requests"}}
    body = from_json(refused[0].content)
    body["issue"][0].pop("diagnostics", None)
    assert body == {"resourceType": "OperationOutcome", "issue": [expected]}
    assert int(refused[0].headers["retry-after"]) >= 1
    other = service.service.auth.add_client("other")
    form = {"grant_type": "client_credentials", "client_id": other["client_id"]}
    token = loopback.post(f"{service.url}/auth/token", data=form | {"client_secret": other["client_secret"]}).json()
    headers = {"authorization": f"Bearer {token['access_token']}"}
    assert loopback.get(f"{service.url}/Questionnaire/q-score", headers=headers).status_code == 200


def test_without_a_setting_there_is_no_rate(service: Running) -> None:
    """LIMIT-10: no call answers 429."""
    assert {service.client.get("/Questionnaire/q-score").status_code for _ in range(200)} == {200}


def test_the_answer_to_a_fault_of_the_service_has_no_details(
    fresh_service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ERR-500-01, ERR-500-02: an outcome, the correlation id, no stack trace."""

    def broken() -> None:
        raise RuntimeError("Quill in the store")

    monkeypatch.setattr(fresh_service.service.store, "read", broken)
    response = fresh_service.client.get("/Task", headers={"x-correlation-id": "of-a-fault"})
    issue = {"severity": "error", "code": "exception", "details": {"text": "Internal server error"}}
    expected = {"resourceType": "OperationOutcome", "issue": [issue]}
    body = from_json(response.content)
    assert "of-a-fault" in body["issue"][0].pop("diagnostics", "of-a-fault")
    assert (response.status_code, body) == (500, expected)
    assert response.headers["x-correlation-id"] == "of-a-fault"
    assert "Quill" not in response.text
    assert "Traceback" not in response.text


def test_a_refused_create_stores_nothing(fresh_service: Running) -> None:
    """QR-CREATE-17, PAY-CREATE-04, ERR-422-01: neither a resource nor a note."""
    tables = ("note", "history", "record")
    before = _counts(fresh_service, tables)
    for case in cases():
        if case.interaction == "create" and case.expected.outcome and not case.balances:
            text = case.text(fresh_service.url).encode()
            status = fresh_service.client.post(f"/{case.resource}", content=text, headers=JSON).status_code
            assert status == case.expected.row["status"], case.id
    for resource in ("Task", "PaymentNotice", "QuestionnaireResponse"):
        found = from_json(fresh_service.client.get(f"/{resource}?_count=0").content)
        assert differences({"resourceType": "Bundle", "type": "searchset", "total": 0}, found, {}) == []
    assert _counts(fresh_service, tables) == before


def _counts(service: Running, tables: tuple[str, ...]) -> dict[str, int]:
    with service.service.store.read() as connection:
        return {name: connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar_one() for name in tables}


def test_the_base_of_a_case_is_accepted_with_its_words_filled_in(fresh_service: Running) -> None:
    """COMMON-59: the default base URL is the address that the service listens on."""
    assert Settings("x").site.base_url == "http://127.0.0.1:8400"
    assert filled("{base_url}", base_url=fresh_service.url).startswith("http://127.0.0.1:")

"""Reads and searches in a batch: each answers as the single request would, of what the entries before it left."""

import json
from pathlib import Path
from typing import Any

import pytest

from fhir_service.interactions import batch
from tests.conftest import BOTH, Running, running
from tests.support import loopback
from tests.support.bodies import entry, send, task

STORES = BOTH
pytestmark = pytest.mark.crossed


def get(url: str) -> dict[str, Any]:
    return {"request": {"method": "GET", "url": url}}


def sent(service: Running, *entries: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    body = {"resourceType": "Bundle", "type": "batch", "entry": list(entries)}
    answer = service.client.post("/", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["entry"]
    return found


@pytest.mark.parametrize(
    "url",
    [
        "DiagnosticReport/r1",
        "/Questionnaire/q-score",
        "Questionnaire?name=Score",
        "DiagnosticReport?category=http%3A%2F%2Floinc.org%7CLAB&_count=1&_offset=1",
        "Task",
        "Task/none",
        "Task/a%20b",
        "Task/a%00b",
        "Task?colour=red",
        "Task?_count=-1",
        "Task?description=%ff",
        "Task?description=\u00e9",
        "DiagnosticReport?_count=0",
    ],
)
def test_an_entry_answers_as_the_single_request(service: Running, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """EXTRA-BATCH-08, EXTRA-BATCH-04. An address of a document says when it ends."""
    now = service.service.clock()
    monkeypatch.setattr(service.service.documents, "_clock", lambda: now)
    single = service.client.get(f"/{url.removeprefix('/')}" if url.isascii() else "/Task?description=%ff")
    (answer,) = sent(service, get(url))
    assert answer["response"]["status"] == str(single.status_code)
    if not single.is_success:
        assert answer["response"]["outcome"] == single.json()
        return
    assert answer["resource"] == single.json()
    assert answer["response"].get("etag") == single.headers.get("etag")


def test_a_read_in_a_batch_shows_the_version_and_its_time(service: Running) -> None:
    """EXTRA-BATCH-08, COMMON-51."""
    (answer,) = sent(service, get("DiagnosticReport/r1"))
    assert (answer["response"]["etag"], answer["response"]["lastModified"][-6:]) == ('W/"1"', "+00:00")


def test_entries_see_what_those_before_them_did(fresh_service: Running) -> None:
    """EXTRA-BATCH-03, EXTRA-BATCH-08: and nothing of those after them."""
    (made,) = send(fresh_service.client, [entry(task(1))])
    path = made["location"].removeprefix(f"{fresh_service.url}/")
    change = {"resource": task(1, status="completed"), "request": {"method": "PUT", "url": path}}
    answers = sent(fresh_service, get(path), change, get(path), entry(task(2)), get("Task?_count=0"), entry(task(3)))
    assert [answer["response"]["status"] for answer in answers] == ["200", "200", "200", "201", "200", "201"]
    assert [answers[0]["resource"]["status"], answers[2]["resource"]["status"]] == ["requested", "completed"]
    assert answers[4]["resource"]["total"] == 2


def test_each_entry_needs_its_right(service: Running) -> None:
    """EXTRA-BATCH-07, AUTH-03: a method that is not offered is no way round it."""
    client = service.service.auth.add_client("reads", "system/Task.r")
    form = {"grant_type": "client_credentials"} | {name: client[name] for name in ("client_id", "client_secret")}
    token = loopback.post(f"{service.url}/auth/token", data=form).json()["access_token"]
    urls = [("GET", "Task/none"), ("GET", "Task"), ("GET", "DiagnosticReport/r1"), ("DELETE", "Task/none")]
    entries = [{"request": {"method": method, "url": url}} for method, url in urls]
    answers = sent(service, *entries, authorization=f"Bearer {token}")
    assert [answer["response"]["status"] for answer in answers] == ["404", "403", "403", "403"]


@pytest.mark.parametrize("url", ["Task/", "Task/x/_history", "Patient", "", "http://other/Task", "Task/x/y"])
def test_an_entry_with_an_unknown_address_is_answered_404(service: Running, url: str) -> None:
    """EXTRA-BATCH-08."""
    (answer,) = sent(service, get(url))
    assert answer["response"]["status"] == "404"


def test_reads_of_a_batch_are_audited(service: Running) -> None:
    """EXTRA-OPS-04, EXTRA-BATCH-08: with the patients whom the answers show."""
    sent(service, get("DiagnosticReport/r1"), get("DiagnosticReport?_id=r1"))
    lines = service.service.audit.path.read_text(encoding="utf-8").splitlines()[-2:]
    shown = [json.loads(line) for line in lines]
    patient = service.client.get("/DiagnosticReport/r1").json()["subject"]["reference"].removeprefix("Patient/")
    assert [(one["interaction"], one["type"], one.get("id"), one["patients"]) for one in shown] == [
        ("read", "DiagnosticReport", "r1", [patient]),
        ("search", "DiagnosticReport", None, [patient]),
    ]


def test_an_answer_has_a_bound(tmp_path: Path) -> None:
    """EXTRA-BATCH-08: what goes beyond it is 413, and what is smaller still answered."""
    most = 10_000
    with running(tmp_path, max_batch=most) as service:
        number = most // len(service.client.get("/Questionnaire/q-intake").content)
        answers = sent(service, *[get("Questionnaire/q-intake")] * (number + 1), get("Questionnaire?_count=0"))
        assert [answer["response"]["status"] for answer in answers] == [*["200"] * number, "413", "200"]


@pytest.mark.alike
@pytest.mark.parametrize("name", ["ifMatch", "ifNoneExist"])
@pytest.mark.parametrize("value", [1, None, True, ['W/"1"'], {"a": "b"}])
def test_a_condition_that_is_no_string_is_refused(fresh_service: Running, name: str, value: Any) -> None:
    """EXTRA-BATCH-10: of that entry alone; no update is lost, and no second record made."""
    (made,) = send(fresh_service.client, [entry(task(1))])
    path = made["location"].removeprefix(f"{fresh_service.url}/")
    method, url = ("PUT", path) if name == "ifMatch" else ("POST", "Task")
    odd = {"resource": task(1, status="completed"), "request": {"method": method, "url": url, name: value}}
    answers = sent(fresh_service, odd, entry(task(2)))
    assert [answer["response"]["status"] for answer in answers] == ["400", "201"]
    assert fresh_service.client.get(f"/{path}").json()["status"] == "requested"
    assert fresh_service.client.get("/Task?_count=0").json()["total"] == 2


@pytest.mark.parametrize("name", ["ifNoneExists", "ifnoneexist", "if-none-exist", "if-match", "IfMatch", "_url", ""])
def test_a_condition_that_is_misspelt_is_refused(fresh_service: Running, name: str) -> None:
    """COMMON-37, EXTRA-COND-10: of that entry alone; no update is lost, and no second record made."""
    (made,) = send(fresh_service.client, [entry(task(1))])
    path = made["location"].removeprefix(f"{fresh_service.url}/")
    create = entry(task(1)) | {"request": {"method": "POST", "url": "Task", name: "identifier=urn:test|1"}}
    update = {"resource": task(1, status="completed"), "request": {"method": "PUT", "url": path, name: 'W/"9"'}}
    answers = sent(fresh_service, create, update, entry(task(2)))
    assert [answer["response"]["status"] for answer in answers] == ["400", "400", "201"]
    assert fresh_service.client.get(f"/{path}").json()["status"] == "requested"
    assert fresh_service.client.get("/Task?_count=0").json()["total"] == 2


@pytest.mark.parametrize(
    ("more", "within", "at"),
    [
        ({"entries": []}, {}, "Bundle.entries"),
        ({}, {"ifNoneExist": "identifier=urn:test|1"}, "Bundle.entry[1].ifNoneExist"),
        ({}, {"full url": "urn:uuid:1"}, "Bundle.entry[1].?"),
        ({}, {"fullUrl": 5}, "Bundle.entry[1].fullUrl"),
        ({}, {"fullUrl": ""}, "Bundle.entry[1].fullUrl"),
    ],
)
@pytest.mark.parametrize("blanks", [0, 2 << 20], ids=["small", "large"])
def test_a_bundle_with_an_element_that_is_none_of_its_own_is_refused_as_a_whole(
    service: Running, more: dict[str, Any], within: dict[str, Any], at: str, blanks: int
) -> None:
    """COMMON-37, EXTRA-BATCH-06, EXTRA-COND-10: a condition beside the request made a second record."""
    before = service.client.get("/Task?_count=0").json()["total"]
    bundle = {"resourceType": "Bundle", "type": "batch", "entry": [entry(task(1)), entry(task(1)) | within]} | more
    raw = json.dumps(bundle).encode() + b" " * blanks
    answer = service.client.post("/", content=raw, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["issue"][0]["expression"]) == (400, [at])
    assert service.client.get("/Task?_count=0").json()["total"] == before


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"url": "Task"}, "the request has no method"),
        ({"method": 5, "url": "Task"}, "method must be a string"),
        ({"method": "POST"}, "the request has no url"),
        ({"method": "POST", "url": None}, "url must be a string"),
    ],
)
def test_a_request_without_method_or_url_is_a_bad_request(service: Running, asked: dict[str, Any], why: str) -> None:
    """COMMON-35, COMMON-38: of that entry alone."""
    first, second = sent(service, {"resource": task(1), "request": asked}, entry(task(2)))
    assert (first["response"]["status"], first["response"]["outcome"]["issue"][0]["diagnostics"]) == ("400", why)
    assert second["response"]["status"] == "201"


def test_the_answer_to_an_empty_batch_has_no_entries(service: Running) -> None:
    """COMMON-42: no array of FHIR is empty."""
    answer = service.client.post("/", json={"resourceType": "Bundle", "type": "batch"})
    assert answer.json() == {"resourceType": "Bundle", "type": "batch-response"}


@pytest.mark.parametrize("below", ["", "/fhir"])
def test_a_fault_of_the_store_is_the_outcome_of_the_reads_of_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    """EXTRA-BATCH-08, EXTRA-R4-02, EXTRA-OPS-03: what was written beside it is answered, and is on record."""

    def fails(*_: Any, **__: Any) -> Any:
        raise MemoryError

    with running(tmp_path) as service:
        path = send(service.client, [entry(task(1))])[0]["location"].removeprefix(f"{service.url}/")
        change = {"resource": task(1, status="completed"), "request": {"method": "PUT", "url": path}}
        body = {"resourceType": "Bundle", "type": "batch", "entry": [change, get("Task/none"), get("Task"), change]}
        monkeypatch.setattr(service.service.store, "read", fails)
        answer = service.client.post(f"{below}/", json=body, headers={"prefer": "return=representation"})
        assert [one["response"]["status"] for one in answer.json()["entry"]] == ["200", "500", "500", "200"]
        lines = service.service.audit.path.read_text(encoding="utf-8").splitlines()[-4:]
        shown = [(one["interaction"], one["status"]) for one in map(json.loads, lines)]
        assert shown == [("update", 200), ("read", 500), ("search", 500), ("update", 200)]


def test_stored_entries_are_audited_although_the_answer_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EXTRA-OPS-03: as stored."""

    def fails(*_: Any, **__: Any) -> Any:
        raise MemoryError

    with running(tmp_path) as service:
        monkeypatch.setattr(batch, "answer", fails)
        body = {"resourceType": "Bundle", "type": "transaction", "entry": [entry(task(1))]}
        assert service.client.post("/", json=body).status_code == 500
        found = json.loads(service.service.audit.path.read_text(encoding="utf-8").splitlines()[-1])
        made = service.client.get("/Task").json()["entry"][0]["resource"]["id"]
        assert (found["interaction"], found["id"], found["status"]) == ("create", made, 201)


def test_the_total_time_for_the_reads_of_a_batch_is_bounded(tmp_path: Path) -> None:
    """LIMIT-15: reads not begun by then are refused, and writes after them are carried out."""
    with running(tmp_path, read_seconds=1) as service:
        searches = [get(f"DiagnosticReport?_count=100&date=ge2020-01-01&date=lt{1000 + n}") for n in range(4_998)]
        *answers, last, written = (one["response"] for one in sent(service, *searches, get("Task"), entry(task(1))))
    assert [answers[0]["status"], last["status"], written["status"]] == ["200", "503", "201"]
    assert last["outcome"]["issue"][0]["code"] == "transient"
    statuses = [one["status"] for one in answers]
    assert statuses == sorted(statuses)

"""Bundles: how many entries they may have, what empty ones cost, what the audit keeps of them."""

import json
import tracemalloc
from typing import Any

import pytest

from fhir_service.batches.requests import understood
from fhir_service.interactions import batch
from fhir_service.interface.outcomes import FhirError
from fhir_service.interface.scopes import EVERYTHING, Caller
from fhir_service.writing import commits
from fhir_service.writing.contending import Contender, InDoubt
from tests.conftest import BOTH, Running
from tests.support import loopback
from tests.support.bodies import task, total

STORES = BOTH


def bundle(entries: list[Any]) -> bytes:
    return json.dumps({"resourceType": "Bundle", "type": "batch", "entry": entries}).encode()


def entry(number: int, **more: Any) -> dict[str, Any]:
    return {"request": {"method": "POST", "url": "Task"}, "resource": task(number, **more)}


def sent(running: Running, raw: bytes) -> Any:
    return running.client.post("/", content=raw, headers={"content-type": "application/json"})


@pytest.mark.parametrize("more", [{}, {"unknown": 1}], ids=["plain", "not plain"])
def test_a_bundle_of_too_many_entries_is_refused_as_a_whole(service: Running, more: dict[str, Any]) -> None:
    """EXTRA-BATCH-09"""
    before = total(service.client, "/Task?_count=0")
    answer = sent(service, bundle([entry(1, **more)] * (batch.MOST_ENTRIES + 1)))
    (issue,) = answer.json()["issue"]
    assert (answer.status_code, issue["code"]) == (413, "too-long")
    assert issue["diagnostics"] == "a Bundle may have at most 5,000 entries: send several Bundles"
    assert total(service.client, "/Task?_count=0") == before


def test_a_bundle_with_the_largest_number_of_entries_is_accepted(service: Running) -> None:
    """EXTRA-BATCH-09"""
    answer = sent(service, bundle([{"request": {"method": "GET", "url": "Nothing/x"}}] * batch.MOST_ENTRIES))
    assert {each["response"]["status"] for each in answer.json()["entry"]} == {"404"}


def test_empty_entries_without_end_are_refused_before_they_are_read() -> None:
    """LIMIT-14: each took 450 times its size."""
    raw = b'{"resourceType":"Bundle","type":"batch","entry":[' + b",".join([b"{}"] * 1_400_000) + b"]}"
    tracemalloc.start()
    with pytest.raises(FhirError):
        batch.refuse_too_many_parts(raw)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    batch.refuse_too_many_parts(bundle([entry(number) for number in range(batch.MOST_ENTRIES)]))


@pytest.mark.parametrize("where", ["x", "entry"])
def test_values_without_end_are_refused_before_they_are_read(service: Running, where: str) -> None:
    """LIMIT-14: each number took seventy times its size."""
    raw = b'{"resourceType":"Bundle","type":"batch","%b":[%b]}'
    many = raw % (where.encode(), b",".join([b"1"] * (batch.MOST_COMMAS + 2)))
    tracemalloc.start()
    with pytest.raises(FhirError) as raised:
        understood(service.service, many, Caller("c", EVERYTHING))
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    assert (
        raised.value.diagnostics
        == "a Bundle may have at most 3,000,000 values (commas are counted): send several Bundles"
    )
    assert sent(service, many).status_code == 413


def test_a_bundle_of_large_responses_has_fewer_values() -> None:
    """EXTRA-BATCH-09: items with one answer each, as dense as they come, up to the limit of a body."""
    item = b'{"linkId":"q12","answer":[{"valueDecimal":1}]},'
    batch.refuse_too_many_values(item * ((64 << 20) // len(item)))


@pytest.mark.parametrize(("scope", "status"), [("system/*.rs", 413), ("system/Task.r system/Task.u", 200)])
def test_a_client_without_write_rights_cannot_send_a_large_bundle(
    fresh_service: Running, scope: str, status: int
) -> None:
    """AUTH-06, LIMIT-07: its body is not read."""
    client = fresh_service.service.auth.add_client("reader", scope)
    form = {"grant_type": "client_credentials"} | {key: client[key] for key in ("client_id", "client_secret")}
    token = loopback.post(f"{fresh_service.url}/auth/token", data=form).json()["access_token"]
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    entries = [{"request": {"method": "GET", "url": "Task?_count=0"}}]
    for size, expected in [(1_000, 200), (fresh_service.service.settings.max_body, status)]:
        raw = bundle(entries) + b" " * size
        assert fresh_service.client.post("/", content=raw, headers=headers).status_code == expected


def test_many_empty_entries_are_counted_before_each_is_looked_at() -> None:
    """EXTRA-BATCH-09"""
    with pytest.raises(FhirError) as raised:
        batch.entries({"resourceType": "Bundle", "type": "batch", "entry": [None] * 6_000})
    assert raised.value.outcome.status == 413


def test_entries_without_a_known_resource_share_one_audit_record(fresh_service: Running) -> None:
    """EXTRA-OPS-03"""
    wrong = [{"request": {"method": "POST", "url": f"Nothing{number}"}, "resource": {}} for number in range(300)]
    assert sent(fresh_service, bundle([*wrong, entry(1)])).status_code == 200
    records = [json.loads(line) for line in fresh_service.service.audit.path.read_text().splitlines()]
    found = [(each.get("interaction"), each.get("type"), each.get("status")) for each in records]
    assert [each for each in found if each[0] in ("batch", "create")] == [
        ("create", "Task", 201),
        ("batch", "Bundle", 404),
    ]


def acts_on_record(running: Running, number: int) -> list[tuple[Any, ...]]:
    """The last records of the audit."""
    records = [json.loads(line) for line in running.service.audit.path.read_text().splitlines()][-number:]
    return [(each["interaction"], each["type"], each["status"]) for each in records]


def test_a_batch_whose_first_commit_was_not_answered_is_on_record(
    fresh_service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EXTRA-OPS-03: it may be stored."""

    def fails(*_: Any) -> None:
        raise commits.CommitFailed("planted")

    def doubt(*_: Any) -> None:
        raise InDoubt

    with monkeypatch.context() as patch:
        patch.setattr(commits.Commits, "_committing", fails)
        patch.setattr(Contender, "commit", doubt)
        assert sent(fresh_service, bundle([entry(1), entry(2), {"request": {}}])).status_code == 500
    assert acts_on_record(fresh_service, 3) == [
        ("create", "Task", 500),
        ("create", "Task", 500),
        ("batch", "Bundle", 400),
    ]

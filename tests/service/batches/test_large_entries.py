"""Large bundles: their entries are read one after another, and none may be larger than a single body."""

import json
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from fhir_service.batches.requests import understood
from fhir_service.interactions.create import Create
from fhir_service.interface.outcomes import FhirError
from fhir_service.interface.scopes import EVERYTHING, Caller
from fhir_service.service import Service
from tests.conftest import Running
from tests.support.bodies import task, total

CALLER = Caller("c", EVERYTHING)
LARGE = {"request": {"method": "POST", "url": "Task"}, "resource": {str(number): 1 for number in range(100_000)}}


def post(number: int, **more: Any) -> dict[str, Any]:
    return {"request": {"method": "POST", "url": "Task"}, "resource": task(number), **more}


def bundle(kind: str, *entries: Any, **more: Any) -> bytes:
    return json.dumps({"resourceType": "Bundle", "type": kind, "entry": entries, **more}).encode()


def sent(running: Running, raw: bytes) -> Any:
    return running.client.post("/", content=raw, headers={"content-type": "application/json"})


def test_an_entry_that_is_too_large_is_not_parsed(fresh_service: Running) -> None:
    """LIMIT-06, LIMIT-14: its unknown elements would take 130 times their size, as a problem each."""
    raw = bundle("batch", post(1), LARGE, post(2))
    tracemalloc.start()
    understood(fresh_service.service, raw, CALLER)
    assert tracemalloc.get_traced_memory()[1] < 2 * len(raw)
    tracemalloc.stop()
    answers = [one["response"] for one in sent(fresh_service, raw).json()["entry"]]
    assert [one["status"] for one in answers] == ["201", "413", "201"]
    assert answers[1]["outcome"]["issue"][0]["diagnostics"] == "an entry of a Bundle may have at most 1,048,576 bytes"


@pytest.mark.parametrize("more", [{}, {"fullUrl": "urn:uuid:1"}])
def test_a_transaction_with_such_an_entry_is_refused_as_a_whole(fresh_service: Running, more: dict[str, str]) -> None:
    """LIMIT-06, EXTRA-TXN-01"""
    answer = sent(fresh_service, bundle("transaction", post(1, **more), LARGE))
    assert (answer.status_code, answer.json()["issue"][0]["expression"]) == (413, ["Bundle.entry[1]"])
    assert total(fresh_service.client, "/Task?_count=0") == 0


def test_a_bundle_that_is_large_without_its_entries_is_refused(service: Running) -> None:
    """LIMIT-06"""
    answer = sent(service, bundle("batch", post(1), meta=LARGE))
    assert answer.status_code == 413
    assert answer.json()["issue"][0]["diagnostics"] == "a Bundle without its entries may have at most 1,048,576 bytes"


def in_parts(service: Service) -> Service:
    """A service to which each bundle is a large one."""
    return replace(service, settings=replace(service.settings, max_body=400))


def test_an_entry_above_a_lower_limit_is_refused_though_all_entries_are_plain(service: Running) -> None:
    """LIMIT-06"""
    long = post(1, resource=task(1) | {"description": "x" * 400})
    [refused] = understood(in_parts(service.service), bundle("batch", long), CALLER).requests
    assert isinstance(refused, FhirError)
    assert refused.outcome.status == 413


def told(service: Service, raw: bytes) -> Any:
    """Return the parsed requests of a bundle, without the ids that they get."""
    try:
        found = understood(service, raw, CALLER)
    except FhirError as error:
        return error.outcome.status, error.diagnostics, error.expression
    return found.type, [
        (one.outcome.status, one.diagnostics, one.expression)
        if isinstance(one, FhirError)
        else (type(one), isinstance(one, Create) and (one.model, bool(one.id)))
        for one in found.requests
    ]


PUT = {"request": {"method": "PUT", "url": "Task/t", "ifMatch": 'W/"1"'}, "resource": task(3)}
GET = {"request": {"method": "GET", "url": "Task/t"}}


@pytest.mark.parametrize("kind", ["batch", "transaction"])
@pytest.mark.parametrize(
    "entries",
    [
        [PUT, post(1), GET, post(2, resource={"x": 1}), post(4, request={"method": "POST", "url": "No"})],
        [PUT, post(1, fullUrl="a"), post(2, fullUrl="b", resource=task(2, **{"for": {"reference": "a"}}))],
        [PUT, post(1, fullUrl="a"), post(2, fullUrl="a")],
        [PUT, post(1), {"resource": task(2)}],
        [PUT, post(1), 7],
    ],
    ids=["odd", "linked", "named twice", "no request", "no object"],
)
def test_entries_are_understood_as_those_of_a_small_bundle(
    service: Running, kind: str, entries: list[dict[str, Any]]
) -> None:
    """EXTRA-BATCH-01, EXTRA-TXN-02"""
    raw = bundle(kind, *entries)
    assert told(in_parts(service.service), raw) == told(service.service, raw)


@pytest.mark.parametrize(
    "text",
    [
        '{"resourceType":"Bundle","type":"batch","entry":[{"request":{}}],"entry":[{"request":{}},%s]}',
        '{"resourceType":"Bundle","type":"batch","type":"batch","entry":[{"request":{}},%s]}',
        '{"resourceType":"Bundle","type":"batch","entry":[{"request":{},"request":{}},%s]}',
        '{"resourceType":"Bundle","type":"batch","entry":[{"request":{"a":NaN}},%s]}',
        '{"resourceType":"Bundle","type":"batch","entry":[{"request":{"a":1e400000000000000000000}},%s]}',
        '{"resourceType":"Bundle","type":"batch","entry":[{"request":{"a":' + "[" * 9_000 + "]" * 9_000 + "}},%s]}",
        '{"resourceType":"Bundle","type":"batch","entry":[{"request":{}},%s]',
        '{"resourceType":"Bundle","type":"batch","entry":{"a":[%s]}}',
        '{"resourceType":"Bundle","type":"batch","entry":null,"x":[%s]}',
        '[{"resourceType":"Bundle","type":"batch","entry":[%s]}]',
        '{"resourceType":"Bundle","entry":[%s]}',
        '{"resourceType":"Task","type":"batch","entry":[%s]}',
    ],
)
def test_a_large_body_that_is_not_a_bundle_is_a_bad_request(service: Running, text: str) -> None:
    """LIMIT-14: with the careful reading of all of it, its values would be in memory at once."""
    answer = sent(service, (text % ",".join([json.dumps(PUT)] * 4_000)).encode())
    assert answer.status_code == 400
    assert answer.json()["issue"][0]["code"] == "invalid"

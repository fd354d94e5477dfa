"""Transactions: all entries are stored in one commit, or none; a refusal names the entry's place."""

import json
import random
import threading
from typing import Any

import httpx
import pytest

from fhir_service.batches.answering import PART
from fhir_service.interactions import transaction
from tests.conftest import BOTH, Running
from tests.support import loopback
from tests.support.bodies import entry, payment, send, task, total

STORES = BOTH
TYPES = ("Task", "PaymentNotice")


def change(path: str, body: dict[str, Any], match: str | None = None) -> dict[str, Any]:
    request = {"method": "PUT", "url": path} | ({"ifMatch": match} if match else {})
    return {"resource": body | {"id": path.partition("/")[2]}, "request": request}


def transact(service: Running, *entries: dict[str, Any], path: str = "/", **headers: str) -> httpx.Response:
    bundle = {"resourceType": "Bundle", "type": "transaction", "entry": list(entries)}
    return service.client.post(path, json=bundle, headers=headers)


def stored(service: Running, *entries: dict[str, Any]) -> list[dict[str, Any]]:
    answer = transact(service, *entries)
    assert answer.status_code == 200, answer.text
    assert answer.json()["type"] == "transaction-response"
    return [one["response"] for one in answer.json().get("entry", [])]


def refusal(answer: httpx.Response) -> tuple[int, list[str]]:
    (issue,) = answer.json()["issue"]
    return answer.status_code, issue["expression"]


def path_of(service: Running, response: dict[str, Any]) -> str:
    found: str = response["location"].removeprefix(f"{service.url}/")
    return found


def state(service: Running) -> list[Any]:
    """All that is stored, as clients see it."""
    pages = [service.client.get(f"/{name}?_count=1000").json() for name in TYPES]
    return [[one["resource"] for one in page.get("entry", [])] for page in pages]


def test_creates_and_updates_are_stored_and_answered_in_the_order_sent(fresh_service: Running) -> None:
    """EXTRA-TXN-01."""
    (made,) = stored(fresh_service, entry(task(1)))
    path = path_of(fresh_service, made)
    answers = stored(fresh_service, change(path, task(1, status="completed")), entry(payment(500)), entry(task(2)))
    assert [one["status"] for one in answers] == ["200", "201", "201"]
    assert fresh_service.client.get(f"/{path}").json()["status"] == "completed"
    assert [total(fresh_service.client, name) for name in TYPES] == [2, 1]
    assert stored(fresh_service) == []


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (entry(task(3, status=7)), (400, ["Bundle.entry[2].resource.status"])),
        (entry(task(3, **{"for": {"reference": "Patient/nobody"}})), (422, ["Bundle.entry[2].resource.for"])),
        (entry(payment(10**12)), (422, ["Bundle.entry[2].resource.amount.value"])),
        (change("Task/nobody", task(3)), (404, ["Bundle.entry[2]"])),
        (entry(task(3), "identifier=urn:other|3"), (400, ["Bundle.entry[2].resource.identifier"])),
        (entry(task(3), "colour=red"), (400, ["Bundle.entry[2]"])),
        ({"request": {"method": "GET", "url": "Task"}}, (422, ["Bundle.entry[2]"])),
        ({"request": {"method": "DELETE", "url": "Task/t"}}, (405, ["Bundle.entry[2]"])),
        ({"request": {"method": "POST"}}, (400, ["Bundle.entry[2]"])),
        ({"request": {"method": "POST", "url": "Task"}}, (400, ["Bundle.entry[2].resource"])),
        (entry(task(3)) | {"fullUrl": "urn:uuid:1"}, (400, ["Bundle.entry[2].fullUrl"])),
        *((entry(task(3)) | {"fullUrl": name}, (400, ["Bundle.entry[2].fullUrl"])) for name in (5, None, "", ["a"])),
        (entry(task(3)) | {"ifNoneExist": "identifier=a|b"}, (400, ["Bundle.entry[2].ifNoneExist"])),
    ],
)
def test_a_refusal_stores_nothing_and_names_the_entry(
    service: Running, wrong: dict[str, Any], expected: tuple[int, list[str]]
) -> None:
    """EXTRA-TXN-01, EXTRA-TXN-03."""
    before = state(service)
    answer = transact(service, entry(task(1)) | {"fullUrl": "urn:uuid:1"}, entry(payment(100)), wrong, entry(task(4)))
    assert refusal(answer) == expected
    assert state(service) == before


def test_a_right_that_is_missing_refuses_the_whole(service: Running) -> None:
    """EXTRA-TXN-03, EXTRA-BATCH-07."""
    client = service.service.auth.add_client("tasks only", "system/Task.c")
    form = {"grant_type": "client_credentials"} | {name: client[name] for name in ("client_id", "client_secret")}
    token = loopback.post(f"{service.url}/auth/token", data=form).json()["access_token"]
    before = state(service)
    answer = transact(service, entry(task(1)), entry(payment(100)), authorization=f"Bearer {token}")
    assert refusal(answer) == (403, ["Bundle.entry[1]"])
    assert state(service) == before


def test_conditions_have_the_effect_of_the_single_request(fresh_service: Running) -> None:
    """EXTRA-TXN-04: what an entry's condition sees includes the entries before it."""
    once = "identifier=urn:test|1"
    answers = stored(fresh_service, entry(task(1), once), entry(task(1), once), entry(task(2)))
    assert [one["status"] for one in answers] == ["201", "200", "201"]
    assert answers[0]["location"] == answers[1]["location"]
    path = path_of(fresh_service, answers[0])
    stale = transact(fresh_service, entry(task(3)), change(path, task(1, status="completed"), 'W/"7"'))
    assert refusal(stale) == (412, ["Bundle.entry[1]"])
    stored(fresh_service, change(path, task(1, status="completed"), 'W/"1"'))
    send(fresh_service.client, [entry(task(9)), entry(task(9))])
    unless = change(path, task(1))
    unless["request"]["ifNoneMatch"] = "*"
    assert refusal(transact(fresh_service, entry(task(3)), unless)) == (412, ["Bundle.entry[1]"])
    several = transact(fresh_service, entry(task(4)), entry(task(9), "identifier=urn:test|9"))
    assert refusal(several) == (412, ["Bundle.entry[1]"])
    twice = transact(fresh_service, change(path, task(1)), change(path, task(1)))
    assert refusal(twice) == (400, ["Bundle.entry[1]"])
    assert total(fresh_service.client, "Task") == 4


def test_references_between_entries_are_replaced_by_the_ids_given() -> None:
    """EXTRA-TXN-02: wherever they stand. No element of a resource that can be created takes one of these types, so
    that the rules refuse what the reference is replaced by.
    """
    ids = iter("abc")
    first = {"fullUrl": "urn:uuid:1", "request": {"method": "POST", "url": "Task"}, "resource": {"other": 1}}
    named = {"for": {"reference": "urn:uuid:1"}, "note": [{"authorReference": {"reference": "urn:uuid:3"}}]}
    second = {"request": {"method": "POST", "url": "Task"}, "resource": named}
    third = {"fullUrl": "urn:uuid:3", "request": {"method": "PUT", "url": "Task/t"}, "resource": None}
    links = transaction.entry_links([first, second, third], lambda: next(ids))
    assert links.ids == ["a", "b", ""]
    links.refer(second)
    assert named == {"for": {"reference": "Task/a"}, "note": [{"authorReference": {"reference": "Task/t"}}]}


def test_a_resource_has_the_id_that_its_place_was_given(fresh_service: Running) -> None:
    """EXTRA-TXN-02: an entry that is not plain is linked, and the answer says where it is."""
    (made,) = stored(fresh_service, entry(task(1)) | {"fullUrl": "urn:uuid:1"})
    path = path_of(fresh_service, made)
    linked = [change(path, task(2)), entry(task(3)) | {"fullUrl": "urn:uuid:3"}]
    paths = [path, path_of(fresh_service, stored(fresh_service, *linked)[1])]
    assert [fresh_service.client.get(f"/{path}").json()["description"] for path in paths] == ["task 2", "task 3"]


@pytest.mark.parametrize("seed", range(4))
def test_random_transactions_are_stored_whole_or_not_at_all(fresh_service: Running, seed: int) -> None:
    """EXTRA-TXN-01, PAY-CREATE-04: and what was refused leaves no trace in balances, identifiers or versions."""
    dice, service = random.Random(seed), fresh_service
    for turn in range(12):
        before = state(service)
        tasks = [one["id"] for one in before[0]]
        entries = []
        for number in range(dice.randint(1, 6)):
            kind = dice.random()
            if kind < 0.4:
                entries.append(entry(task(n := 10 * turn + number), f"identifier=urn:test|{n}"))
            elif kind < 0.7 or not tasks:
                entries.append(entry(payment(dice.choice([1, 100, 2_000]))))
            else:
                entries.append(change(f"Task/{dice.choice(tasks)}", task(turn, status="completed")))
        if refused := dice.random() < 0.5:
            entries.insert(dice.randrange(len(entries) + 1), entry(payment(10**12)))
        answer = transact(service, *entries)
        after = state(service)
        if refused or answer.status_code != 200:
            assert answer.status_code in (400, 422)
            assert after == before
        else:
            made = sum(one["response"]["status"] == "201" for one in answer.json()["entry"])
            assert sum(map(len, after)) == sum(map(len, before)) + made
    paid = sum(round(100 * one["amount"]["value"]) for one in state(service)[1])
    assert paid == sum(account.paid for account in accounts(service))


def accounts(service: Running) -> list[Any]:
    from sqlalchemy import select

    from fhir_service.store.tables import ACCOUNT

    with service.service.store.read(sums=True) as connection:
        return list(connection.execute(select(ACCOUNT.c.paid)))


def test_transactions_beside_single_writes_keep_to_themselves(fresh_service: Running) -> None:
    """EXTRA-TXN-01: what shares their time does not share their refusal."""
    service, statuses = fresh_service, list[int]()

    def single() -> None:
        with loopback.Client(base_url=service.url, headers=service.headers, timeout=30) as client:
            statuses.extend(client.post("/Task", json=task(100 + n)).status_code for n in range(15))

    others = [threading.Thread(target=single) for _ in range(3)]
    for other in others:
        other.start()
    answers = [
        transact(service, entry(task(n)), entry(payment(10**12 if n % 2 else 100))).status_code for n in range(10)
    ]
    for other in others:
        other.join()
    assert (answers, set(statuses)) == ([200, 422] * 5, {201})
    assert [total(service.client, name) for name in TYPES] == [50, 5]


def test_a_large_batch_is_stored_in_parts_and_a_transaction_in_one(fresh_service: Running) -> None:
    """EXTRA-BATCH-05, EXTRA-TXN-01: others take their turn between the parts of a batch."""
    count = PART * 2 + 1
    assert {one["status"] for one in send(fresh_service.client, [entry(task(n)) for n in range(count)])} == {"201"}
    stored(fresh_service, *(entry(task(n)) for n in range(count)))
    text = fresh_service.service.metrics.text().decode()
    assert f"fhir_commit_entries_sum {2.0 * count}" in text
    assert "fhir_commit_entries_count 4.0" in text


def test_each_entry_of_a_refused_transaction_is_on_record(fresh_service: Running) -> None:
    """EXTRA-OPS-03: with the status of the whole."""
    transact(fresh_service, entry(task(1)), entry(payment(10**12)))
    lines = fresh_service.service.audit.path.read_text().splitlines()
    found = [(one["interaction"], one["type"], one["status"]) for one in map(json.loads, lines) if "interaction" in one]
    assert found[-2:] == [("create", "Task", 422), ("create", "PaymentNotice", 422)]


def test_the_face_shows_what_a_transaction_stored(service: Running) -> None:
    """EXTRA-R4-01, EXTRA-TXN-01."""
    answer = transact(service, entry(task(77)), path="/fhir").json()
    assert (answer["type"], answer["entry"][0]["resource"]["description"]) == ("transaction-response", "task 77")

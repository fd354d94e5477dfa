"""Four processes behind one address, asked for the same at once: all exact and once."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from fhir_service.admin.checks import check_store
from tests.conftest import running
from tests.service.store.test_postgresql import BALANCE
from tests.support import loopback
from tests.support.bodies import payment, task, total
from tests.support.contention import authorized, made
from tests.support.supervised import supervised

pytestmark = pytest.mark.long
AT_ONCE = 50


@pytest.fixture
def served(store: str, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of four processes, and the headers of a client."""
    with supervised(store, made(tmp_path / "served"), 4) as (_, address):
        yield address, authorized(store)


def at_once(served: tuple[str, dict[str, str]], ask: Callable[[httpx.Client, int], httpx.Response]) -> list[Any]:
    """Return the answers to many clients. Each has its own connection, to any of the processes."""
    address, headers = served
    together = threading.Barrier(AT_ONCE)

    def one(number: int) -> httpx.Response:
        with loopback.Client(base_url=address, headers=headers, timeout=120) as client:
            client.get("/health")
            together.wait()
            return ask(client, number)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(one, range(AT_ONCE)))


def clean(store: str, folder: Path) -> contextlib.AbstractContextManager[Any]:
    return running(made(folder / "after"), world=None, store=store)


def test_payments_at_one_balance_take_all_of_it_and_no_cent_more(
    served: tuple[str, dict[str, str]], store: str, tmp_path: Path
) -> None:
    """PAY-CREATE-08, SCALE-01"""
    cents = BALANCE // 20
    answers = at_once(served, lambda client, _: client.post("/PaymentNotice", json=payment(cents)))
    assert Counter(answer.status_code for answer in answers) == {201: 20, 422: AT_ONCE - 20}
    with clean(store, tmp_path) as found:
        assert total(found.client, "/PaymentNotice?_count=0") == 20
        assert not [one for one in check_store(found.service.store, found.service.site) if not one.notice]


def test_a_condition_is_met_once(served: tuple[str, dict[str, str]], store: str, tmp_path: Path) -> None:
    """EXTRA-COND-07, SCALE-01"""
    condition = {"if-none-exist": "identifier=urn:test|1"}
    answers = at_once(served, lambda client, _: client.post("/Task", json=task(1), headers=condition))
    assert Counter(answer.status_code for answer in answers) == {201: 1, 200: AT_ONCE - 1}
    assert len({answer.headers["location"] for answer in answers}) == 1
    with clean(store, tmp_path) as found:
        assert total(found.client, "/Task?_count=0") == 1


def response(address: str) -> dict[str, Any]:
    """A response to an encounter that has no note yet."""
    return {
        "resourceType": "QuestionnaireResponse",
        "status": "completed",
        "questionnaire": f"{address}/Questionnaire/q-intake",
        "subject": {"reference": "Patient/p1"},
        "encounter": {"reference": "Encounter/e2"},
    }


def test_responses_to_one_encounter_are_all_there_and_share_its_note(
    served: tuple[str, dict[str, str]], store: str, tmp_path: Path
) -> None:
    """QR-CREATE-16, SCALE-01"""
    address, _ = served
    answers = at_once(served, lambda client, _: client.post("/QuestionnaireResponse", json=response(address)))
    assert {answer.status_code for answer in answers} == {201}, answers[0].text
    with clean(store, tmp_path) as found:
        bodies = found.client.get(f"/QuestionnaireResponse?_count={2 * AT_ONCE}").json()["entry"]
        assert len(bodies) == AT_ONCE
        notes = {one["valueId"] for body in bodies for one in body["resource"]["extension"] if "valueId" in one}
        assert len(notes) == 1
        assert not [one for one in check_store(found.service.store, found.service.site) if not one.notice]


def test_of_simultaneous_updates_to_one_version_of_a_task_one_succeeds(
    served: tuple[str, dict[str, str]], store: str, tmp_path: Path
) -> None:
    """TASK-UPDATE-04, SCALE-01: updates without a version all succeed, one after another."""
    address, headers = served
    with loopback.Client(base_url=address, headers=headers) as client:
        path = client.post("/Task", json=task(1)).headers["location"].removeprefix(address)
    first = {"if-match": 'W/"1"'}
    answers = at_once(served, lambda client, n: client.put(path, json=noted(n), headers=first))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 412: AT_ONCE - 1}
    answers = at_once(served, lambda client, n: client.put(path, json=noted(n)))
    assert {answer.status_code for answer in answers} == {200}
    with clean(store, tmp_path) as found:
        said = [one["text"] for one in found.client.get(path).json()["note"]]
        assert len(said) == AT_ONCE + 1
        assert set(said) == {f"note {n}" for n in range(AT_ONCE)}


def noted(number: int) -> dict[str, Any]:
    return task(1, note=[{"text": f"note {number}", "authorReference": {"reference": "Practitioner/dr1"}}])

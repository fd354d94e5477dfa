"""Laws that hold for any requests: thousands of them drawn from seeds, and each seed is played twice.

The second time, the quick readers of bodies are switched off and the models read everything: no answer may change, and
no stored row.
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import count, pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpcore
import httpx
import pytest

from fhir_service.admin.checks import check_store
from fhir_service.interactions import plain
from fhir_service.interface.json_text import parse_json
from tests.conftest import BOTH, FROZEN, WORLD, Database, Running, counted_ids, running
from tests.laws.generated import BASE, SYSTEM, VALUES, Campaign, Step
from tests.support import loopback
from tests.support.fuzz import CREATED
from tests.support.fuzz_answers import fault
from tests.support.senders import Sender
from tests.support.stored_tables import tables

STORES = BOTH
KEPT = ("location", "etag", "last-modified", "allow", "content-type")
_SIGNED = re.compile(rb"expires=\d+&signature=[0-9a-f]+")
_TRANSACTIONS = re.compile(rb"(?<=_snapshot=)([0-9a-f]{8}\.[0-9a-f]{8}\.\d+\.)\d+(?:-\d+)+")
_CHARGES = [json.loads(line) for line in (WORLD / "claim.ndjson").read_text("utf-8").splitlines()]


class SetClock:
    """A clock that shows what it was set to."""

    def __init__(self) -> None:
        self.now = FROZEN

    def __call__(self) -> datetime:
        return self.now


class Played:
    """A service on which steps are played, with the answers and all that is wrong with them."""

    def __init__(self, service: Running, clock: SetClock, pool: httpcore.ConnectionPool) -> None:
        self.service, self._clock, self._sender = service, clock, Sender(service, pool)
        self.statuses: Counter[int] = Counter()
        self.faults: list[str] = []

    def answer(self, step: Step) -> httpx.Response:
        self._clock.now = FROZEN + step.clock
        response: httpx.Response = self._sender.send(step.sent)
        self._clock.now = FROZEN + timedelta(hours=1)
        self.statuses[response.status_code] += 1
        return response

    def looked_at(self, step: Step, response: httpx.Response) -> None:
        """Notes what is wrong with an answer."""
        beside = step.sent.target.startswith("/auth/")
        bad = response.status_code >= 500 or b"Traceback" in response.content
        found = (f"status {response.status_code}" if bad else None) if beside else fault(step.sent, response)
        found = found or step.check(response)
        if found:
            self.faults.append(f"{shown(step)}: {found}: {response.text[:300]}")


def shown(step: Step) -> str:
    sent = step.sent
    return f"{sent.method} {sent.target[:150]} {sent.headers} {(sent.content or b'')[:700]!r}"


def told(response: httpx.Response) -> tuple[Any, ...]:
    """Return the content of an answer without signatures, which differ by store, and without transaction numbers.

    A server of PostgreSQL counts those for all its databases, and takes some for its own work.
    """
    headers = [response.headers.get(name) for name in KEPT]
    return response.status_code, _TRANSACTIONS.sub(rb"\1", _SIGNED.sub(b"", response.content)), headers


class Record(NamedTuple):
    """A recorded sequence: each step with its answer, the stored rows, and the number of answers by status."""

    done: list[tuple[Step, tuple[Any, ...]]]
    stored: dict[str, list[Any]]
    statuses: Counter[int]


def play(folder: Path, store: str, steps: int, seed: int) -> Record:
    """Play a campaign. Fails where an answer breaks a law, or all together have broken one."""
    clock, campaign, done = SetClock(), Campaign(seed), []
    options: Any = {"clock": clock, "new_id": counted_ids(), "base_url": BASE, "store": store}
    with running(folder, **options) as service, httpcore.ConnectionPool() as pool:
        played = Played(service, clock, pool)
        for _ in range(steps):
            step = campaign.step()
            response = played.answer(step)
            campaign.learn(response.headers.get("location", "") if response.status_code == 201 else "")
            played.looked_at(step, response)
            done.append((step, told(response)))
        assert not played.faults, f"{len(played.faults)} faults:\n" + "\n\n".join(played.faults[:8])
        stored = tables(service.service)
        hold(service, campaign.versions)
    return Record(done, stored, played.statuses)


def replay(folder: Path, store: str, record: Record) -> None:
    """Fails where an answer is another one this time, or a stored row."""
    clock = SetClock()
    options: Any = {"clock": clock, "new_id": counted_ids(), "base_url": BASE, "store": store}
    with running(folder, **options) as service, httpcore.ConnectionPool() as pool:
        played = Played(service, clock, pool)
        for step, expected in record.done:
            found = told(played.answer(step))
            if not step.sent.target.startswith("/auth/"):
                assert found == expected, shown(step)
        assert tables(service.service) == record.stored


# --- What holds of a store afterwards -------------------------------------------------------------


def hold(service: Running, versions: dict[str, int]) -> None:
    """The laws of identifiers, money and history, and those that `check` knows."""
    one_record_has_an_identifier(service)
    histories_are_in_order(service, versions)
    balances_are_charges_less_payments(service)
    assert check_store(service.service.store, service.service.site) == []


def one_record_has_an_identifier(service: Running) -> None:
    for resource in CREATED:
        for value in VALUES:
            literal = "".join(f"\\{letter}" if letter in "\\,|$" else letter for letter in value)
            query = {"identifier": f"{SYSTEM}|{literal}", "_count": "0"}
            answer = service.client.get(f"/{resource.name}", params=query)
            assert answer.status_code == 200, answer.text
            assert answer.json()["total"] <= 1, (resource.name, value)


def histories_are_in_order(service: Running, versions: dict[str, int]) -> None:
    """Newest first; of one record each version once, later than the one before; the tag is that of the newest."""
    for resource in CREATED:
        times = [time for _, _, time in every(service, f"/{resource.name}/_history")]
        assert times == sorted(times, reverse=True)
    some = [one for one, version in versions.items() if version > 1][:100]
    for resource_id in some:
        found = [*every(service, f"/Task/{resource_id}/_history")]
        expected = versions[resource_id]
        assert [etag for _, etag, _ in found] == [f'W/"{number}"' for number in range(expected, 0, -1)], resource_id
        assert all(newer > older for (*_, newer), (*_, older) in pairwise(found))
        assert service.client.get(f"/Task/{resource_id}").headers["etag"] == f'W/"{expected}"'


def every(service: Running, path: str) -> Iterator[tuple[str, str, datetime]]:
    """(id, etag, time) of all versions, page by page."""
    for offset in count(0, 100):
        entries = service.client.get(path, params={"_count": "100", "_offset": str(offset)}).json().get("entry", [])
        for one in entries:
            response = one["response"]
            yield one["resource"]["id"], response["etag"], datetime.fromisoformat(response["lastModified"])
        if len(entries) < 100:
            return


def balances_are_charges_less_payments(service: Running) -> None:
    """A cent more than the balance is refused, the balance is taken, and nothing after it."""
    for patient in ("p1", "p5", "p7"):
        owed = charged(patient) - paid(service, patient)
        answers = [pay(service, patient, amount) for amount in (owed + Decimal("0.01"), owed, Decimal("0.01"))]
        assert answers == ([422, 201, 422] if owed > 0 else [422, 422, 422]), (patient, owed)


def charged(patient: str) -> Decimal:
    claims = [claim for claim in _CHARGES if claim["patient"]["reference"] == f"Patient/{patient}"]
    return sum((Decimal(str(one["total"]["value"])) for one in claims if one["status"] == "active"), Decimal(0))


def paid(service: Running, patient: str) -> Decimal:
    amounts: Decimal = Decimal(0)
    for offset in count(0, 100):
        query = {"request": f"Patient/{patient}", "_count": "100", "_offset": str(offset)}
        entries = parse_json(service.client.get("/PaymentNotice", params=query).content).get("entry", [])
        amounts += sum((one["resource"]["amount"]["value"] for one in entries), Decimal(0))
        if len(entries) < 100:
            break
    return amounts


def pay(service: Running, patient: str, amount: Decimal) -> int:
    body = {"resourceType": "PaymentNotice", "status": "active", "request": {"reference": f"Patient/{patient}"}}
    text = json.dumps(body | {"created": "2026-01-01", "payment": {}, "recipient": {}, "amount": {"value": "@"}})
    headers = {"content-type": "application/json"}
    return service.client.post("/PaymentNotice", content=text.replace('"@"', str(amount)), headers=headers).status_code


# --- The campaigns --------------------------------------------------------------------------------


def campaign(folder: Path, database: Database, steps: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Plays a campaign, and plays it again with the models alone."""
    quick, slow = folder / "quick", folder / "slow"
    quick.mkdir()
    slow.mkdir()
    with database(quick) as store:
        record = play(quick, store, steps, seed)
    monkeypatch.setattr(plain, "create", lambda *_: None)
    monkeypatch.setattr(plain, "bundle", lambda *_: None)
    with database(slow) as store:
        replay(slow, store, record)
    return record.statuses


def test_generated_requests_break_no_law(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ERR-01, ERR-02, COMMON-33, COMMON-35, COMMON-42, COMMON-43, COMMON-64, EXTRA-COND-02, EXTRA-HISTORY-02."""
    statuses = campaign(tmp_path, on_duckdb, 150, 2, monkeypatch)
    assert set(statuses) >= {200, 201, 400, 412, 422}


@pytest.mark.long
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_many_generated_requests_break_no_law(
    tmp_path: Path, database: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ERR-01, ERR-02, COMMON-33, COMMON-35, COMMON-42, COMMON-43, COMMON-64, EXTRA-COND-02, EXTRA-HISTORY-02."""
    statuses = campaign(tmp_path, database, 2_500, seed, monkeypatch)
    print(f"seed {seed}: {dict(sorted(statuses.items()))}")
    assert statuses[200] + statuses[201] > 600, statuses


def on_duckdb(folder: Path) -> AbstractContextManager[str]:
    return nullcontext(str(folder / "service.duckdb"))


THREADS = 4


@pytest.mark.parametrize("rounds", [4, pytest.param(250, marks=pytest.mark.long)])
def test_generated_requests_that_cross_break_no_law(tmp_path: Path, rounds: int) -> None:
    """EXTRA-COND-06, EXTRA-COND-14: of changes with one tag one is made, of creates with one identifier one."""
    won: Counter[tuple[str, str]] = Counter()
    faults: list[str] = []
    with running(tmp_path, base_url=BASE) as service:
        tasks = [made(service, Random(number)) for number in range(3)]
        barrier = threading.Barrier(THREADS)

        def work(seed: int) -> None:
            mine, random = Campaign(seed), Random(seed)
            with loopback.Client(base_url=service.url, headers=service.headers, timeout=60) as client:
                for _ in range(rounds):
                    barrier.wait(60)
                    answers = crossing(client, mine, random, tasks, won)
                    faults.extend(answer.text for answer in answers if answer.status_code >= 500)

        with ThreadPoolExecutor(THREADS) as pool:
            for future in [pool.submit(work, seed) for seed in range(THREADS)]:
                future.result()
        assert not faults
        assert won
        assert set(won.values()) == {1}
        hold(service, {task: 1 + sum(1 for one, _ in won if one == task) for task in tasks})


def made(service: Running, random: Random) -> str:
    body = Campaign(random.randrange(99)).body("Task")
    return str(service.client.post("/Task", json=body).headers["location"].rpartition("/")[2])


def crossing(
    client: httpx.Client, mine: Campaign, random: Random, tasks: list[str], won: Counter[tuple[str, str]]
) -> Iterator[httpx.Response]:
    """Conditional creates, alone and in a bundle, and an update with a tag that others may have, too."""
    drawn = [(mine.kind(), random.choice(VALUES)) for _ in range(4)]
    headers = {"if-none-exist": mine.condition(drawn[0][1])}
    yield client.post(f"/{drawn[0][0]}", json=mine.identified(*drawn[0]), headers=headers)
    entries = [
        {
            "resource": mine.identified(name, value),
            "request": {"method": "POST", "url": name, "ifNoneExist": mine.condition(value)},
        }
        for name, value in drawn
    ]
    task = random.choice(tasks)
    tag = client.get(f"/Task/{task}").headers["etag"]
    change = {"resource": mine.body("Task"), "request": {"method": "PUT", "url": f"Task/{task}", "ifMatch": tag}}
    bundle = {"resourceType": "Bundle", "type": "batch", "entry": [*entries, change, change]}
    response = client.post("/", json=bundle)
    yield response
    if response.status_code == 200:
        won.update([(task, tag)] * sum(one["response"]["status"] == "200" for one in response.json()["entry"][-2:]))
    response = client.put(f"/Task/{task}", json=mine.body("Task"), headers={"if-match": tag})
    yield response
    won.update([(task, tag)] * (response.status_code == 200))

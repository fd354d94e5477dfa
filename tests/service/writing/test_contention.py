"""Several processes write to one store at once: exact results, few exchanges, stable pages, no commit in doubt."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url, text

from bench.proxy import Proxy, proxied
from fhir_service.admin.checks import check_store
from fhir_service.interactions.create import Create, CreateResult
from fhir_service.interface.checking import parse
from fhir_service.interface.json_text import dump_json, parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.requests import acts
from fhir_service.store import postgresql_sessions
from fhir_service.store.dialect import AttemptLocks
from fhir_service.web.health import Probe
from fhir_service.writing import contending
from tests.conftest import Running, running
from tests.service.store.test_postgresql import BALANCE, end_sessions
from tests.support.bodies import entry, payment, send, task, total
from tests.support.contention import made, next_of, task_in
from tests.support.postgres import Postgres, running_server
from tests.support.taking_turns import take_turns


@pytest.fixture
def proxy(url: str, tmp_path: Path) -> Iterator[Proxy]:
    """A proxy before the test's database."""
    (tmp_path / "p").mkdir()
    with proxied(Path(str(make_url(url).query["host"])) / ".s.PGSQL.5432", tmp_path / "p") as found:
        yield found


@pytest.fixture
def one(url: str, proxy: Proxy, tmp_path: Path) -> Iterator[Running]:
    """A service that reaches its database through the proxy."""
    with running(tmp_path, store=str(make_url(url).set(query={"host": str(proxy.folder)}))) as found:
        yield found


# --- Exchanges ------------------------------------------------------------------------------------


def creates(found: Running, bodies: list[dict[str, Any]], conditional: bool) -> list[Create]:
    """The entries of creates. Each body has an identifier."""
    site, registry = found.service.site, RESOURCES
    entries = []
    for body in bodies:
        resource, code = registry[body["resourceType"]], body["identifier"][0]
        model = parse(resource, parse_json(dump_json(body)), site, additions=True)
        condition = (code["system"], code["value"]) if conditional else None
        entries.append(Create(resource, model, "tests", site, 500, condition))
    return entries


@pytest.mark.alike
@pytest.mark.parametrize("number", [1, 500])
@pytest.mark.parametrize("conditional", [False, True])
def test_a_batch_takes_two_exchanges_whatever_is_in_it(
    one: Running, proxy: Proxy, number: int, conditional: bool
) -> None:
    """One reads, the other writes and commits."""
    site = one.service.site
    for turn in range(2):
        numbers = range(turn * number, (turn + 1) * number)
        payments = [payment(1) | {"identifier": task(n)["identifier"]} for n in numbers]
        entries = creates(one, [*map(task, numbers), *payments], conditional)
        one.service.writer.submit([Probe()]).result()
        before = proxy.exchanges
        results = one.service.writer.submit(entries).result()
        assert {type(result) for result in results} == {CreateResult}, site
        assert proxy.exchanges - before == 2


def test_a_create_of_a_token_that_was_met_takes_no_exchange_for_it(one: Running, proxy: Proxy) -> None:
    """AUTH-11: the batch reads the token together with everything else."""
    assert one.client.post("/Task", json=task(1)).status_code == 201
    before = proxy.exchanges
    assert one.client.post("/Task", json=task(2)).status_code == 201
    assert proxy.exchanges - before == 2


@pytest.mark.alike
@pytest.mark.parametrize("path", ["/Task?patient=Patient/p1", "/Task?_sort=-due-date&_count=1", "/Task?_count=0"])
def test_a_page_takes_one_exchange(one: Running, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """It asks for the token, too. The connection was used just now."""
    monkeypatch.setattr(postgresql_sessions, "_USED_JUST_NOW", 600)
    send(one.client, [entry(task(n)) for n in range(3)])
    first = one.client.get(path).json()
    before = proxy.exchanges
    assert one.client.get(path).json() == first
    assert proxy.exchanges - before == 1
    if following := next_of({"link": []} | first):
        before = proxy.exchanges
        assert one.client.get(following).json()["total"] == first["total"]
        assert proxy.exchanges - before == 1


def test_nothing_is_answered_before_the_token_was_found_to_hold(one: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """AUTH-11: not even if a handler forgets to check."""
    assert one.client.post("/Task", json=task(1)).status_code == 201
    monkeypatch.setattr(acts, "confirm", lambda _: None)
    assert one.client.post("/Task", json=task(2)).status_code == 500


# --- Collisions -----------------------------------------------------------------------------------


class Beside:
    """A write of another process between the reads and the writes of the first attempts of a batch."""

    def __init__(self, found: Running, monkeypatch: pytest.MonkeyPatch, sql: str, times: int = 1) -> None:
        self.ways: list[AttemptLocks] = []
        self.left = times
        dialect, enter, store = found.service.store.dialect, "enter", "store"
        begin, commit = getattr(dialect, enter), getattr(dialect, store)

        def entered(connection: Any, way: AttemptLocks) -> Any:
            self.ways.append(way)
            return begin(connection, way)

        def stored(connection: Any, write: Any) -> None:
            if self.left and not self.ways[-1].holds and not self.ways[-1].alone:
                self.left -= 1
                with found.service.store.engine.begin() as other:
                    other.execute(text(sql))
            commit(connection, write)

        monkeypatch.setattr(dialect, enter, entered)
        monkeypatch.setattr(dialect, store, stored)


def test_a_payment_that_another_one_forestalls_is_decided_again(one: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """PAY-CREATE-08: by the balance at that time."""
    beside = Beside(one, monkeypatch, "UPDATE account SET paid = paid + 15000 WHERE patient = 'p1'")
    assert one.client.post("/PaymentNotice", json=payment(100)).status_code == 422
    assert beside.ways == [AttemptLocks(), AttemptLocks(holds=True)]


def test_an_update_that_another_one_forestalls_is_decided_again(one: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """TASK-UPDATE: the precondition is checked against the version at that time."""
    path = one.client.post("/Task", json=task(1)).headers["location"].removeprefix(one.url)
    beside = Beside(one, monkeypatch, "UPDATE task SET version = version + 1")
    refused = one.client.put(path, json=task(1, description="changed"), headers={"if-match": 'W/"1"'})
    assert (refused.status_code, len(beside.ways)) == (412, 2)


def test_a_conditional_create_that_another_one_forestalls_finds_it(
    one: Running, monkeypatch: pytest.MonkeyPatch, url: str, tmp_path: Path
) -> None:
    """EXTRA-COND-07"""
    condition = {"if-none-exist": "identifier=urn:test|1"}
    with running(made(tmp_path / "two"), store=url) as two:
        dialect, created = one.service.store.dialect, list[Any]()
        store = "store"
        commit = getattr(dialect, store)

        def forestalled(connection: Any, write: Any) -> None:
            if not created:
                created.append(two.client.post("/Task", json=task(1), headers=condition))
            commit(connection, write)

        monkeypatch.setattr(dialect, store, forestalled)
        found = one.client.post("/Task", json=task(1), headers=condition)
        assert (created[0].status_code, found.status_code) == (201, 200)
        assert created[0].headers["location"].rpartition("/")[2] == found.headers["location"].rpartition("/")[2]


def test_an_identifier_that_an_update_removed_can_be_created_again(one: Running) -> None:
    """EXTRA-COND-05: it was made by a conditional create."""
    condition = {"if-none-exist": "identifier=urn:test|1"}
    path = one.client.post("/Task", json=task(1), headers=condition).headers["location"].removeprefix(one.url)
    assert one.client.put(path, json=task(2)).status_code == 200
    assert one.client.post("/Task", json=task(1), headers=condition).status_code == 201
    assert one.client.post("/Task", json=task(1), headers=condition).status_code == 200


def test_a_batch_that_collides_repeatedly_finally_runs_alone(one: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    dialect, ways = one.service.store.dialect, list[AttemptLocks]()
    enter, store = "enter", "store"
    begin, commit = getattr(dialect, enter), getattr(dialect, store)

    def entered(connection: Any, way: AttemptLocks) -> Any:
        ways.append(way)
        return begin(connection, way)

    def colliding(connection: Any, write: Any) -> None:
        if not ways[-1].alone:
            raise psycopg.errors.SerializationFailure
        commit(connection, write)

    monkeypatch.setattr(dialect, enter, entered)
    monkeypatch.setattr(dialect, store, colliding)
    assert one.client.post("/Task", json=task(1)).status_code == 201
    assert ways == list(contending.WAYS)


def test_simultaneous_batches_that_pay_the_same_accounts_in_any_order_do_not_deadlock(
    one: Running, url: str, tmp_path: Path
) -> None:
    """Each payment is made, and once."""
    with running(made(tmp_path / "two"), store=url) as two, ThreadPoolExecutor(4) as threads:
        patients = ["p1", "p2"]
        bundles = [[entry(payment(1, name)) for name in order] for order in (patients, patients[::-1])] * 8
        services = [one, two] * 8
        answers = threads.map(lambda at: send(services[at].client, bundles[at]), range(16))
        created = sum(answer["status"] == "201" for found in answers for answer in found)
        assert created == total(one.client, "/PaymentNotice?_count=0") == 32
        assert not [found for found in check_store(one.service.store, one.service.site) if not found.notice]


# --- The database's own guard ---------------------------------------------------------------------


def copayment(found: Running, cents: int) -> dict[str, Any]:
    claim = {"url": "claim", "valueReference": {"reference": "Claim/c1"}}
    return payment(cents) | {"extension": [{"url": found.service.site.copayment, "extension": [claim]}]}


def test_the_database_itself_refuses_to_take_a_balance_below_zero(one: Running) -> None:
    """PAY-CREATE-08, PAY-CREATE-12: whatever the service does. Only copayments may do that."""
    with pytest.raises(Exception, match="beyond the balance"), one.service.store.engine.begin() as connection:
        connection.execute(text(f"UPDATE account SET paid = {BALANCE + 1} WHERE patient = 'p1'"))
    bundle = [entry(payment(BALANCE)), entry(copayment(one, 500)), entry(copayment(one, 20))]
    assert [answer["status"] for answer in send(one.client, bundle)] == ["201"] * 3
    assert one.client.post("/PaymentNotice", json=copayment(one, 7)).status_code == 201
    with pytest.raises(Exception, match="allocation_part"), one.service.store.engine.begin() as connection:
        connection.execute(text("INSERT INTO allocation SELECT * FROM allocation"))


# --- Commits without an answer --------------------------------------------------------------------


def test_a_commit_whose_answer_is_lost_is_looked_for_and_acknowledged_once(
    one: Running, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stored batch is not stored again."""
    monkeypatch.setattr(contending, "LOOKS", (0.01, 0.1, 0.5))
    lost = threading.Event()

    def lose(data: bytes) -> None:
        if b"COMMIT" in data and not lost.is_set():
            lost.set()
            proxy.cut()

    assert one.client.post("/Task", json=task(1)).status_code == 201
    proxy.before_answer = lose
    assert one.client.post("/Task", json=task(2)).status_code == 201
    assert lost.is_set()
    assert total(one.client, "/Task?_count=0") == 2


def test_a_commit_with_an_unknown_outcome_is_answered_500(
    one: Running, proxy: Proxy, postgres: Postgres, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has to look the resource up."""
    monkeypatch.setattr(contending, "LOOKS", (0.01,))
    # The first connections ask for more, and commit too.
    assert one.client.post("/Task", json=task(0)).status_code == 201
    name = make_url(url).database

    def lose(data: bytes) -> None:
        if b"COMMIT" in data:
            postgres.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            proxy.cut()

    proxy.before_answer = lose
    assert one.client.post("/Task", json=task(1)).status_code == 500
    proxy.before_answer = lambda _: None
    postgres.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    end_sessions(postgres, url)
    assert one.client.post("/Task", json=task(2)).status_code == 201


# --- Pages ----------------------------------------------------------------------------------------


def test_pages_show_the_store_as_of_the_first_one(one: Running, url: str, tmp_path: Path) -> None:
    """SEARCH-16, SEARCH-17, BUNDLE-07: also where a row whose number comes before is stored later."""
    with running(made(tmp_path / "two"), store=url) as two, one.service.store.engine.connect() as late:
        late.begin()
        turn = one.service.store.dialect.enter(late, AttemptLocks())  # type: ignore[attr-defined]
        turn.fetch([])
        assert two.client.post("/Task", json=task(1)).status_code == 201
        for n in range(2, 6):
            assert one.client.post("/Task", json=task(n)).status_code == 201
        first = one.client.get("/Task?_count=2").json()
        late.execute(
            text(
                """INSERT INTO task (seq, id, version, updated_at, client, status, body)
                   SELECT :seq, 'late', 1, now(), 'c', 'requested', replace(body, 'task 1', 'late') FROM task LIMIT 1"""
            ),
            {"seq": turn.next_seq()},
        )
        late.commit()
        second = two.client.get(next_of(first) or "").json()
        third = one.client.get(next_of(second) or "").json()
        shown = [found["resource"]["description"] for page in (first, second, third) for found in page["entry"]]
        assert shown == [f"task {n}" for n in range(1, 6)]
        assert (third["total"], next_of(third)) == (5, None)
        assert task_in(two, "/Task?_count=100")[0] == "late"


def test_a_snapshot_belongs_to_its_search_and_is_sent_as_it_was(one: Running) -> None:
    """BUNDLE-07: for a changed link the total is counted again, or the link is refused."""
    for n in range(3):
        one.client.post("/Task", json=task(n))
    link = next_of(one.client.get("/Task?_count=1").json())
    assert one.client.get(f"{link}&identifier=urn:test|2").json()["total"] == 1
    head, _, snapshot = (link or "").partition("_snapshot=")
    for wrong in ("", "x", snapshot[1:], f"{snapshot}-0", snapshot + "-" * 5000, snapshot.replace(".3.", ".-3.")):
        refused = one.client.get(f"{head}_snapshot={wrong}")
        assert (refused.status_code, "_snapshot: " in refused.text) == (400, True), wrong
    other = ("0" if snapshot[0] != "0" else "1") + snapshot[1:]
    assert "search again" in one.client.get(f"{head}_snapshot={other}").text


# --- Stores of before, and from elsewhere ---------------------------------------------------------


def test_a_store_of_before_is_brought_to_this_version(url: str, tmp_path: Path) -> None:
    """CLI-SVC-01: its resources are on every page, and new numbers follow the old ones."""
    with running(tmp_path, store=url) as found:
        for n in range(3):
            assert found.client.post("/Task", json=task(n)).status_code == 201
    take_turns(url)
    with running(made(tmp_path / "again"), store=url) as found:
        first = found.client.get("/Task?_count=2").json()
        assert found.client.post("/Task", json=task(3)).status_code == 201
        assert task_in(found, next_of(first) or "") == ["task 2"]
        assert task_in(found, "/Task") == [f"task {n}" for n in range(4)]


def test_a_questionnaire_of_a_restored_database_is_the_one_that_is_there(one: Running, url: str) -> None:
    """SCALE-01: although the process has cached another one with the same id and version."""

    def refused_for(link: str) -> str:
        answers = {
            "resourceType": "QuestionnaireResponse",
            "questionnaire": f"{one.url}/Questionnaire/q-intake",
            "status": "completed",
            "subject": {"reference": "Patient/p1"},
            "encounter": {"reference": "Encounter/e2"},
            "item": [{"linkId": link, "answer": [{"valueString": "x"}]}],
        }
        return str(one.client.post("/QuestionnaireResponse", json=answers).json()["issue"][0]["diagnostics"])

    known, unknown = "valueCoding is expected", "the questionnaire has no item with this linkId"
    assert [refused_for("mood"), refused_for("humour")] == [known, unknown]
    there = make_url(url)
    with psycopg.connect(host=str(there.query["host"]), user="tests", dbname=there.database) as database:
        database.execute("UPDATE questionnaire SET body = replace(body, 'mood', 'humour') WHERE id = 'q-intake'")
    assert [refused_for("mood"), refused_for("humour")] == [unknown, known]


@pytest.mark.long
def test_a_dump_that_is_restored_on_another_server_has_stable_pages(
    url: str, postgres: Postgres, tmp_path: Path
) -> None:
    """S10, S12: earlier transaction ids have no meaning there, and earlier links are refused."""
    postgres.execute("DO $$ BEGIN FOR n IN 1..500 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$")
    with running(tmp_path, store=url) as found:
        for n in range(3):
            assert found.client.post("/Task", json=task(n)).status_code == 201
        before = next_of(found.client.get("/Task?_count=2").json()) or ""
    with running_server(another=True) as other, other.database() as there:
        postgres.copy_to(other, url, there)
        with running(made(tmp_path / "again"), store=there) as found:
            first = found.client.get("/Task?_count=2").json()
            assert found.client.post("/Task", json=task(3)).status_code == 201
            assert task_in(found, next_of(first) or "") == ["task 2"]
            assert task_in(found, "/Task") == [f"task {n}" for n in range(4)]
            assert "search again" in found.client.get(before).text

"""A store on PostgreSQL, beyond the tests of both databases: several processes, lost connections, text."""

import contextlib
import json
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import create_engine, make_url, text

from fhir_service.store import postgresql, postgresql_sessions
from fhir_service.store.postgresql_sessions import SESSION, Sessions
from fhir_service.store.store import Store
from fhir_service.writing import commits
from tests.conftest import BOTH, WORLD, Database, Running, running
from tests.support import loopback
from tests.support.bodies import payment, task, total
from tests.support.called import UNHEARD, called, command_output
from tests.support.commands import command, environment
from tests.support.postgres import Postgres
from tests.support.starting import start

STORES = BOTH
BALANCE = 15025
"""The cents that p1 of the small reference data owes."""


# --- Several processes over one store ---------------------------------------------------------------


@contextlib.contextmanager
def serving(store: str, folder: Path) -> Iterator[str]:
    """Run a service in a separate process; yield its address."""
    arguments = command("fhir-service", "serve", "--store", store, "--port", 0)
    with start(arguments, stdout=subprocess.PIPE, text=True, env=environment(), cwd=folder) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().removeprefix("listening on ").strip()
        finally:
            process.terminate()


class Cluster:
    """The processes over a store: two if the database can be shared, else one."""

    def __init__(self, store: str, urls: list[str]) -> None:
        self.store, self.urls = store, urls
        self.token = self.new_token(json.loads(command_output("client", "add", "--store", store, "--name", "tests")))

    def new_token(self, client: dict[str, str]) -> str:
        form = {"grant_type": "client_credentials"} | {name: client[name] for name in ("client_id", "client_secret")}
        return str(loopback.post(f"{self.urls[0]}/auth/token", data=form).json()["access_token"])

    def at_once(self, number: int, make: Callable[[str], dict[str, Any]], **headers: str) -> list[httpx.Response]:
        """Send creates at once, to the processes in turn. `make` gets the base URL."""
        start = threading.Barrier(number)
        headers |= {"authorization": f"Bearer {self.token}"}

        def send(turn: int) -> httpx.Response:
            url = self.urls[turn % len(self.urls)]
            body = make(url)
            start.wait()
            return loopback.post(f"{url}/{body['resourceType']}", json=body, headers=headers, timeout=60)

        with ThreadPoolExecutor(number) as threads:
            return list(threads.map(send, range(number)))

    def get(self, path: str, at: int = 0, token: str | None = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {token or self.token}"}
        return loopback.get(f"{self.urls[at]}{path}", headers=headers, timeout=60)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, database: Database) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(database(folder))
        command_output("load", "--store", store, str(WORLD))
        number = 2 if "://" in store else 1
        urls = [stack.enter_context(serving(store, folder)) for _ in range(number)]
        yield Cluster(store, urls)


def statuses(responses: list[httpx.Response]) -> Counter[int]:
    return Counter(response.status_code for response in responses)


@pytest.mark.long
def test_of_50_simultaneous_payments_those_that_the_balance_covers_are_created(cluster: Cluster) -> None:
    """PAY-CREATE-08: ten fit."""
    responses = cluster.at_once(50, lambda _: payment(BALANCE // 10))
    assert statuses(responses) == {201: 10, 422: 40}
    assert cluster.get("/PaymentNotice?request=p1&_count=0").json()["total"] == 10


@pytest.mark.long
def test_of_50_simultaneous_conditional_creates_one_creates(cluster: Cluster) -> None:
    """EXTRA-COND-07"""
    responses = cluster.at_once(50, lambda _: task(50), **{"if-none-exist": "identifier=urn:test|50"})
    assert statuses(responses) == {201: 1, 200: 49}
    assert len({response.headers["location"].rpartition("/")[2] for response in responses}) == 1
    assert cluster.get("/Task?identifier=urn:test%7C50").json()["total"] == 1


def test_50_responses_to_one_encounter_leave_one_note(cluster: Cluster) -> None:
    """QR-CREATE-15, QR-NOTE-05"""

    def answers(url: str) -> dict[str, Any]:
        return {
            "resourceType": "QuestionnaireResponse",
            "questionnaire": f"{url}/Questionnaire/q-intake",
            "status": "completed",
            "subject": {"reference": "Patient/p1"},
            "encounter": {"reference": "Encounter/e2"},
        }

    responses = cluster.at_once(50, answers)
    assert statuses(responses) == {201: 50}
    found = [entry["resource"] for entry in cluster.get("/QuestionnaireResponse?_count=100").json()["entry"]]
    assert len({response["id"] for response in found}) == 50
    assert len({response["extension"][0]["valueId"] for response in found}) == 1


def test_a_revoked_client_is_refused_by_every_process_at_once(cluster: Cluster) -> None:
    """AUTH-11: although each has just admitted it. An invalid search gets the same 401."""
    client = json.loads(command_output("client", "add", "--store", cluster.store, "--name", "short"))
    token = cluster.new_token(client)
    paths = ("/Task?_count=0", "/Task?_count=2", "/Task?shoe=1", "/Task/none", "/fhir/Task")

    def asked() -> list[int]:
        return [cluster.get(path, at, token).status_code for at in range(len(cluster.urls)) for path in paths]

    assert asked() == [200, 200, 400, 404, 200] * len(cluster.urls)
    command_output("client", "revoke", "--store", cluster.store, client["client_id"])
    assert set(asked()) == {401}


@pytest.mark.parametrize("path", ["", "/fhir"])
def test_a_token_that_ended_elsewhere_creates_nothing(cluster: Cluster, path: str) -> None:
    """AUTH-11, AUTH-05: although each process has just created with it. An invalid body gets the same 401."""
    client = json.loads(command_output("client", "add", "--store", cluster.store, "--name", "short"))
    headers = {"authorization": f"Bearer {cluster.new_token(client)}", "content-type": "application/json"}
    addresses = [f"{url}{path}/Task" for url in cluster.urls for _ in range(2)]
    number = 9_000 + len(path)
    bodies = [json.dumps(task(number)).encode(), b"{", b'{"resourceType": "Task"}', b""]
    assert {loopback.post(each, content=bodies[0], headers=headers).status_code for each in addresses} == {201}
    command_output("client", "revoke", "--store", cluster.store, client["client_id"])
    refused = [loopback.post(each, content=body, headers=headers) for each in addresses for body in bodies]
    assert {(each.status_code, each.headers.get("www-authenticate")) for each in refused} == {(401, "Bearer")}
    assert len({each.content for each in refused}) == 1
    assert cluster.get(f"/Task?identifier=urn:test%7C{number}").json()["total"] == len(addresses)


def test_an_address_that_one_process_signed_is_good_at_another(cluster: Cluster) -> None:
    """DR-24"""
    for entry in cluster.get("/DiagnosticReport?_count=100").json()["entry"]:
        signed = re.search(r"/DiagnosticReport/[^\"]*signature=[^\"]*", json.dumps(entry))
        if signed:
            assert loopback.get(f"{cluster.urls[-1]}{signed[0]}").status_code == 200
            return
    raise AssertionError("the world has no document")


def test_the_store_is_well_after_all_this(cluster: Cluster) -> None:
    """CLI-SVC-10: the commands work while the services run."""
    assert "nothing wrong" in command_output("check", "--store", cluster.store)
    assert "tests" in command_output("client", "list", "--store", cluster.store)
    assert "unchanged" in command_output("load", "--store", cluster.store, str(WORLD))


# --- PostgreSQL alone -------------------------------------------------------------------------------


@pytest.fixture
def shared(url: str, tmp_path: Path) -> Iterator[Running]:
    """A service over a PostgreSQL store."""
    with running(tmp_path, store=url) as found:
        yield found


def create(found: Running, number: int) -> int:
    return found.client.post("/Task", json=task(number)).status_code


def end_sessions(postgres: Postgres, url: str) -> None:
    name = make_url(url).database
    postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")


def test_a_store_that_several_processes_make_at_once_is_one(url: str) -> None:
    """CLI-SVC-01"""
    with ThreadPoolExecutor(4) as threads:
        stores = list(threads.map(Store.open, [url] * 4))
    for store in stores:
        store.close()
    assert len({store.id for store in stores}) == len({store.signing_key for store in stores}) == 1


def test_a_database_that_is_cut_off_is_noticed_soon(url: str) -> None:
    """SCALE-03: unless its URL sets other time limits."""
    for address, seconds in ((url, "15"), (f"{url}&keepalives_idle=99", "99")):
        engine = postgresql.PostgreSql(address).open(create=False)
        raw: Any = engine.raw_connection()
        given = raw.driver_connection.info.get_parameters()
        raw.close()
        engine.dispose()
        assert (given["keepalives_idle"], given["tcp_user_timeout"]) == (seconds, "30000")


def test_lost_connections_are_made_anew(shared: Running, postgres: Postgres, url: str) -> None:
    assert create(shared, 1) == 201
    end_sessions(postgres, url)
    assert create(shared, 2) == 201
    for _ in range(2):
        assert total(shared.client, "/Task?_count=0") == 2
        end_sessions(postgres, url)
    assert total(shared.client, "/Task?_count=0") == 2


def test_a_connection_is_asked_whether_it_is_there_once_it_has_lain(
    shared: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that does not answer is replaced. One that was just used costs no exchange."""
    dialect = shared.service.store._answering.dialect
    ping, asked = dialect.do_ping, list[object]()

    def lost(raw: Any) -> bool:
        asked.append(raw)
        if len(asked) == 1:
            raise psycopg.OperationalError("the connection is lost")
        return bool(ping(raw))

    monkeypatch.setattr(dialect, "do_ping", lost)
    for _ in range(3):
        assert total(shared.client, "/Task?_count=0") == 0
    assert not asked
    monkeypatch.setattr(postgresql_sessions, "_USED_JUST_NOW", 0)
    for _ in range(3):
        assert total(shared.client, "/Task?_count=0") == 0
    lost_one, *others = asked
    assert others
    assert lost_one not in others


def test_a_connection_that_was_closed_here_is_made_anew(shared: Running) -> None:
    assert total(shared.client, "/Task/_history") == 0
    kept: Any = shared.service.store._answering.raw_connection()
    driver = kept.driver_connection
    kept.close()
    driver.close()
    assert total(shared.client, "/Task/_history") == 0


def test_a_database_that_is_gone_is_503_until_it_is_back(
    shared: Running, postgres: Postgres, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is stored after a refusal. The log says the reason, once."""
    name = make_url(url).database
    postgres.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    end_sessions(postgres, url)
    refused = shared.client.post("/Task", json=task(1))
    assert (refused.status_code, refused.json()["issue"][0]["code"]) == (503, "transient")
    assert shared.client.get("/Task").status_code == 503
    assert shared.client.get("/health").status_code == 503
    said = [line for line in caplog.messages if line.startswith(f"the database {name} on ")]
    assert len(said) == 1
    assert f'database "{name}" is not currently accepting connections' in said[0]
    postgres.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    assert shared.client.get("/health").status_code == 200
    assert create(shared, 2) == 201
    assert total(shared.client, "/Task?_count=0") == 1


def test_the_reason_why_a_database_is_lost_shows_no_password() -> None:
    sessions = Sessions("postgresql://chart:s3cret@db/chart")
    said = sessions.reason(psycopg.OperationalError('connection failed: "s3cret" is no password\nHINT: s3cret'))
    assert said == 'connection failed: "***" is no password'


def test_a_connection_lost_before_the_commit_is_tried_again(
    shared: Running, postgres: Postgres, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect = shared.service.store.dialect
    append, met = dialect.append, list[str]()

    def lose(connection: Any, added: Any) -> None:
        append(connection, added)
        if not met:
            met.append(added[0][0].name)
            end_sessions(postgres, url)

    monkeypatch.setattr(dialect, "append", lose)
    assert create(shared, 1) == 201
    assert met
    assert total(shared.client, "/Task?_count=0") == 1


def test_a_write_that_waits_too_long_for_another_process_is_refused(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "SESSION", SESSION.replace("10s", "200ms"))
    monkeypatch.setattr(commits, "PAUSES", (0.01,))
    with running(tmp_path, store=url) as found:
        other = Store.open(url)
        with other.engine.begin() as connection:
            other.dialect.lock(connection, resources=True)
            assert create(found, 1) == 503
        other.close()
        assert create(found, 2) == 201
        assert total(found.client, "/Task?_count=0") == 1


def test_text_of_any_length_and_letter_is_found(shared: Running) -> None:
    """COMMON-47, TASK-SEARCH-02, TASK-SEARCH-03: texts longer than an index, and the case of all alphabets."""
    long = "ключ " + "ß%_/\\" * 2000
    body = task(1, description="Ärzte ΑΣ Żółw 100%_/", identifier=[{"system": "urn:long", "value": long}])
    body["input"][0]["valueString"] = long
    assert shared.client.post("/Task", json=body).status_code == 201
    assert create(shared, 2) == 201
    escaped = long.replace("\\", "\\\\")
    for name, value in {"label": escaped, "identifier": f"urn:long|{escaped}"}.items():
        assert shared.client.post("/Task/_search", data={name: value}).json()["total"] == 1, name
    for part in ("ärzte", "ασ", "żÓŁW", "100%_/"):
        assert shared.client.get("/Task", params={"description": part}).json()["total"] == 1, part
    assert shared.client.get("/Task", params={"description": "100%%"}).json()["total"] == 0


def test_text_is_compared_and_sorted_byte_for_byte(url: str) -> None:
    """TASK-SEARCH-11: as on DuckDB."""
    Store.open(url).close()
    engine = create_engine(url)
    query = """SELECT table_name, column_name FROM information_schema.columns
               WHERE table_schema = 'public' AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'"""
    with engine.connect() as connection:
        assert connection.execute(text(query)).all() == []
    engine.dispose()


def test_two_schemas_of_a_database_are_two_stores(url: str) -> None:
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute("CREATE SCHEMA one")
        connection.execute("CREATE SCHEMA two")
    ids = []
    for schema in ("one", "two", "one"):
        store = Store.open(f"{url}&options=-csearch_path%3D{schema}")
        ids.append(store.id)
        store.close()
    assert ids[0] == ids[2] != ids[1]


def test_a_store_that_is_missing_is_not_made_by_a_command_that_looks(url: str) -> None:
    done = called("check", "--store", url, **UNHEARD)
    assert (done.exit_code, done.stderr) == (1, "Error: there is no store in the database\n")


def test_messages_name_all_hosts_of_an_address() -> None:
    """CLI-SVC-01"""
    done = called("check", "--store", "postgresql://u@/store?host=127.0.0.1:1&host=localhost:2", **UNHEARD)
    assert "the database store on 127.0.0.1:1, localhost:2 cannot be opened" in done.stderr


@pytest.mark.parametrize(
    "address",
    [
        "postgresql+psycopg://user:s3cret@127.0.0.1:1/store",
        "postgresql+psycopg://user:s3cret:s3cret@127.0.0.1/store",
        "postgresql://user@127.0.0.1:s3cret/store",
        "postgresql://user:s3cret@127.0.0.1:1/store?s3cret=s3cret",
        "mysql://user:s3cret@127.0.0.1/store",
    ],
)
def test_messages_hold_no_password(address: str) -> None:
    """CLI-SVC-01"""
    for arguments in (("check",), ("client", "list")):
        done = called(*arguments, "--store", address, **UNHEARD)
        assert done.exit_code == 1
        assert "s3cret" not in done.output
        assert len(done.stderr.splitlines()) == 1

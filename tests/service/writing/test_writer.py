"""The writer: one batch, one commit, a constant number of statements, and nothing stored after a refusal."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from fhir_service.reference.loading import load
from fhir_service.store import dialects, duckdb_raw, postgresql
from fhir_service.store.tables import ACCOUNT
from fhir_service.writing import commits, line, writer
from tests.conftest import BOTH, WORLD, Running
from tests.support import loopback
from tests.support.bodies import entry, payment, send, task, total

STORES = BOTH


class _Counting:
    """A driver's connection that counts its statements."""

    def __init__(self, connection: Any, seen: list[str]) -> None:
        self._connection, self._seen = connection, seen

    def execute(self, sql: Any, *args: Any, **options: Any) -> Any:
        """Run a statement: a text, bytes, or a prepared one."""
        text = sql.decode() if isinstance(sql, bytes) else str(getattr(sql, "query", sql))
        into = re.match(r"INSERT INTO (\w+)", text)
        self._seen.append(f"append {into[1]}" if into else text)
        return self._connection.execute(sql, *args, **options)

    def extract_statements(self, sql: str) -> Any:
        return self._connection.extract_statements(sql)

    def appender(self, table: str, **options: Any) -> Any:
        return self._connection.appender(table, **options)

    def pipeline(self) -> Any:
        return self._connection.pipeline()


def _counted(appender: Any, seen: list[str]) -> Any:
    def asked(connection: Any, table: str, columns: tuple[str, ...]) -> Any:
        seen.append(f"append {table}")
        return appender(connection, table, columns)

    return asked


@contextmanager
def straight_to_the_tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let nothing be stored ahead of the tables, as for updates and large batches, and no sums be brought there."""
    with monkeypatch.context() as patch:
        patch.setattr(commits, "MOST_AHEAD", -1)
        patch.setattr(writer, "REST", 60)
        yield


@contextmanager
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    seen: list[str] = []
    with monkeypatch.context() as patch:
        for module, name in ((dialects, "raw_of"), (duckdb_raw, "raw_of"), (postgresql, "_raw")):
            below = getattr(module, name)
            patch.setattr(module, name, lambda connection, below=below: _Counting(below(connection), seen))
        patch.setattr(dialects, "appender_of", _counted(duckdb_raw.appender_of, seen))
        yield seen


@pytest.mark.alike
@pytest.mark.parametrize("kind", ["task", "payment"])
def test_a_batch_takes_as_many_statements_however_many_creates_it_has(
    fresh_service: Running, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    make: Any = {"task": task, "payment": lambda n: payment(1) | {"identifier": task(n)["identifier"]}}[kind]
    counts = []
    for size in (1, 4, 40):
        entries = [entry(make(100 * size + n), f"identifier=urn:test|{100 * size + n}") for n in range(size)]
        with statements(monkeypatch) as seen, straight_to_the_tables(monkeypatch):
            answers = send(fresh_service.client, entries)
        assert {answer["status"] for answer in answers} == {"201"}
        counts.append(len(seen))
    # The first one may read all identifiers; PostgreSQL takes its rows together.
    assert max(counts) <= 14
    assert counts[1] == counts[2]


def test_the_rows_of_one_create_go_into_all_their_tables_by_one_statement(
    fresh_service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL, where statements are the cost of a small batch."""
    if not fresh_service.service.store.dialect.shared:
        pytest.skip("a file takes the rows of single creates ahead of its tables")
    made = task(1) | {"input": [{"type": {"text": "label"}, "valueString": f"label {n}"} for n in range(3)]}
    with statements(monkeypatch) as seen:
        created = _create(fresh_service, made)
    assert [statement.count("INSERT INTO") for statement in seen if "INSERT INTO" in statement] == [3]
    stored = fresh_service.client.get(created.headers["location"]).json()
    assert [one["valueString"] for one in stored["input"]] == [f"label {n}" for n in range(3)]


def test_rows_that_may_wait_for_others_go_into_one_table_after_the_other(
    fresh_service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL, where batches that write these tables in different orders could deadlock."""
    if not fresh_service.service.store.dialect.shared:
        pytest.skip("nobody else writes to a file")
    answers = {
        "resourceType": "QuestionnaireResponse",
        "questionnaire": f"{fresh_service.url}/Questionnaire/q-intake",
        "status": "completed",
        "subject": {"reference": "Patient/p1"},
    }

    def conditional(body: dict[str, Any], name: str) -> dict[str, Any]:
        identifier = {"system": "urn:test", "value": name}
        return entry(
            body | {"identifier": identifier if body is answers else [identifier]}, f"identifier=urn:test|{name}"
        )

    taken = []
    for turn, (tasks, payments, responses) in enumerate([(1, 1, 1), (1, 4, 4), (4, 1, 1), (4, 4, 4)]):
        bodies = [*map(task, range(tasks)), *(payment(1) for _ in range(payments)), *[answers] * responses]
        entries = [conditional(body, f"{turn}-{number}") for number, body in enumerate(bodies)]
        with statements(monkeypatch) as seen:
            assert {answer["status"] for answer in send(fresh_service.client, entries)} == {"201"}
        inserted = [re.findall(r"(?:INSERT INTO|append) (\w+)", statement) for statement in seen]
        taken.append([tables for tables in inserted if re.search(r"\bnote\b|_identifier\b", " ".join(tables))])
    names = ["note", "payment_notice_identifier", "questionnaire_response_identifier", "task_identifier"]
    assert taken == [[[name] for name in names]] * 4


def test_concurrent_creates_are_committed_together(fresh_service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that wait for the writer become one batch: there are fewer batches than requests."""
    held = threading.Event()
    writer = fresh_service.service.writer
    blocker = threading.Thread(target=lambda: writer.transact(lambda _: held.wait(10)))
    blocker.start()
    with statements(monkeypatch) as seen, straight_to_the_tables(monkeypatch):
        threads = [threading.Thread(target=lambda n=n: _create(fresh_service, task(n))) for n in range(12)]
        for thread in threads:
            thread.start()
        while len(writer._line) < 12:
            threading.Event().wait(0.01)
        held.set()
        for thread in [*threads, blocker]:
            thread.join()
    assert seen.count("append task") == 1
    assert total(fresh_service.client, "/Task?_count=0") == 12


def test_clients_that_write_again_and_again_share_their_commits(
    fresh_service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not alternate, each waiting for the other's commit."""
    monkeypatch.setattr(line, "COMPANY", 2.0)
    held: list[int] = []
    monkeypatch.setattr(fresh_service.service.writer._commits, "_committed", held.append)

    def work(first: int) -> None:
        for n in range(first, first + 15):
            assert fresh_service.client.post("/Task", json=task(n)).status_code == 201

    threads = [threading.Thread(target=work, args=[first]) for first in (0, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(held) == 30
    assert held.count(2) >= 8


def _create(running: Running, body: dict[str, Any], **headers: str) -> httpx.Response:
    return loopback.post(
        f"{running.url}/{body['resourceType']}", json=body, headers=running.headers | headers, timeout=30
    )


@pytest.mark.on_both
def test_payments_at_once_never_take_the_balance_below_zero(fresh_service: Running) -> None:
    """PAY-CREATE-08: of many payments only those that fit are accepted; the account agrees with what is stored."""
    answers: list[int] = []
    owed = _balance(fresh_service, "p1")
    part = owed // 4 + 1
    threads = [
        threading.Thread(target=lambda: answers.append(_create(fresh_service, payment(part)).status_code))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [201] * 3 + [422] * 13
    assert _balance(fresh_service, "p1") == owed - 3 * part


def _balance(running: Running, patient: str) -> int:
    with running.service.store.read(sums=True) as connection:
        query = select(ACCOUNT.c.charged - ACCOUNT.c.paid).where(ACCOUNT.c.patient == patient)
        row = connection.execute(query).scalar()
    assert isinstance(row, int)
    return row


@pytest.mark.on_both
def test_equal_conditional_creates_at_once_make_one_resource(fresh_service: Running) -> None:
    """EXTRA-COND-01, EXTRA-COND-02, EXTRA-COND-07: one 201, the others 200 with its location."""
    answers: list[tuple[int, str]] = []

    def create() -> None:
        answer = _create(fresh_service, task(7), **{"if-none-exist": "identifier=urn:test|7"})
        answers.append((answer.status_code, answer.headers["location"]))

    threads = [threading.Thread(target=create) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(status for status, _ in answers) == [200] * 19 + [201]
    assert len({location for _, location in answers}) == 1
    assert total(fresh_service.client, "/Task?identifier=urn:test%7C7") == 1


def test_a_batch_finds_what_its_earlier_entries_made(fresh_service: Running) -> None:
    """EXTRA-COND-06: ifNoneExist holds against earlier entries of the same batch."""
    first, second = send(fresh_service.client, [entry(task(1), "identifier=urn:test|1")] * 2)
    assert (first["status"], second["status"]) == ("201", "200")
    assert first["location"] == second["location"]


def test_entries_of_a_batch_are_independent_and_done_in_order(fresh_service: Running) -> None:
    """EXTRA-BATCH-01 to EXTRA-BATCH-04: the entry that fails changes nothing for the others."""
    owed = _balance(fresh_service, "p1")
    entries = [entry(payment(owed - 1)), entry(payment(2)), entry(task(1, status="draft")), entry(payment(1))]
    answers = send(fresh_service.client, entries)
    assert [answer["status"] for answer in answers] == ["201", "422", "422", "201"]
    assert answers[2]["outcome"]["issue"][0]["expression"] == ["Task.status"]
    assert _balance(fresh_service, "p1") == 0


def test_a_create_that_matches_several_is_refused(fresh_service: Running) -> None:
    """EXTRA-COND-03, EXTRA-COND-04."""
    for _ in range(2):
        assert _create(fresh_service, task(1)).status_code == 201
    answer = _create(fresh_service, task(1), **{"if-none-exist": "identifier=urn:test|1"})
    assert (answer.status_code, answer.json()["issue"][0]["code"]) == (412, "multiple-matches")


@pytest.mark.parametrize(
    "condition", ["identifier=x", "identifier=|1", "identifier=urn:a|1&status=x", "status=x", "", "a"]
)
def test_a_condition_that_is_no_identifier_is_never_an_unconditional_create(
    fresh_service: Running, condition: str
) -> None:
    """EXTRA-COND-10."""
    answer = _create(fresh_service, task(1), **{"if-none-exist": condition})
    assert answer.status_code == 400
    assert total(fresh_service.client, "/Task?_count=0") == 0


@pytest.mark.on_both
def test_a_failing_batch_stores_nothing_and_says_so(fresh_service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure before the commit is a 503, and the service goes on."""

    def fail(*_: Any) -> None:
        raise RuntimeError("planted")

    with straight_to_the_tables(monkeypatch), monkeypatch.context() as patch:
        patch.setattr(fresh_service.service.store.dialect, "append", fail)
        answer = _create(fresh_service, task(1))
    assert answer.status_code == 503
    assert answer.json()["issue"][0]["code"] == "transient"
    assert _create(fresh_service, task(2)).status_code == 201
    assert total(fresh_service.client, "/Task?_count=0") == 1


@pytest.mark.on_both
def test_a_batch_that_fails_on_its_way_stores_nothing_of_it(
    fresh_service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EXTRA-BATCH-03: what was added before the failure goes with it."""
    dialect, added = fresh_service.service.store.dialect, []
    append = dialect.append

    def fail_late(connection: Any, several: Any) -> None:
        for one in several:
            added.append(name := one[0].name)
            if name == "task_identifier":
                raise RuntimeError("planted")
            append(connection, [one])

    with straight_to_the_tables(monkeypatch), monkeypatch.context() as patch:
        patch.setattr(dialect, "append", fail_late)
        assert _create(fresh_service, task(1)).status_code == 503
    assert added[0] == "task"
    assert total(fresh_service.client, "/Task?_count=0") == 0


@pytest.mark.on_both
def test_a_failed_batch_leaves_the_balance_as_it_was(fresh_service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """PAY-CREATE-04, PAY-CREATE-08: balances are kept from batch to batch, except those of a batch that failed."""
    owed = _balance(fresh_service, "p1")

    def fail(*_: Any) -> None:
        raise RuntimeError("planted")

    assert _create(fresh_service, payment(100)).status_code == 201
    with straight_to_the_tables(monkeypatch), monkeypatch.context() as patch:
        patch.setattr(fresh_service.service.store.dialect, "change", fail)
        assert _create(fresh_service, payment(owed - 100)).status_code == 503
    assert _create(fresh_service, payment(owed - 99)).status_code == 422
    assert _create(fresh_service, payment(owed - 100)).status_code == 201
    assert _create(fresh_service, payment(1)).status_code == 422
    assert _balance(fresh_service, "p1") == 0
    copayment = payment(200) | {
        "extension": [
            {
                "url": fresh_service.service.site.copayment,
                "extension": [{"url": "claim", "valueReference": {"reference": "Claim/c1"}}],
            }
        ]
    }
    assert [_create(fresh_service, copayment).status_code for _ in range(2)] == [201, 201]
    assert _balance(fresh_service, "p1") == -400


def test_reference_data_loaded_between_batches_counts_in_the_next_one(fresh_service: Running, tmp_path: Path) -> None:
    """PAY-CREATE-04, TASK-25: records and charges that were read before are read again after a load."""
    assert _create(fresh_service, payment(_balance(fresh_service, "p1"))).status_code == 201
    assert _create(fresh_service, payment(2500)).status_code == 422
    assert _create(fresh_service, task(1, owner={"reference": "Practitioner/new"})).status_code == 422
    claim = json.loads((WORLD / "claim.ndjson").read_text().splitlines()[0])
    claim |= {"id": "c-new", "created": "2026-02-01", "total": {"value": 25, "currency": "USD"}}
    records = tmp_path / "more.ndjson"
    records.write_text(json.dumps(claim) + "\n" + json.dumps({"resourceType": "Practitioner", "id": "new"}) + "\n")
    service = fresh_service.service
    load([records], service.writer, service.store, service.clock, service.new_id, service.site)
    assert _create(fresh_service, task(1, owner={"reference": "Practitioner/new"})).status_code == 201
    assert _create(fresh_service, payment(2500)).status_code == 201
    assert _create(fresh_service, payment(1)).status_code == 422


def test_paging_under_concurrent_writes_shows_each_row_once(fresh_service: Running) -> None:
    """SEARCH-16, BUNDLE-11: following next neither repeats nor misses a row; later rows come at the end."""
    for n in range(25):
        _create(fresh_service, task(n))
    url, seen, made = "/Task?_count=4", [], 25
    while url:
        page = fresh_service.client.get(url).json()
        seen += [found["resource"]["description"] for found in page.get("entry", ())]
        url = next((link["url"] for link in page["link"] if link["relation"] == "next"), "")
        if made < 35:
            _create(fresh_service, task(made))
            made += 1
    assert len(seen) >= 25
    assert seen == [f"task {n}" for n in range(len(seen))]


@pytest.mark.on_both
def test_a_create_like_one_before_finds_its_statements_parsed(
    fresh_service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, dialect = fresh_service.service.store.engine, fresh_service.service.store.dialect
    if dialect.shared:
        pytest.skip("PostgreSQL's driver prepares statements by itself")

    def parsed() -> dict[str, Any]:
        with engine.connect() as connection:  # the writer's own: the last that was used
            return dict(connection.info.get("statements", {}))

    with straight_to_the_tables(monkeypatch):
        _create(fresh_service, task(1))
        before = parsed()
        _create(fresh_service, task(2))
    assert any(sql.startswith("INSERT INTO task ") for sql in before)
    assert parsed() == before

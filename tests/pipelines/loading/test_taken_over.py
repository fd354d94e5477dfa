"""A loader that was held up until another took over its target, and then continues with outdated knowledge."""

import time
from contextlib import closing
from datetime import UTC, datetime

import pytest
from sqlalchemy import update

from pipelines.client.client import FhirClient
from pipelines.ledger.lease import SILENCE, LeaseLost
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import lease, records
from pipelines.loading.intake import Intake
from pipelines.loading.row import RowResult
from tests.support.fake_target import FakeTarget
from tests.support.work import TARGET, payment, response, task, work_at


@pytest.fixture(params=[True, False], ids=["with additions", "bare"])
def work(tmp_path, request):
    with work_at(tmp_path, FakeTarget(additions=request.param)) as work:
        yield work


@pytest.fixture
def held_up(monkeypatch):
    """Lets another loader take over, in this ledger, while the next resource is read that is to be changed."""

    def before_a_write(ledger):
        read = FhirClient.read_as_of

        def slow_read(client, kind, name):
            take_over(ledger)
            monkeypatch.setattr(ledger, "clock", lambda: datetime.now(UTC) + SILENCE)
            return read(client, kind, name)

        exchange = FhirClient.exchange

        def slow_exchange(client, entries, kind):
            take_over(ledger)
            monkeypatch.setattr(ledger, "clock", lambda: datetime.now(UTC) + SILENCE)
            return exchange(client, entries, kind)

        monkeypatch.setattr(FhirClient, "read_as_of", slow_read)
        monkeypatch.setattr(FhirClient, "exchange", slow_exchange)

    return before_a_write


def take_over(ledger):
    with ledger.transaction() as connection:
        connection.execute(update(lease).values(owner="them"))


def test_a_loader_that_was_taken_over_updates_no_task(work, held_up):
    """LEDGER-08, LEDGER-10: the new loader may have brought them to a newer content."""
    work.follow("tasks", "update")
    work.run([task(1), task(2)], "tasks-1")
    held_up(work.ledger)
    with pytest.raises(LeaseLost):
        work.run([task(1, text="x"), task(2, text="x")], "tasks-2")
    assert work.target.puts == 0
    assert set(work.states().values()) == {"sending"}


def test_a_loader_that_was_taken_over_takes_no_superseded_response_back(work, held_up):
    """LEDGER-08, LEDGER-10: the next import takes it back."""
    work.follow("answers", "supersede")
    work.run([response(1)], "answers-1")
    held_up(work.ledger)
    loaded = work.run([response(1, text="other")], "answers-2")
    assert (loaded.counts, loaded.unusable) == ({"superseded": 1}, f"another loader took over the target {TARGET}")
    assert work.target.puts == 0


def test_an_undo_that_was_taken_over_takes_nothing_more_back(home, target, asked, held_up):
    """LEDGER-10, CLI-CMD-22: it names what is left."""
    (home / "inbox" / "tasks.csv").write_text(
        "task_id,patient_id,description,status,requester_id\nk1,p1,call,requested,a\n"
    )
    batch = asked("import")["batches"][0]["batch_id"]
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        held_up(ledger)
        done = asked("undo", batch)
    assert (done["exit_code"], done["taken"], done["not_taken"]) == (6, 0, 1)
    assert "another loader took over the target" in done["unusable"]
    assert [body["status"] for body in target.stored.values()] == ["requested"]


def test_a_machine_that_slept_asks_before_it_sends(work, monkeypatch):
    """LEDGER-10: the time by the ledger's server, which it was told before, did not go on meanwhile."""
    asleep, noon = [0], datetime(2026, 3, 1, 12, tzinfo=UTC)
    monkeypatch.setattr(time, "clock_gettime", lambda _: 1_000.0 + asleep[0])
    monkeypatch.setattr(work.ledger, "clock", lambda: noon)
    with work.ledger.lease(TARGET) as lease:
        book = work.book(lease, [payment(1)])
        book.confirm()
        take_over(work.ledger)
        asleep[0] = 3_600
        with pytest.raises(LeaseLost):
            book.confirm()


@pytest.mark.by_hand
@pytest.mark.parametrize(
    "now",
    [{"state": "updated"}, {"state": "sending", "content_hash": "newer"}, {"state": "planned", "generation": 2}],
    ids=["settled", "being changed", "of another generation"],
)
def test_a_loader_that_was_taken_over_does_not_overwrite_newer_states(work, now):
    """LEDGER-01, LEDGER-10"""
    with work.ledger.lease(TARGET) as lease:
        book = work.book(lease, [payment(1), payment(2)])
        rows = list(Intake(book).rows_to_send())
        book.write_down(rows, [])
        with work.ledger.transaction() as connection:
            connection.execute(update(records).where(records.c.key == "k1").values(now))
        take_over(work.ledger)
        with pytest.raises(LeaseLost):
            book.write_down([], [(row, RowResult("created", f"r-{row.key}", 201)) for row in rows])
    found = {each["key"]: (each["state"], each["resource_id"]) for each in work.table("record")}
    assert found == {"k1": (now["state"], None), "k2": ("created", "r-k2")}

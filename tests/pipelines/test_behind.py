"""A ledger that is behind what lies in the home is told before anything is sent twice; one that is not is let alone."""

import json
import shutil
import sqlite3
import time
from contextlib import closing

import pytest

from pipelines.ledger.ledger import Ledger
from pipelines.pipeline import validate_run
from tests.pipelines.fake_target import FakeTarget, Said, outcome, serving
from tests.pipelines.test_decisions import payments, put, tasks
from tests.pipelines.test_outcomes import killed
from tests.pipelines.test_verify import lose_ledger

PAYMENTS = "payment_id,patient_id,amount,paid_on\n"
REFUSED = Said(401, outcome("unknown"))


@pytest.fixture(autouse=True)
def bare(target, monkeypatch):
    """Without conditional create, where the ledger alone keeps rows from being sent twice."""
    target.additions = False
    monkeypatch.setattr("pipelines.importing.publish_into", lambda *_: None)
    monkeypatch.setattr("pipelines.retrying.publish_into", lambda *_: None)


def put_back_as_of_its_begin(home, chartferry, monkeypatch, *command):
    """A run that sends all it has and is killed, and then the ledger as it was when that run began."""
    older = home.parent / "older.db"

    def copying(*arguments):
        with closing(sqlite3.connect(home / "ledger.db")) as ledger:
            ledger.execute("VACUUM INTO ?", [str(older)])
        return validate_run(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr("pipelines.pipeline.validate_run", copying)
        patched.setattr("pipelines.pipeline.end", killed)
        chartferry(*command)
    lose_ledger(home)
    shutil.move(older, home / "ledger.db")


def messages(found):
    return [batch["message"] for batch in found["batches"]]


# -- behind


def test_rows_that_a_copy_knows_as_planned_and_that_were_sent_since(home, target, asked, chartferry, monkeypatch):
    """LEDGER-01: the copy knows that they were surely not sent."""
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    target.faults = [REFUSED] * 40
    chartferry("import")
    target.faults = []
    target.valid_tokens.add("fixed")
    put_back_as_of_its_begin(home, chartferry, monkeypatch, "import")
    before = dict(target.stored)
    assert len(before) == 2
    assert "chartferry verify --adopt" in messages(asked("import"))[0]
    asked("verify", "--adopt")
    asked("import")
    assert target.stored == before
    assert asked("verify")["differences"] == []


def test_rows_that_a_copy_knows_as_taken_back_and_that_were_made_anew_since(
    home, target, asked, chartferry, monkeypatch
):
    """LEDGER-01"""
    tasks(home, "k1", "k2")
    batch = asked("import")["batches"][0]["batch_id"]
    asked("undo", batch)
    put_back_as_of_its_begin(home, chartferry, monkeypatch, "import", "--again", batch)
    before = dict(target.stored)
    assert "chartferry verify --adopt" in messages(asked("import"))[0]
    asked("verify", "--adopt")
    asked("import")
    assert target.stored == before


def test_a_batch_that_the_feed_cannot_read_any_more_goes_on_to_hold_up_others(home, target, asked):
    """CLI-CMD-17, LEDGER-01: what it sent may come again in any file, until the feed is put right."""
    of_the_feed = {"payment_id": "id", "patient_id": "patient", "amount": "amount", "paid_on": "paid"}

    def feed(**changed):
        names = "".join(f'{name} = "{column}"\n' for name, column in (of_the_feed | changed).items())
        text = f'kind = "payments"\nfiles = ["pay*"]\nchanged = "reject"\n[columns]\n{names}'
        (home / "feeds").mkdir(exist_ok=True)
        (home / "feeds" / "pay.toml").write_text(text)

    feed()
    put(home, "pay-a.csv", "id,patient,amount,paid\nk1,p1,1.00,2026-03-01\n")
    batch = asked("import")["batches"][0]["batch_id"]
    feed(amount="sum")
    lose_ledger(home)
    assert batch in asked("verify", "--adopt")["left"]
    put(home, "pay-b.csv", "id,patient,sum,paid\nk1,p1,1.00,2026-03-01\n")
    for _ in range(2):
        assert all("chartferry verify --adopt" in message for message in messages(asked("import")))
    feed()
    assert list(asked("verify", "--adopt")["batches"]) == [batch]
    feed(amount="sum")
    asked("import")
    assert len(target.of("PaymentNotice")) == 1


@pytest.mark.parametrize("source", ["a", "b"])
def test_a_batch_that_was_read_under_two_sources_holds_up_both(home, target, asked, source):
    """LEDGER-01: what it sent may come again under either."""

    def feed(named):
        names = "".join(f'{name} = "{name}"\n' for name in PAYMENTS.strip().split(","))
        text = f'kind = "payments"\nfiles = ["pay*"]\nsource = "{named}"\nchanged = "reject"\n[columns]\n{names}'
        (home / "feeds").mkdir(exist_ok=True)
        (home / "feeds" / "pay.toml").write_text(text)

    row = f"{PAYMENTS}k1,p1,1.00,2026-03-01\n"
    for named, *options in (("a",), ("b", "--remap")):
        feed(named)
        put(home, "pay.csv", row)
        asked("import", *options)
    there = len(target.of("PaymentNotice"))
    lose_ledger(home)
    feed(source)
    put(home, "pay-2.csv", f"{row}k2,p2,2.00,2026-03-01\n")
    found = asked("import", str(home / "inbox" / "pay-2.csv"))
    assert "chartferry verify --adopt" in messages(found)[0]
    assert len(target.of("PaymentNotice")) == there


def test_a_batch_that_another_target_got_since_is_adopted_where_it_was_first(home, asked, monkeypatch):
    """CLI-CMD-17, LEDGER-02: it was never again, and held up all others."""
    payments(home, ("k1", "p1", "1.00"))
    asked("import")
    lose_ledger(home)
    with monkeypatch.context() as patched, serving(FakeTarget()) as other:
        other.valid_tokens.add("fixed")
        other.additions = False
        patched.setenv("FHIR_BASE_URL", other.url)
        asked("import")
    payments(home, ("k2", "p1", "1.00"), name="payments-b.csv")
    assert "chartferry verify --adopt" in messages(asked("import"))[0]
    asked("verify", "--adopt")
    assert messages(asked("import")) == [None]
    assert asked("verify")["differences"] == []


# -- not behind


def test_of_two_importers_that_begin_a_batch_at_once_each_tells_its_own_run(home, asked, monkeypatch):
    """LEDGER-05: the other's had begun before this one looked, and was killed."""
    payments(home, ("k1", "p1", "1.00"))
    start = Ledger.start_run

    def both(self, *of, **about):
        number = start(self, *of, **about)
        time.sleep(0.001)
        start(self, *of, **about)
        return number

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "start_run", both)
        found = asked("import")
    run = home / "batches" / found["batches"][0]["batch_id"] / "run-1"
    began = json.loads((run / "manifest.json").read_text())["started_at"]
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        [first, second] = sorted(ledger.tables()["run"].to_pylist(), key=lambda each: each["run"])
    assert (first["started_at"], second["finished_at"]) == (began, None)
    payments(home, ("k2", "p1", "1.00"), name="payments-b.csv")
    assert set(messages(asked("import"))) == {None}


def test_a_file_that_no_run_began_with_is_not_lost(home, asked, chartferry, monkeypatch):
    """CLI-CMD-17: the importer was killed once it had taken it in."""
    payments(home, ("k0", "p1", "1.00"), name="payments-0.csv")
    asked("import")
    payments(home, ("k1", "p1", "1.00"))
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.pipeline.begin", killed)
        chartferry("import")
    assert asked("verify")["lost"] == []
    assert asked("import")["totals"]["created"] == 1

"""A run ends beside another process that changes its batch: the state is what both of them make true."""

from contextlib import closing, contextmanager
from threading import Thread

import pytest

from pipelines.client.client import FhirClient
from pipelines.client.replies import NotSent
from pipelines.ledger import batch_counts
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import Outcome
from pipelines.runs import batch, ending
from tests.support.exports import payments


@pytest.fixture(params=["in a file", "on a server"])
def address(request, home, monkeypatch):
    """The place of the home's ledger."""
    if request.param == "in a file":
        yield home / "ledger.db"
        return
    postgres, like = (request.getfixturevalue(name) for name in ("postgres", "ledger_on_server"))
    with postgres.database(like=like) as url:
        monkeypatch.setenv("CHARTFERRY_LEDGER", url)
        yield url


def states(address):
    with closing(Ledger.open(address)) as ledger:
        return [row["state"] for row in ledger.batches()]


@pytest.mark.alike
def test_a_batch_that_another_process_opens_while_its_run_ends_stays_open(home, target, asked, monkeypatch, address):
    """LEDGER-10: it waits until the end is written, which was found out before."""

    def opens():
        with closing(Ledger.open(address)) as ledger:
            [row] = ledger.batches()
            ledger.reopen_batch(row["target"], row["batch_id"])

    other = Thread(target=opens)

    def beside(*given, **named):
        found = batch_counts.with_outcomes(*given, **named)
        other.start()
        other.join(1)
        return found

    payments(home, ("k1", "p1", "1.00"))
    with monkeypatch.context() as patched:
        patched.setattr(ending, "with_outcomes", beside)
        assert asked("import")["exit_code"] == 0
    other.join(60)
    assert states(address) == ["running"]


def test_a_run_does_not_end_a_batch_of_which_another_process_is_sending_rows(home, target, asked, monkeypatch, address):
    """LEDGER-10: rows that were planned anew since this run came to its end."""

    def planned_since(session, run, *given):
        row = session.ledger.batch(session.target, run.received.batch_id)
        with closing(Ledger.open(address)) as ledger:
            planned = Outcome("k1", 1, "planned")
            ledger.settle(session.target, row["source"], row["resource_type"], [planned])
        return ending.end(session, run, *given)

    payments(home, ("k1", "p1", "1.00"))
    with monkeypatch.context() as patched:
        patched.setattr(batch, "end", planned_since)
        asked("import")
    assert states(address) == ["running"]
    asked("import")
    assert states(address) == ["finished"]


def test_a_run_that_fails_does_not_reopen_a_batch_that_another_run_finished(home, target, asked, monkeypatch, address):
    """LEDGER-10: both began while the batch had no end."""

    def ended_since(session, run, *given):
        counts = {"records": 1, "accepted": 1, "created": 1}
        with closing(Ledger.open(address)) as ledger:
            ledger.finish_batch(session.target, run.received.batch_id, "finished", counts)
        return ending.end_without_load(session, run, "failed", "no")

    payments(home, ("k1", "p1", "1.00"))
    with monkeypatch.context() as patched:
        patched.setattr(batch, "end", ended_since)
        asked("import")
    assert states(address) == ["finished"]


LIST = """
kind = "tasks"
files = ["list*.csv"]
changed = "update"
[columns]
task_id = "id"
patient_id = "p"
description = "{}"
status = "s"
requester_id = "r"
"""
TILL = """
kind = "payments"
files = ["till*.csv"]
[columns]
payment_id = "{}"
patient_id = "p"
amount = "{}"
paid_on = "d"
"""


def feed(home, name, text):
    (home / "feeds").mkdir(exist_ok=True)
    (home / "feeds" / f"{name}.toml").write_text(text)


@contextmanager
def away(monkeypatch):
    """Let no write reach the target."""

    def fails(*_, **__):
        raise NotSent("no connection", final=True)

    with monkeypatch.context() as patched:
        for write in ("create", "create_all", "update", "exchange"):
            patched.setattr(FhirClient, write, fails)
        yield


def test_rows_that_remap_made_anew_are_sent_by_the_next_import_if_the_target_was_away(
    home, target, asked, chartferry, monkeypatch
):
    """LEDGER-10: the batch was finished before, and has no end while its rows wait."""
    feed(home, "list", LIST.format("before"))
    (home / "inbox" / "list-1.csv").write_text("id,p,before,after,s,r\nk1,p1,call,phone,requested,a\n")
    asked("import")
    feed(home, "list", LIST.format("after"))
    with away(monkeypatch):
        chartferry("import", "--remap")
    assert states(home / "ledger.db") == ["running"]
    asked("import")
    assert [body["description"] for body in target.of("Task")] == ["phone"]
    assert states(home / "ledger.db") == ["finished"]


@pytest.mark.parametrize("columns", [("id", "much"), ("other", "amount")], ids=["rejected", "another key"])
def test_a_row_that_was_to_be_sent_and_is_read_otherwise_now_holds_its_batch_open_no_more(
    home, target, asked, monkeypatch, columns
):
    """LEDGER-10: nobody sends it."""
    feed(home, "till", TILL.format("id", "amount"))
    rows = "id,other,p,amount,much,d\nk1,z1,p1,1.00,none,2026-03-01\nk2,z2,p1,2.00,2.00,2026-03-02\n"
    (home / "inbox" / "till-1.csv").write_text(rows)
    with away(monkeypatch):
        asked("import")
    assert states(home / "ledger.db") == ["running"]
    feed(home, "till", TILL.format(*columns))
    asked("import")
    assert states(home / "ledger.db") == ["finished"]


def test_a_batch_of_which_rows_were_sent_is_not_called_stopped(home, target, asked):
    """LEDGER-14: its records stay counted, and the row that waits is sent once the file may go on."""
    feed(home, "till", TILL.format("id", "amount"))
    rows = ("k1,z1,p1,1.00,,2026-03-01", "k2,z2,p2,2.00,,2026-03-02", "k3,z3,p1,none,,2026-03-02")
    (home / "inbox" / "till-1.csv").write_text("\n".join(("id,other,p,amount,much,d", *rows, "")))
    asked("import")
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        [row] = ledger.batches()
        ledger.settle(row["target"], row["source"], row["resource_type"], [Outcome("k2", 1, "planned")])
        ledger.finish_batch(row["target"], row["batch_id"], "running")
    [gone] = [name for name, body in target.stored.items() if body["amount"]["value"] == 2]
    target.lose(gone)
    feed(home, "till", "max_rejects = 0" + TILL.format("id", "amount"))
    asked("import")
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        assert [(row["state"], row["created"]) for row in ledger.batches()] == [("running", 1)]
    feed(home, "till", TILL.format("id", "amount"))
    asked("import")
    assert states(home / "ledger.db") == ["finished"]
    assert sorted(body["amount"]["value"] for body in target.of("PaymentNotice")) == [1, 2]

"""A run ends beside another process that changes its batch: the state is what both of them make true."""

from contextlib import closing
from threading import Thread

import pytest

from pipelines.ledger import so_far
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


def test_a_batch_that_another_process_opens_while_its_run_ends_stays_open(home, target, asked, monkeypatch, address):
    """LEDGER-10: it waits until the end is written, which was found out before."""

    def opens():
        with closing(Ledger.open(address)) as ledger:
            [row] = ledger.batches()
            ledger.reopen_batch(row["target"], row["batch_id"])

    other = Thread(target=opens)

    def beside(*given, **named):
        found = so_far.with_outcomes(*given, **named)
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


def test_a_run_that_fails_takes_nothing_from_what_another_one_has_ended(home, target, asked, monkeypatch, address):
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

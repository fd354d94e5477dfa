"""A ledger's PostgreSQL that dies in a load, and whose standby takes over: nothing is lost, and nothing is double."""

from contextlib import closing

import pytest
from sqlalchemy.exc import SQLAlchemyError

from pipelines.ledger.database import FAILED_OVER, NO_ANSWER, STANDBY
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import LedgerError
from tests.support.exports import payments
from tests.support.standby import WAYS, running_pair

LOST = "was loaded before, and the ledger does not know that: chartferry verify --adopt"


@pytest.fixture(autouse=True)
def short_silence(monkeypatch):
    """The process of a command that was cut off is this one, which lives on."""
    monkeypatch.setattr("pipelines.ledger.lease.SILENCE_SECONDS", 0.5)


def amounts(target) -> list[float]:
    return sorted(body["amount"]["value"] for body in target.of("PaymentNotice"))


@pytest.fixture
def failing(monkeypatch):
    """Let something happen once, behind a function of the ledger."""

    def behind(step, happens):
        done, left = getattr(Ledger, step), [happens]

        def and_then(*arguments, **options):
            result = done(*arguments, **options)
            if left:
                left.pop()()
            return result

        monkeypatch.setattr(Ledger, step, and_then)
        return left

    return behind


def is_told(code, out, err) -> None:
    """An import that did not end says why in one sentence."""
    assert "Traceback" not in out + err
    assert (code in (0, 5)) or (code == 6 and any(said in out + err for said in (NO_ANSWER, FAILED_OVER))), out + err


@pytest.mark.alike
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("step", ["intend", "settle", pytest.param("finish_run", marks=pytest.mark.long)])
def test_a_standby_that_has_every_commit_goes_on(
    home, target, chartferry, asked, monkeypatch, failing, step, way, additions
):
    """SCALE-03, LEDGER-01: the next import ends what the failover cut off."""
    monkeypatch.setenv("CHARTFERRY_SETTLING_SECONDS", "0")
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"), ("k3", "p2", "3.00"))
    with running_pair(way) as pair:
        monkeypatch.setenv("CHARTFERRY_LEDGER", pair.create())
        left = failing(step, pair.fail_over)
        is_told(*chartferry("import"))
        assert not left
        asked("import")
        assert amounts(target) == [1.0, 2.0, 3.0]
        assert asked("verify")["differences"] == []


@pytest.mark.alike
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "lacks", ["rows", *(pytest.param(e, marks=pytest.mark.long) for e in ("the run", "the last row"))]
)
def test_a_standby_that_lacks_the_last_commits_sends_nothing_twice(
    home, target, chartferry, asked, monkeypatch, lacks, way, additions
):
    """SCALE-03, LEDGER-20: a bare target gets nothing before somebody has looked."""
    monkeypatch.setenv("CHARTFERRY_SETTLING_SECONDS", "0")
    with running_pair(way, synchronous=False) as pair:
        monkeypatch.setenv("CHARTFERRY_LEDGER", pair.create())
        payments(home, ("k0", "p2", "0.50"), name="payments-0.csv")
        asked("import")
        pair.catch_up()
        payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"), ("k3", "p1", "3.00"))
        happens = {3.0: pair.fail_over, {"rows": 1.0, "the last row": 2.0}.get(lacks): pair.hold_back}
        if lacks == "the run":
            happens.pop(None)()
        target.refuse = lambda body: happens.pop(body["amount"]["value"], lambda: None)()
        is_told(*chartferry("import"))
        assert not happens
        before = amounts(target)
        code, out, err = chartferry("import")
        assert (LOST in out + err) == (not additions)
        if not additions:
            assert (code, amounts(target)) == (4, before)
            asked("verify", "--adopt")
            asked("doubts", "resolve")
            asked("import")
        assert amounts(target) == [0.5, 1.0, 2.0, 3.0]
        payments(home, ("k0", "p2", "0.50"), ("k1", "p1", "1.00"), ("k2", "p1", "2.00"), ("k3", "p1", "3.00"))
        again = asked("import")["totals"]
        assert (again["created"], again["adopted"], again["unchanged"]) == (0, 0, 4)
        assert asked("verify")["differences"] == []


def test_a_process_writes_to_no_other_server_than_its_own(home, target, chartferry, asked, monkeypatch):
    """SCALE-03, LEDGER-01: also where something that goes on met the failure first, as a sign of life does."""
    payments(home, ("k1", "p1", "1.00"))
    with running_pair() as pair:
        url = pair.create()
        monkeypatch.setenv("CHARTFERRY_LEDGER", url)
        with closing(Ledger.open(url)) as ledger:
            ledger.note_target("urn:t", "http://t")
            asks = "SELECT current_setting('tcp_keepalives_idle'), current_setting('tcp_user_timeout')"
            assert ledger.rows(asks, ()) == [("15", "90000")]  # the server asks after clients, too
            pair.kill()
            pair.move()
            code, out, err = chartferry("import")
            assert (code, out, STANDBY in err) == (6, "", True)
            pair.promote()
            with pytest.raises(SQLAlchemyError):
                ledger.note_target("urn:u", "http://u")
            for _ in range(2):
                with pytest.raises(LedgerError, match="was failed over or restored while this command ran"):
                    ledger.note_target("urn:u", "http://u")
        asked("import")
        assert amounts(target) == [1.0]

"""A ledger's PostgreSQL without connections or locks, or that crashes: one sentence, and nothing is lost or double."""

from contextlib import ExitStack, closing

import pytest
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from pipelines.ledger.database import NO_ANSWER, database_message
from pipelines.ledger.ledger import Ledger
from tests.support.exports import payments
from tests.support.postgres import name_in, running_server

NO_CONNECTION = "its server takes no more connections (max_connections)"
NO_WRITES = "its server takes no writes just now: start the same command again once it does"
NO_LOCKS = "its server has no memory or locks left (max_locks_per_transaction)"


def amounts(target) -> list[float]:
    return sorted(body["amount"]["value"] for body in target.of("PaymentNotice"))


def test_a_server_without_free_connections_is_named_as_the_cause(
    home, target, chartferry, asked, postgres, monkeypatch
):
    """SCALE-03, LEDGER-01: at its first connection, and at any later one."""
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"))
    with postgres.database() as whole, postgres.limited(whole, "few") as (url, limit):
        monkeypatch.setenv("CHARTFERRY_LEDGER", url)
        for most in range(3):
            limit(most)
            code, out, err = chartferry("import")
            if code == 0:
                break
            assert code == 6
            assert NO_CONNECTION in out + err
            assert "Traceback" not in err
        assert most
        limit(-1)
        asked("import")
        assert amounts(target) == [1.0, 2.0]
        assert asked("verify")["differences"] == []


@pytest.mark.parametrize(
    ("refused", "by"), [("tests@", "nobody@"), (r"/t", "/nothing")], ids=["the user", "the database"]
)
def test_a_server_that_refuses_access_is_named_as_the_cause(
    home, target, chartferry, postgres, monkeypatch, refused, by
):
    """SCALE-03"""
    payments(home, ("k1", "p1", "1.00"))
    monkeypatch.setenv("CHARTFERRY_LEDGER", postgres.create().replace(refused, by, 1))
    code, _, err = chartferry("import")
    assert (code, "its server refuses this user, password or database: see CHARTFERRY_LEDGER" in err) == (6, True)
    assert (home / "inbox" / "payments.csv").exists()


@pytest.mark.long
def test_a_server_without_free_locks_is_named_as_the_cause(home, target, chartferry, asked, monkeypatch):
    """SCALE-03, LEDGER-01: also in the middle of a load."""
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"))
    with running_server() as server, server.database() as url:
        monkeypatch.setenv("CHARTFERRY_LEDGER", url)
        with server.without_locks():
            code, out, err = chartferry("import")
            assert (code, NO_LOCKS in out + err, "Traceback" in err) == (6, True, False)
        intend = Ledger.intend
        with monkeypatch.context() as patched, ExitStack() as stack:

            def and_then_there_are_none(*arguments):
                intend(*arguments)
                stack.enter_context(server.without_locks())

            patched.setattr(Ledger, "intend", and_then_there_are_none)
            code, _, err = chartferry("import")
            assert code in (0, 6)  # connections that are there may do without
            assert "Traceback" not in err
        asked("import")
        assert amounts(target) == [1.0, 2.0]
        assert asked("verify")["differences"] == []


def test_a_server_that_takes_no_writes_is_named_as_the_cause(
    home, target, chartferry, asked, postgres, ledger_on_server, monkeypatch
):
    """SCALE-03, LEDGER-01: as managed ones do where their disk is nearly full; only the class of the error was told."""
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"))
    with postgres.database(like=ledger_on_server) as url:
        monkeypatch.setenv("CHARTFERRY_LEDGER", url)
        postgres.execute(f"ALTER DATABASE {name_in(url)} SET default_transaction_read_only = on")
        code, out, err = chartferry("import")
        assert (code, out, NO_WRITES in err) == (6, "", True)
        assert (home / "inbox" / "payments.csv").exists()
        postgres.execute(f"ALTER DATABASE {name_in(url)} RESET default_transaction_read_only")
        asked("import")
        assert amounts(target) == [1.0, 2.0]


def test_a_failed_write_of_many_rows_logs_nothing_beside_its_error(postgres, ledger_on_server, caplog):
    """SCALE-03: the driver logged a line of its own, with the address of the server."""
    statement, rows = "INSERT INTO feed_version (feed_hash) VALUES (?)", [("a",), *[(None,)] * 3_000]
    with (
        postgres.database(like=ledger_on_server) as url,
        closing(Ledger.open(url)) as ledger,
        pytest.raises(SQLAlchemyError),
        ledger.transaction(),
    ):
        ledger.write(statement, rows)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("OperationalError None", NO_ANSWER),
        ("AdminShutdown 57P01", NO_ANSWER),
        ("ConnectionFailure 08006", NO_ANSWER),
        ("DeadlockDetected 40P01", "the error 40P01"),
        ("DiskFull 53100", "its server's disk is full"),
    ],
)
def test_the_message_says_that_a_server_does_not_answer_only_if_it_does_not(said: str, told: str):
    """SCALE-03: the SQLSTATE in the error decides."""
    assert told in database_message(OperationalError("", None, Exception(said)))


@pytest.mark.crossed
@pytest.mark.parametrize("step", ["settle", pytest.param("intend", marks=pytest.mark.long)])
def test_a_server_that_crashes_during_a_load_is_named_as_the_cause(
    home, target, chartferry, asked, monkeypatch, step, additions
):
    """SCALE-03, LEDGER-01: behind what it has committed, and before what is to be committed next."""
    monkeypatch.setenv("CHARTFERRY_SETTLING_SECONDS", "0")
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"))
    with running_server() as server, server.database() as url:
        monkeypatch.setenv("CHARTFERRY_LEDGER", url)
        done, crashes = getattr(Ledger, step), [server.restart]

        def and_then_it_crashes(*arguments, **options):
            result = done(*arguments, **options)
            for crash in crashes:
                crashes.remove(crash)
                crash()
            return result

        with monkeypatch.context() as patched:
            patched.setattr(Ledger, step, and_then_it_crashes)
            code, out, err = chartferry("import")
        assert not crashes
        assert "Traceback" not in err
        if code not in (0, 5):
            assert code == 6
            assert NO_ANSWER in out + err
        asked("import")
        assert amounts(target) == [1.0, 2.0]
        assert asked("verify")["differences"] == []

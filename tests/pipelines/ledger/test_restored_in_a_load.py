"""A ledger's database that is put back, under the same name and server, to what it was earlier in a load."""

import pytest

from pipelines.ledger.database import FAILED_OVER, NO_ANSWER
from tests.support.exports import payments
from tests.support.postgres import name_in

LOST = "was loaded before, and the ledger does not know that: chartferry verify --adopt"


@pytest.fixture(autouse=True)
def short_silence(monkeypatch):
    """The process of a command that was cut off is this one, which lives on."""
    monkeypatch.setattr("pipelines.ledger.lease.SILENCE_SECONDS", 0.5)


@pytest.fixture
def put_back(postgres, monkeypatch):
    """Two calls: back the ledger up, and put that in its place, as a dump or a copy of a volume would."""
    ledger, backup = postgres.create(), postgres.create()
    monkeypatch.setenv("CHARTFERRY_LEDGER", ledger)
    one, other = name_in(ledger), name_in(backup)

    def back_up():
        postgres.copy_to(postgres, ledger, backup)

    def restore():
        for name in (one, other):
            postgres.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        postgres.execute(f"DROP DATABASE {one} WITH (FORCE)")
        postgres.execute(f"ALTER DATABASE {other} RENAME TO {one}")
        postgres.execute(f"ALTER DATABASE {one} ALLOW_CONNECTIONS true")

    yield back_up, restore
    postgres.execute(f"DROP DATABASE {one} WITH (FORCE)")


def test_a_ledger_that_is_put_back_in_a_load_sends_nothing_twice(
    home, target, chartferry, asked, monkeypatch, put_back, additions
):
    """SCALE-03, LEDGER-20: its server is the same, and so is the name of its history. A bare target gets nothing before
    somebody has looked.
    """
    monkeypatch.setenv("CHARTFERRY_SETTLING_SECONDS", "0")
    monkeypatch.setenv("CHARTFERRY_AT_ONCE", "1")
    back_up, restore = put_back
    rows = [(f"k{n}", "p1", f"{n}.00") for n in range(1, 6)]
    payments(home, *rows)
    happens = {1.0: back_up, 5.0: restore}
    target.refuse = lambda body: happens.pop(body["amount"]["value"], lambda: None)()
    code, out, err = chartferry("import")
    assert not happens
    assert (code, "Traceback" in err) == (6, False), out + err
    assert any(said in out + err for said in (NO_ANSWER, FAILED_OVER)), out + err
    code, out, err = chartferry("import")
    assert (LOST in out + err) == (not additions)
    if not additions:
        assert LOST in "".join(chartferry("import")[1:])
        asked("verify", "--adopt")
        asked("doubts", "resolve")
        asked("import")
    amounts = [body["amount"]["value"] for body in target.of("PaymentNotice")]
    assert sorted(amounts) == [1.0, 2.0, 3.0, 4.0, 5.0]
    payments(home, *rows, ("k6", "p2", "6.00"))
    assert asked("import")["totals"]["unchanged"] == 5
    assert asked("verify")["differences"] == []

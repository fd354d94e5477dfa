"""The lease of a target: who waits for whom, who takes over, and what a loader that lost it may still do."""

import os
import platform
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipelines.ledger import tables as t
from pipelines.ledger.lease import Holder, LeaseLost, is_dead, this_machine, utc_text
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import Outcome
from tests.pipelines.conftest import Clock
from tests.support.ledgers import OF, TARGET, intent, start, states


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    """A ledger that has begun two batches."""
    start(ledger, "payments-a", "payments-b")
    return ledger


def test_a_process_that_this_user_may_not_ask_for_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """LEDGER-10: another user's loader may be at work."""

    def refused(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    assert not is_dead(Holder("them", platform.node(), this_machine(), 1, "", ""))


def hold(ledger: Ledger, clock: Clock, pid: int = 1, machine: str = "elsewhere") -> None:
    now = utc_text(clock())
    row = {"target": TARGET, "owner": "them", "host": "their-host", "machine": machine, "pid": pid}
    with ledger.engine.begin() as connection:
        connection.execute(t.lease.insert().values(**row, taken_at=now, heartbeat_at=now))


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock of this process, which the test moves."""
    seconds = [0.0]
    monkeypatch.setattr(
        "pipelines.ledger.lease.time", SimpleNamespace(monotonic=lambda: seconds[0], sleep=lambda _: None)
    )
    return seconds


def test_a_second_loader_waits_says_for_whom_and_takes_over_after_60_seconds_of_silence(
    ledger: Ledger, clock: Clock, watch: list[float]
) -> None:
    """LEDGER-10: every row that is still `sending` is then in doubt, and its batch is unfinished again."""
    ledger.start_batch("other", "payments-a")
    with ledger.lease(TARGET) as lease, ledger.lease("other") as elsewhere:
        ledger.intend(lease, *OF, [intent("k1"), intent("k2", 3)])
        ledger.intend(elsewhere, *OF, [intent("k1")])
        ledger.settle(TARGET, *OF, [Outcome("k2", 1, "created", "id-2", 201)])
    for name in ("payments-a", "payments-b"):
        ledger.finish_batch(TARGET, name, "finished")
    hold(ledger, clock)
    waited: list[str] = []

    def waiting(holder: object) -> None:
        waited.append(holder.host)  # type: ignore[attr-defined]
        watch[0] += 4

    with ledger.lease(TARGET, waiting):
        assert waited == ["their-host"] * 17
        assert states(ledger, "k1", "k2") == ["in_doubt", "created"]
        assert [row["state"] for row in ledger.batches(TARGET)] == ["running", "finished"]
        assert ledger.known("other", *OF, ["k1"])["k1"].state == "sending"
    assert ledger.tables()["lease"].num_rows == 0


def test_a_dead_process_of_this_machine_is_not_waited_for(ledger: Ledger, clock: Clock) -> None:
    """LEDGER-10: a killed importer's next start does not lose a minute."""
    if not this_machine():
        pytest.skip("only where the system names its boot and its process numbers")
    dead = os.fork()
    if dead == 0:
        os._exit(0)
    os.waitpid(dead, 0)
    hold(ledger, clock, dead, this_machine())
    with ledger.lease(TARGET, lambda _: pytest.fail("waited")):
        pass


@pytest.mark.parametrize("hours", [-2, 0, 2], ids=["behind", "alike", "ahead"])
def test_a_silent_lease_is_taken_over_by_elapsed_time_whatever_the_clocks_say(
    ledger: Ledger, clock: Clock, watch: list[float], hours: int
) -> None:
    """LEDGER-10: each heartbeat restarts the watch. Of the time that a machine was suspended, 5 s count."""
    clock.pass_seconds(3600 * hours)
    hold(ledger, clock)
    clock.pass_seconds(-3600 * hours)
    waited = 0

    def waiting(_: object) -> None:
        nonlocal waited
        waited += 1
        watch[0] += 3600 if waited == 2 else 5
        if waited == 10:
            with ledger.engine.begin() as connection:
                connection.execute(
                    t.lease.update().values(heartbeat_at=utc_text(clock() + timedelta(minutes=hours + 1)))
                )

    with ledger.lease(TARGET, waiting):
        assert waited == 10 + 14


@pytest.mark.parametrize("machine", ["another boot/pid:[1]", "another boot/pid:[2]"])
def test_a_process_of_before_this_machine_started_is_dead_where_the_ledger_is_a_file(
    tmp_path: Path, clock: Clock, watch: list[float], machine: str
) -> None:
    """LEDGER-10: a host of another name uses the file only by mistake; its process is watched for silence."""
    with closing(Ledger.open(tmp_path / "ledger.db", clock)) as ledger:
        for host, waits in ((platform.node(), False), ("another", True)):
            hold(ledger, clock, machine=machine)
            with ledger.engine.begin() as connection:
                connection.execute(t.lease.update().values(host=host))
            waited: list[object] = []

            def waiting(holder: object, waited: list[object] = waited) -> None:
                waited.append(holder)
                watch[0] += 5

            with ledger.lease(TARGET, waiting):
                assert bool(waited) is waits


@pytest.mark.alike
@pytest.mark.parametrize("minutes", [-5, 5], ids=["behind", "ahead"])
def test_processes_whose_clocks_are_minutes_apart_keep_their_leases(
    ledger: Ledger, address: str | Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    """LEDGER-10: a live process keeps its lease. A hanging one loses it after the silence, and sends nothing more."""
    monkeypatch.setattr("pipelines.ledger.lease.SILENCE_SECONDS", 1.0)
    other = Ledger.open(address, lambda: clock() + timedelta(minutes=minutes))
    taken, moments = threading.Event(), iter(range(1_000_000))
    ledger.clock = lambda: clock() + timedelta(microseconds=next(moments))

    def take() -> None:
        with other.lease(TARGET, poll_seconds=0.02):
            taken.set()
            over.wait(20)

    over, taking = threading.Event(), threading.Thread(target=take)
    with closing(other), ledger.lease(TARGET, beat_seconds=0.05) as lease:
        with ledger.engine.begin() as connection:
            connection.execute(
                t.lease.update().values(host="another", machine="another")
            )  # processes of another host cannot be checked
        taking.start()
        assert not taken.wait(2.5)
        ledger.intend(lease, *OF, [intent("k1")])
        lease._end()
        assert taken.wait(20)
        with pytest.raises(LeaseLost):
            ledger.intend(lease, *OF, [intent("k2", 3)])
        assert states(ledger, "k1") == ["in_doubt"]
        over.set()
        taking.join()


def test_a_loader_whose_lease_was_taken_over_can_intend_no_more_rows(
    ledger: Ledger, address: str | Path, clock: Clock
) -> None:
    """LEDGER-10: the transaction of the intent checks the lease, before any heartbeat notices the loss."""
    with ledger.lease(TARGET) as lease, closing(Ledger.open(address, clock)) as other:
        taking = other.lease(TARGET)
        taking._take(taking._take(()))
        with pytest.raises(LeaseLost):
            ledger.intend(lease, *OF, [intent("k1")])
        assert other.known(TARGET, *OF, ["k1"]) == {}


def test_the_heartbeat_keeps_the_lease_and_notices_its_loss(ledger: Ledger, clock: Clock) -> None:
    """LEDGER-10"""
    beat = threading.Event()
    with ledger.lease(TARGET, beat_seconds=0.01) as lease:
        clock.pass_seconds(50)
        for _ in range(500):
            if ledger.tables()["lease"].to_pylist()[0]["heartbeat_at"] == utc_text(clock()):
                break
            beat.wait(0.01)
        else:
            pytest.fail("no heartbeat")
        with ledger.engine.begin() as connection:
            connection.execute(t.lease.update().values(owner="them"))
        lease._thread.join(5)
        with ledger.engine.begin() as connection:
            connection.execute(t.lease.update().values(owner=lease.owner))
            with pytest.raises(LeaseLost):  # by the heartbeat alone, since the ledger names this owner again
                lease.confirm(connection)

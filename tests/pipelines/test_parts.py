"""Parts of a batch: every lane in one of them, each held by one worker, taken up by another when that one is gone."""

import sys
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update

from pipelines.client.pace import Pace
from pipelines.home.progress import Progress
from pipelines.ledger import tables as t
from pipelines.ledger.lease import SILENCE, LeaseLost
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.parts import BEGINNINGS, claim, lay_out, remove_parts, states
from pipelines.loading.loaded import Loaded
from pipelines.loading.part_outcome import PartLoaded, in_all
from pipelines.loading.parts import Part
from pipelines.runs import parts as in_parts
from tests.support.commands import OUTCOMES
from tests.support.dying_worker import STEPS
from tests.support.work import TARGET

HEADER = "payment_id,patient_id,amount,paid_on"
PATIENTS = 40
ROWS = 400


@pytest.mark.parametrize("number", [1, 2, 7])
@settings(deadline=None)
@given(lanes=st.lists(st.text(max_size=5)))
def test_every_row_is_in_one_part_with_its_lane(number: int, lanes: list[str]) -> None:
    """SCALE-02, QR-CREATE-16"""
    rows = pa.record_batch({"lane": pa.array(lanes, pa.string()), "line": pa.array(range(len(lanes)), pa.int64())})
    dealt = [Part(each, number).only(rows).to_pylist() for each in range(number)]
    assert sorted(row["line"] for some in dealt for row in some) == list(range(len(lanes)))
    assert all([row["line"] for row in some] == sorted(row["line"] for row in some) for some in dealt)
    of_lane = defaultdict(set)
    for part, some in enumerate(dealt):
        for row in some:
            of_lane[row["lane"]].add(part)
    assert all(len(found) == 1 for found in of_lane.values())


def test_what_a_worker_tells_is_taken_up_whole() -> None:
    """SCALE-02"""
    loaded = Loaded(Counter(created=2, refused=1), Counter(created=300), Counter({"PAY-01": 1}), 1, 2, 3, {"b-1"}, "no")
    whole = PartLoaded(loaded, ["r1"], ["r2"], ["k1"], ["said"], lowered=True)
    told = PartLoaded.from_text(whole.as_text())
    assert told == whole
    both = in_all([told.loaded, Loaded(Counter(created=1), Counter(created=-50))])
    assert (both.counts, both.cents["created"], both.unusable) == (Counter(created=3, refused=1), 250, "no")


def test_a_small_file_or_a_target_for_one_request_needs_no_workers() -> None:
    """SCALE-02"""
    several = Pace(workers=4)
    rows = in_parts.ROWS_A_WORKER
    assert [in_parts.workers_for(several, rows * n) for n in (0, 1, 2, 3, 9)] == [1, 1, 2, 3, 4]
    assert in_parts.workers_for(replace(several, at_once=1), rows * 9) == 1
    assert in_parts.workers_for(Pace(), rows * 9) == 1


def test_workers_share_the_pace_of_the_target() -> None:
    """SCALE-02"""
    assert in_parts.share(Pace(at_once=8, per_second=10.0, workers=4), 4) == Pace(2, per_second=2.5, workers=4)
    assert in_parts.share(Pace(at_once=8), 3) == Pace(at_once=2)


# -- leases of parts, on each database


@pytest.fixture
def lease(ledger):
    with ledger.lease(TARGET) as held:
        lay_out(ledger, held, 2)
        yield held


def claimed(ledger, lease, clock):
    return claim(ledger, TARGET, lease.owner, clock)


def test_two_workers_never_have_one_part(ledger, lease, clock) -> None:
    """SCALE-02, LEDGER-10"""
    first, second = claimed(ledger, lease, clock), claimed(ledger, lease, clock)
    assert {first.number, second.number} == {0, 1}
    assert claimed(ledger, lease, clock) is None
    with first:
        ledger.confirm(first)
        first.done("{}")
    with second:
        pass  # without an outcome: it is free again
    again = claimed(ledger, lease, clock)
    assert (again.number, again.attempts) == (second.number, 2)
    with pytest.raises(LeaseLost):
        ledger.confirm(second)
    remove_parts(ledger, lease)
    assert states(ledger, TARGET) == []


def test_a_part_that_another_claims_just_now_is_passed_over(ledger, lease, clock, address) -> None:
    """SCALE-02: PostgreSQL skips locked rows; SQLite has one writer at a time."""
    if isinstance(address, str):
        with ledger.engine.begin() as connection:
            locked = connection.execute(select(t.part).where(t.part.c.part == 0).with_for_update()).one()
            assert claimed(ledger, lease, clock).number == 1 != locked.part
    assert claimed(ledger, lease, clock).number == 0


def test_a_silent_worker_loses_its_part_and_a_part_is_not_begun_for_ever(ledger, lease, clock) -> None:
    """SCALE-02, LEDGER-10"""
    with ledger.transaction() as connection:
        connection.execute(t.part.delete().where(t.part.c.part == 1))
    for attempt in range(1, BEGINNINGS + 1):
        held = claimed(ledger, lease, clock)
        assert held.attempts == attempt
        assert claimed(ledger, lease, clock) is None
        with ledger.transaction() as connection:
            connection.execute(update(t.part).values(machine="another"))  # whose processes cannot be looked at
        clock.now += SILENCE * 2
    assert claimed(ledger, lease, clock) is None
    [left] = states(ledger, TARGET, clock)
    assert not left.is_left


def test_who_takes_the_target_over_waits_for_its_workers(ledger, lease, clock) -> None:
    """SCALE-02, LEDGER-10: they may be sending yet; after it they have no part, and can claim none."""
    part = claimed(ledger, lease, clock)
    with ledger.transaction() as connection:
        connection.execute(update(t.lease).values(machine="another", heartbeat_at="2026-01-01"))
        connection.execute(update(t.part).where(t.part.c.owner != "").values(machine="another"))
    taken = ledger.lease(TARGET)
    assert [holder.owner for holder in taken._take(())] == [part.owner]
    clock.now += SILENCE * 2
    assert taken._take(()) == []
    with pytest.raises(LeaseLost):
        ledger.confirm(part)
    with pytest.raises(LeaseLost):
        claimed(ledger, lease, clock)
    assert states(ledger, TARGET) == []


class Nobody(in_parts.Workers):
    """Workers that are never started."""

    def __init__(self) -> None:
        self.at_work = []

    def keep(self, wanted: int) -> None:
        assert wanted == 2


def test_a_target_that_was_taken_over_ends_the_load_and_one_without_workers_does_not_wait(ledger, lease):
    """LEDGER-10, SCALE-02"""
    session: Any = SimpleNamespace(ledger=ledger, target=TARGET, progress=Progress())
    book: Any = SimpleNamespace(batch=SimpleNamespace(run=None), loaded=Loaded())
    watch = in_parts.Watch(session, book, lease)
    assert [part.is_left for part in watch.until_done(Nobody())] == [True, True]
    with ledger.transaction() as connection:
        connection.execute(update(t.lease).values(owner="another"))
    with pytest.raises(LeaseLost):
        watch.until_done(Nobody())


# -- whole imports


@pytest.fixture
def small(monkeypatch):
    """Lets few rows be worth a worker."""
    monkeypatch.setattr(in_parts, "ROWS_A_WORKER", 20)
    monkeypatch.setattr(in_parts, "LOOK_SECONDS", 0.02)


def export(home, first=0, rows=ROWS):
    """Payments of some patients, in the order of their days."""
    lines = [f"k{n},p{n % PATIENTS},{1 + n % 7}.00,2026-02-{1 + n // 40:02}" for n in range(first, first + rows)]
    (home / "inbox" / f"payments-{first}.csv").write_text("\n".join([HEADER, *lines, ""]))
    return sum(100 * (1 + n % 7) for n in range(first, first + rows))


def agrees(home, target, asked, cents, rows=ROWS):
    """Source, ledger and target are equal to the row and the cent, and every lane came in its order."""
    made = list(target.stored.values())
    assert len(made) == rows
    assert sum(round(body["amount"]["value"] * 100) for body in made) == cents
    came = defaultdict(list)
    for body in made:
        came[body["request"]["reference"]].append(number_of(target, body))
    assert all(numbers == sorted(numbers) for numbers in came.values())
    assert len(came) == PATIENTS
    found = asked("verify")
    assert (found["differences"], found["ledger_cents"], found["target_cents"]) == ([], cents, cents)


def number_of(target, body):
    """The source's number of a payment, by its identifier."""
    [value] = [each["value"] for each in body["identifier"]]
    return int(value.removeprefix("k").partition("~")[0].partition(":")[0])


def test_workers_load_what_one_process_would(home, target, asked, small) -> None:
    """SCALE-02, LEDGER-12: and a second import of the same rows makes nothing."""
    cents = export(home)
    done = asked("import", "--workers", 2)["batches"][0]
    assert (done["state"], done["counts"]["created"], done["counts"]["amount_created"]) == ("finished", ROWS, cents)
    agrees(home, target, asked, cents)
    (home / "inbox" / "payments-again.csv").write_text(
        (next((home / "batches").glob("payments-*/source/*"))).read_text() + "\n"
    )
    again = asked("import", "--workers", 2)["batches"][0]
    assert (again["counts"]["unchanged"], again["counts"]["created"]) == (ROWS, 0)
    assert len(target.stored) == ROWS


@pytest.mark.parametrize(
    "step", ["sent", *(pytest.param(step, marks=pytest.mark.long) for step in STEPS if step != "sent")]
)
@pytest.mark.parametrize("bare", [False, pytest.param(True, marks=pytest.mark.long)], ids=["with additions", "bare"])
def test_a_worker_killed_at_each_step_loses_and_doubles_nothing(
    home, target, asked, small, monkeypatch, tmp_path, step, bare
) -> None:
    """SCALE-02, LEDGER-01"""
    target.additions = not bare
    mark = tmp_path / "died"
    program = (sys.executable, "-m", "tests.support.dying_worker", step, str(mark))
    monkeypatch.setattr(in_parts, "PROGRAM", program)
    monkeypatch.setenv("CHARTFERRY_SETTLING_SECONDS", "0")
    cents = export(home)
    done = asked("import", "--workers", 2)["batches"][0]
    assert mark.exists()
    counts = done["counts"]
    assert counts["accepted"] == sum(counts[name] for name in OUTCOMES) + done["waiting"]
    if not bare:
        assert (done["state"], counts["created"] + counts["adopted"]) == ("finished", ROWS)
        agrees(home, target, asked, cents)


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_workers_over_one_ledger_on_a_server_agree_too(
    home, target, asked, small, monkeypatch, tmp_path, postgres, step
) -> None:
    """SCALE-02, LEDGER-20: what they wrote side by side is made again from the journal's copies, row for row."""
    program = (sys.executable, "-m", "tests.support.dying_worker", step, str(tmp_path / "died"))
    monkeypatch.setattr(in_parts, "PROGRAM", program)
    cents = export(home)
    with postgres.database() as url, postgres.database() as empty:
        monkeypatch.setenv("CHARTFERRY_LEDGER", url)
        done = asked("import", "--workers", 3)["batches"][0]
        assert (tmp_path / "died").exists()
        assert (done["state"], done["counts"]["created"] + done["counts"]["adopted"]) == ("finished", ROWS)
        agrees(home, target, asked, cents)
        with (
            closing(Ledger.open(url)) as ledger,
            closing(Ledger.open(empty, copies=home / "batches" / "journal")) as again,
        ):
            assert shown(again) == shown(ledger)


def shown(ledger):
    """The rows of every table that readers see. A server gives no number twice, also where it was rolled back."""
    tables = ledger.tables().items()
    return {name: Counter(map(str, table.to_pylist())) for name, table in tables if name != "lease"}

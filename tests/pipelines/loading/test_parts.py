"""Parts of a batch: each lane is in one part, and one worker has each part, until another takes it over."""

import itertools
import os
import platform
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update

from pipelines.client.pace import Pace
from pipelines.home.progress import Progress
from pipelines.importing.parts_under_way import parts_lines, parts_under_way
from pipelines.ledger import tables as t
from pipelines.ledger.lease import Holder, LeaseLost, utc_text
from pipelines.ledger.parts import BEGINNINGS, LoaderWatch, PartState, claim, free, lay_out, states
from pipelines.ledger.rows import Intent, Outcome
from pipelines.loading.accepted import LoadPart
from pipelines.loading.load_counts import LoadCounts
from pipelines.loading.part_outcome import PartLoaded, ends_all, in_all
from pipelines.loading.part_stage import doubt_left_sending
from pipelines.runs import part_plan, watching, workers
from pipelines.runs import parts as in_parts
from tests.support.work import TARGET


@pytest.mark.parametrize("number", [1, 2, 7])
@given(lanes=st.lists(st.text(max_size=5)))
def test_every_row_is_in_one_part_with_its_lane(number: int, lanes: list[str]) -> None:
    """SCALE-02, QR-CREATE-16"""
    rows = pa.record_batch({"lane": pa.array(lanes, pa.string()), "line": pa.array(range(len(lanes)), pa.int64())})
    dealt = [LoadPart(each, number).only(rows).to_pylist() for each in range(number)]
    assert sorted(row["line"] for some in dealt for row in some) == list(range(len(lanes)))
    assert all([row["line"] for row in some] == sorted(row["line"] for row in some) for some in dealt)
    of_lane = defaultdict(set)
    for part, some in enumerate(dealt):
        for row in some:
            of_lane[row["lane"]].add(part)
    assert all(len(found) == 1 for found in of_lane.values())


def test_the_outcome_of_a_part_is_read_as_the_worker_wrote_it() -> None:
    """SCALE-02"""
    loaded = LoadCounts(
        *(Counter(created=2, refused=1), Counter(created=300), Counter({"PAY-01": 1}), Counter({"read otherwise": 3})),
        *({"b-1"}, "no", True),
    )
    whole = PartLoaded(loaded, ["k1"], ["said"], lowered=True)
    told = PartLoaded.from_text(whole.as_text())
    assert told == whole
    both = in_all([told.loaded, LoadCounts(Counter(created=1), Counter(created=-50))])
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
    assert part_plan.share(Pace(at_once=8, per_second=10.0, workers=4), 4) == Pace(2, per_second=2.5, workers=4)
    assert part_plan.share(Pace(at_once=8), 3) == Pace(at_once=2)


# -- leases of parts, on each database


@pytest.fixture
def lease(ledger):
    with ledger.lease(TARGET) as held:
        lay_out(ledger, held, 2)
        yield held


def claimed(ledger, lease):
    return claim(ledger, TARGET, lease.owner)


def test_two_workers_never_have_one_part(ledger, lease) -> None:
    """SCALE-02, LEDGER-10"""
    first, second = claimed(ledger, lease), claimed(ledger, lease)
    assert {first.number, second.number} == {0, 1}
    assert claimed(ledger, lease) is None
    with first:
        ledger.confirm(first)
        first.done("{}")
    with second:
        pass  # the part has no outcome, so that it is free again
    again = claimed(ledger, lease)
    assert (again.number, again.attempts) == (second.number, 2)
    with pytest.raises(LeaseLost):
        ledger.confirm(second)
    lay_out(ledger, lease, 0)
    assert states(ledger, TARGET) == []


def test_a_part_that_another_claims_just_now_is_passed_over(ledger, lease, address) -> None:
    """SCALE-02: PostgreSQL skips locked rows; SQLite has one writer at a time."""
    if isinstance(address, str):
        with ledger.engine.begin() as connection:
            locked = connection.execute(select(t.part).where(t.part.c.part == 0).with_for_update()).one()
            assert claimed(ledger, lease).number == 1 != locked.part
    assert claimed(ledger, lease).number == 0


def test_an_answer_that_a_slow_worker_writes_late_is_not_put_in_doubt(ledger, lease, tmp_path, monkeypatch):
    """SCALE-02, LEDGER-04: it has lost its part, and still writes its outcomes while its rows are put in doubt."""
    of = (TARGET, "default", "PaymentNotice")
    ledger.start_batch(TARGET, "payments-1", feed="payments", source=of[1], resource_type=of[2])
    part, sending = claimed(ledger, lease), ledger.sending
    intents = [Intent(key, 1, "payments-1", line, "h", "f", "p1", None, 100) for line, key in enumerate(["a", "b"], 2)]
    ledger.intend(part, *of[1:], intents)
    pq.write_table(pa.table({"key": ["a", "b", "c"], "lane": ["p1", "p1", "p2"]}), tmp_path / "accepted.parquet")

    def sending_before_an_answer(*about):
        found = sending(*about)
        ledger.settle(*of, [Outcome("a", 1, "created", "id-a", 201)])
        return found

    monkeypatch.setattr(ledger, "sending", sending_before_an_answer)
    load: Any = SimpleNamespace(ledger=ledger, lease=part, of=of, source=of[1], resource=of[2])
    load.batch = SimpleNamespace(folder=tmp_path, part=None)
    doubt_left_sending(load)
    known = ledger.known(*of, ["a", "b"])
    assert [(known[key].state, known[key].resource_id) for key in "ab"] == [("created", "id-a"), ("in_doubt", None)]


def test_no_part_is_begun_once_one_found_that_the_target_cannot_be_used(ledger, lease) -> None:
    """SCALE-02"""
    with claimed(ledger, lease) as first:
        first.done(PartLoaded(LoadCounts(unusable="no")).as_text())
    assert claim(ledger, TARGET, lease.owner, ends_all) is None
    with ledger.transaction() as connection:
        connection.execute(update(t.part).where(t.part.c.part == 0).values(outcome=PartLoaded().as_text()))
    part = claim(ledger, TARGET, lease.owner, ends_all)
    assert part
    assert part.number == 1


def test_a_sign_of_life_goes_out_where_counts_cannot_be_read(ledger, lease) -> None:
    """SCALE-02, LEDGER-10: another thread changes the counts meanwhile."""

    def counting():
        raise RuntimeError("dictionary changed size during iteration")

    part = claimed(ledger, lease)
    part.counting = counting
    assert part._told().keys() == {"heartbeat_at"}
    part.counting = lambda: "{}"
    assert part._told()["counts"] == "{}"


def test_a_silent_worker_loses_its_part_and_a_part_is_not_begun_for_ever(ledger, lease) -> None:
    """SCALE-02, LEDGER-10"""
    with ledger.transaction() as connection:
        connection.execute(t.part.delete().where(t.part.c.part == 1))
    for attempt in range(1, BEGINNINGS + 1):
        held = claimed(ledger, lease)
        assert held.attempts == attempt
        assert claimed(ledger, lease) is None
        holder = states(ledger, TARGET)[0].holder
        assert holder
        free(ledger, TARGET, [holder._replace(heartbeat_at="of before")])
        assert claimed(ledger, lease) is None
        free(ledger, TARGET, [holder])
        with pytest.raises(LeaseLost):
            ledger.confirm(held)
    assert claimed(ledger, lease) is None
    [left] = states(ledger, TARGET)
    assert not left.is_left


def test_a_loader_that_takes_the_target_over_waits_for_its_workers(ledger, lease) -> None:
    """SCALE-02, LEDGER-10: they may still be sending. After the takeover they have no part, and can claim none."""
    part = claimed(ledger, lease)
    with ledger.transaction() as connection:
        connection.execute(update(t.lease).values(machine="another", heartbeat_at="2026-01-01"))
        connection.execute(update(t.part).where(t.part.c.owner != "").values(host="another", machine="another"))
    taken = ledger.lease(TARGET)
    silent = {Holder(*row) for row in ledger.read(select(*(t.lease.c[name] for name in Holder._fields)))}
    at_work = taken._take(silent)
    assert [holder.owner for holder in at_work] == [part.owner]
    assert taken._take({*silent, *at_work}) == []
    with pytest.raises(LeaseLost):
        ledger.confirm(part)
    with pytest.raises(LeaseLost):
        claimed(ledger, lease)
    assert states(ledger, TARGET) == []


def test_a_target_is_taken_over_although_its_holders_fell_silent_one_after_another(ledger, lease, monkeypatch) -> None:
    """SCALE-02, LEDGER-10: the leader of a load sends heartbeats less often than its workers."""
    monkeypatch.setattr("pipelines.ledger.lease.SILENCE_SECONDS", 0.1)
    claimed(ledger, lease)
    with ledger.transaction() as connection:
        connection.execute(update(t.lease).values(host="another", machine="another"))
        connection.execute(update(t.part).where(t.part.c.owner != "").values(host="another", machine="another"))
    looks = 0

    def waiting(_: Holder) -> None:
        nonlocal looks
        looks += 1
        assert looks < 40
        if looks < 3:
            with ledger.transaction() as connection:
                connection.execute(update(t.part).where(t.part.c.owner != "").values(heartbeat_at=f"2026-01-0{looks}"))

    with ledger.lease(TARGET, waiting, poll_seconds=0.03):
        assert states(ledger, TARGET) == []
    assert looks > 3


class Nobody(workers.Workers):
    """Workers that are never started."""

    can_start = False

    def __init__(self) -> None:
        self.at_work = []

    def keep(self, wanted: int) -> None:
        assert wanted == 2


class OneThatDies(workers.Workers):
    """A worker that dies right after the parts were read; the next one loads all. wanted: the asked-for workers."""

    can_start = True

    def __init__(self, ledger, lease) -> None:
        self.at_work = []
        self.wanted: list[int] = []
        self._ledger, self._loader = ledger, lease.owner
        self._held = self._claimed()
        self._claimed().done(PartLoaded().as_text())

    def _claimed(self):
        return claim(self._ledger, TARGET, self._loader)

    def keep(self, wanted: int) -> None:
        self.wanted.append(wanted)
        if not wanted:
            with self._held:
                pass
            return
        self._claimed().done(PartLoaded().as_text())


def watched(ledger, lease) -> Any:
    """The book of a load that is watched."""
    batch = SimpleNamespace(run=None, target=TARGET)
    load = SimpleNamespace(ledger=ledger, lease=lease, progress=Progress(), batch=batch)
    return SimpleNamespace(load=load, loaded=LoadCounts())


def test_a_target_that_was_taken_over_ends_the_load_and_one_without_workers_does_not_wait(ledger, lease):
    """LEDGER-10, SCALE-02"""
    watch = watching.Watch(watched(ledger, lease))
    watch.until_done(Nobody())
    assert [part.is_left for part in states(ledger, TARGET)] == [True, True]
    with ledger.transaction() as connection:
        connection.execute(update(t.lease).values(owner="another"))
    with pytest.raises(LeaseLost):
        watch.until_done(Nobody())


def test_a_worker_that_hangs_loses_its_part_to_whoever_watches(ledger, lease, clock, monkeypatch) -> None:
    """SCALE-02, LEDGER-10: only after a time of silence, and not to another worker that compares clocks."""
    monkeypatch.setattr("pipelines.ledger.lease.SILENCE_SECONDS", 0.5)
    part, looks = claimed(ledger, lease), list[int]()
    worker: Any = SimpleNamespace(at_work=["it"], can_start=False)

    def keep(wanted):
        looks.append(wanted)
        if len(looks) < 4:
            ledger.confirm(part)
        if len(looks) == 6:
            worker.at_work.clear()

    worker.keep = keep
    watching.Watch(watched(ledger, lease)).until_done(worker)
    assert looks == [2] * 6
    with pytest.raises(LeaseLost):
        ledger.confirm(part)


@pytest.mark.parametrize("off", [timedelta(minutes=5), timedelta(minutes=-5), timedelta(hours=2), timedelta(hours=-2)])
def test_a_worker_joins_a_load_by_its_heartbeats_whatever_the_clock_of_the_leader_says(
    ledger, lease, monkeypatch, off: timedelta
) -> None:
    """SCALE-03: otherwise a worker with a fast clock would join no load, and one with a slow clock a dead one."""
    monkeypatch.setattr("pipelines.ledger.lease.SILENCE_SECONDS", 0.1)
    passed = itertools.count(0, 0.04)
    monkeypatch.setattr("pipelines.ledger.lease.time", SimpleNamespace(monotonic=lambda: next(passed)))
    there, watch = datetime.now(UTC) + off, LoaderWatch(ledger, TARGET)

    def look(beats: bool) -> str | None:
        nonlocal there
        there += timedelta(seconds=0.1 * beats)
        with ledger.transaction() as connection:
            told = {"heartbeat_at": utc_text(there), "host": "far", "machine": "far"}
            connection.execute(update(t.lease).values(told))
        return watch.look()

    assert [look(beats=True) for _ in range(5)] == [lease.owner] * 5
    silent = [look(beats=False) for _ in range(8)]
    assert silent[0] == lease.owner
    assert (silent[-1], watch.is_lost) == (None, True)
    assert look(beats=True) == lease.owner
    with ledger.transaction() as connection:
        connection.execute(t.lease.delete())
    assert (watch.look(), watch.is_lost) == (None, False)


def test_a_part_that_another_host_loads_is_waited_for_without_workers_of_ones_own(ledger, lease, monkeypatch) -> None:
    """SCALE-02, SCALE-03"""
    monkeypatch.setattr(watching, "LOOK_SECONDS", 0)
    first, second = (claim(ledger, TARGET, lease.owner) for _ in range(2))
    assert first
    assert second
    looks = list[int]()
    first.done(PartLoaded().as_text())

    def keep(wanted):
        looks.append(wanted)
        if len(looks) == 3:
            second.done(PartLoaded().as_text())

    none: Any = SimpleNamespace(at_work=[], can_start=False, keep=keep)
    watching.Watch(watched(ledger, lease)).until_done(none)
    assert looks == [0] * 3
    assert all(part.outcome for part in states(ledger, TARGET))


def test_a_part_whose_worker_dies_while_the_parts_are_read_is_begun_again(ledger, lease, monkeypatch) -> None:
    """SCALE-02"""
    monkeypatch.setattr(watching, "LOOK_SECONDS", 0)
    worker = OneThatDies(ledger, lease)
    watching.Watch(watched(ledger, lease)).until_done(worker)
    assert worker.wanted[:2] == [0, 1]
    assert all(part.outcome for part in states(ledger, TARGET))


@pytest.mark.parametrize(
    ("attempts", "said"),
    [(1, "1 of 2 parts is not done"), (BEGINNINGS, f"1 of 2 parts was begun {BEGINNINGS} times")],
)
def test_a_load_with_a_part_without_an_outcome_says_so(attempts: int, said: str) -> None:
    """SCALE-02: also if its last counts include all its rows."""
    answers = SimpleNamespace(take_in=lambda *_: None)
    book: Any = SimpleNamespace(loaded=LoadCounts(), refused=set(), closing=SimpleNamespace(answers=answers))
    counts = PartLoaded(LoadCounts(Counter(created=5))).as_text()
    found = [PartState(0, 1, False, None, counts), PartState(1, attempts, False, counts, None)]
    assert not in_parts._take_in(book, found)
    assert (book.loaded.counts["created"], book.loaded.is_cut_short) == (10, True)
    assert said in book.loaded.unusable
    assert "the next import goes on" in book.loaded.unusable
    book.loaded = LoadCounts(unusable="no")
    in_parts._take_in(book, found)
    assert book.loaded.unusable == "no"


# -- status


def test_status_lists_the_parts_of_a_load_with_their_states_and_workers(ledger, lease, clock) -> None:
    """SCALE-02"""
    lay_out(ledger, lease, 5)
    done, loading, stopped, given_up = (claimed(ledger, lease) for _ in range(4))
    done.done(PartLoaded(LoadCounts(Counter(created=90, refused=10))).as_text())
    loading.counting = lambda: PartLoaded(LoadCounts(Counter(created=1_000))).as_text()
    with ledger.engine.begin() as connection:
        connection.execute(update(t.part).where(loading._mine()).values(loading._told()))
        free = update(t.part).values(owner="", attempts=BEGINNINGS)
        connection.execute(free.where(given_up._mine()))
    stopped.done(PartLoaded(LoadCounts(unusable="no")).as_text())
    found = parts_under_way(ledger, TARGET)
    by = {"host": platform.node(), "pid": os.getpid(), "since": utc_text(clock.now)}
    assert found == [
        {"target": TARGET, "part": 1, "state": "done", "rows": 100, "attempts": 1},
        {"target": TARGET, "part": 2, "state": "loading", "rows": 1_000, "attempts": 1, **by},
        {"target": TARGET, "part": 3, "state": "cut short", "rows": 0, "attempts": 1},
        {"target": TARGET, "part": 4, "state": "given up", "rows": 0, "attempts": BEGINNINGS},
        {"target": TARGET, "part": 5, "state": "waiting", "rows": 0, "attempts": 0},
    ]
    lines = list(parts_lines(found))
    said = "several processes are loading into this target: 1 of 5 parts done, 1,100 rows"
    assert lines[0] == said
    assert lines[3].split() == [
        "2",
        "loading",
        "1,000",
        "once",
        *f"{by['pid']} on {by['host']}".split(),
        "since",
        by["since"],
    ]
    assert lines[5].split() == ["4", "given", "up", "0", "3", "times"]


def test_status_lists_no_parts_once_their_loader_is_gone(ledger, lease) -> None:
    """SCALE-02: its parts are remains, which the next load replaces."""
    assert len(parts_under_way(ledger, TARGET)) == 2
    with ledger.transaction() as connection:
        connection.execute(update(t.lease).values(machine="another", heartbeat_at="2026-01-01"))
    assert parts_under_way(ledger, TARGET) == []

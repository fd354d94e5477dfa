"""Counts of a run while it is under way: true at every moment at which it could be killed."""

from contextlib import contextmanager
from functools import partial

import pytest

from pipelines.ledger.columns import COUNTS
from pipelines.ledger.tables import LedgerError
from pipelines.loading.load_counts import BatchRun, LoadCounts
from pipelines.loading.part_outcome import PartLoaded
from tests.support.fake_target import FakeTarget
from tests.support.work import TARGET, payment, work_at

ROWS = 241
VALIDATED = dict.fromkeys(COUNTS, 0) | {
    "header": 1,
    "lines": ROWS + 1,
    "records": ROWS,
    "accepted": ROWS,
    "amount_received": 100 * ROWS,
    "amount_accepted": 100 * ROWS,
}


@pytest.fixture(params=[True, False], ids=["with additions", "bare"])
def work(request, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.support.work.BatchRun", partial(BatchRun, run=1, validated=VALIDATED))
    with work_at(tmp_path, FakeTarget(additions=request.param)) as work:
        yield work


def run_of(work, batch_id):
    (run,) = work.ledger.runs(TARGET, batch_id)
    return run


def test_a_run_killed_at_any_moment_has_counted_exactly_its_settled_rows(work, monkeypatch):
    """The counts of a run are settled in the transaction that settles rows."""
    work.ledger.start_batch(TARGET, "payments-1", feed="payments")
    work.ledger.start_run(TARGET, "payments-1")
    transaction, within, seen = work.ledger.transaction, [], []

    @contextmanager
    def watched():
        within.append(True)
        try:
            with transaction() as connection:
                yield connection
        finally:
            within.pop()
        if within:
            return
        rows, cents = work.ledger.row_counts(TARGET, "payments-1").get("created", (0, 0))
        run = run_of(work, "payments-1")
        assert (run["created"], run["amount_created"], run["state"]) == (rows, cents, "running")
        assert run["in_doubt"] == run["refused"] == 0
        seen.append(rows)

    monkeypatch.setattr(work.ledger, "transaction", watched)
    monkeypatch.setattr("pipelines.client.profiles.ROWS_A_BUNDLE", 10)
    work.run([payment(number, patient=f"p{number % 100}") for number in range(ROWS)])
    assert len(set(seen)) > 2
    assert seen == sorted(seen)
    assert seen[-1] == ROWS


def test_results_are_written_and_counted_once_however_often_that_fails(work, monkeypatch):
    """LEDGER-01: what the target has answered is not in doubt for want of a moment's room, and no sum has it twice."""
    work.ledger.start_batch(TARGET, "payments-1", feed="payments")
    work.ledger.start_run(TARGET, "payments-1")
    settle, failing = work.ledger.settle, [LedgerError("no room")] * 2

    def fails(*results):
        settle(*results)
        if failing:
            raise failing.pop()

    monkeypatch.setattr(work.ledger, "settle", fails)
    with pytest.raises(LedgerError):
        work.run([payment(1)])
    run = run_of(work, "payments-1")
    assert (run["created"], run["amount_created"]) == (1, 100)
    assert work.ledger.row_counts(TARGET, "payments-1") == {"created": (1, 100)}


def test_rows_that_are_known_already_are_counted_as_they_are_met(work):
    rows = [payment(number, patient=f"p{number % 300}") for number in range(50)]
    changed = payment(50, content="other")
    for batch_id in ("payments-1", "payments-2"):
        work.ledger.start_batch(TARGET, batch_id, feed="payments")
        work.ledger.start_run(TARGET, batch_id)
    work.run([*rows, payment(50)])
    work.run([*rows, changed], batch_id="payments-2")
    run = run_of(work, "payments-2")
    assert (run["unchanged"], run["created"]) == (50, 0)
    assert (run["accepted"], run["rejected"]) == (ROWS - 1, 1)


def test_counts_of_a_load_close_with_those_before_it():
    loaded = LoadCounts()
    loaded.add("created", 250)
    loaded.add("rejected", 100)
    counts = loaded.counts_with(VALIDATED)
    assert (counts["accepted"], counts["rejected"], counts["created"]) == (ROWS - 1, 1, 1)
    assert counts["amount_accepted"] == 100 * ROWS - 100
    assert counts["amount_created"] == 250
    assert set(counts) == set(COUNTS)


def test_a_row_counts_once_by_its_last_state_also_where_its_write_was_taken_back():
    loaded = LoadCounts()
    loaded.count("k1", "in_doubt", 250)
    before = loaded.copy()
    loaded.count("k1", "created", 250)
    assert (loaded.counts, loaded.cents["created"]) == ({"created": 1}, 250)
    loaded.put_back(before)
    assert loaded.counts == {"in_doubt": 1}
    loaded.count("k1", "adopted", 250)
    loaded.count("k2", "adopted", 100)
    assert (loaded.counts, loaded.cents) == ({"adopted": 2}, {"adopted": 350})


def test_the_stored_counts_of_a_part_contain_no_keys():
    told = PartLoaded(LoadCounts())
    told.loaded.count("k1", "in_doubt", 250)
    assert "k1" not in told.as_text()
    assert PartLoaded.from_text(told.as_text()).loaded.counts == {"in_doubt": 1}

"""Whole imports by several workers: as one process would, also where one of them is killed or has no outcome."""

import json
import os
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from pipelines.dagster.handover import NEVER, newest
from pipelines.dagster.stages import loading
from pipelines.dagster.stages.joining import join_all
from pipelines.dagster.stages.loading import load_all
from pipelines.dagster.stages.outcome import StageOutcome
from pipelines.dagster.stages.receiving import batch_id_of, receive_all
from pipelines.dagster.stages.validating import validate_all
from pipelines.feeds.files.catalog import load_feeds
from pipelines.home.exits import UNUSABLE
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.parts import lay_out
from pipelines.loading.load_counts import LoadCounts
from pipelines.runs import joining, watching, workers
from pipelines.runs import parts as in_parts
from pipelines.runs.part_plan import PARTS_A_WORKER
from pipelines.session.opening import open_session
from tests.support.commands import OUTCOMES
from tests.support.dying_worker import STEPS
from tests.support.starting import warm

HEADER = "payment_id,patient_id,amount,paid_on"
PATIENTS = 40
ROWS = 400


@pytest.fixture
def small(monkeypatch):
    """Lets few rows be worth a worker."""
    monkeypatch.setattr(in_parts, "ROWS_A_WORKER", 20)
    monkeypatch.setattr(watching, "LOOK_SECONDS", 0.02)


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
    again = asked("import")["batches"][0]
    assert (again["counts"]["unchanged"], again["counts"]["created"]) == (ROWS, 0)
    assert len(target.stored) == ROWS


def test_a_run_with_a_part_without_an_outcome_goes_on_with_the_next_import(
    home, target, asked, chartferry, small, monkeypatch
):
    """SCALE-02: whatever its counts say. Status shows its parts while it is under way."""
    export(home)
    shown: list[list[dict[str, Any]]] = []

    def all_but_an_outcome(session, load, workers):
        lay_out(session.ledger, load.lease, workers)
        of_batch = [load.batch.batch_id]
        shown.extend(json.loads(chartferry("status", *about, "--json")[1])["parts"] for about in ([], of_batch))
        return LoadCounts(Counter(created=ROWS), unusable="1 of 8 parts are not done", is_cut_short=True)

    with monkeypatch.context() as patched:
        patched.setattr("pipelines.runs.loading.load_in_parts", all_but_an_outcome)
        done = asked("import", "--workers", 2)
    assert (done["exit_code"], done["batches"][0]["state"]) == (UNUSABLE, "running")
    assert [[part["state"] for part in parts] for parts in shown] == [["waiting", "waiting"]] * 2
    assert json.loads(chartferry("status", "--json")[1])["parts"] == []


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
    monkeypatch.setattr(workers, "PROGRAM", warm("tests.support.dying_worker", step, mark))
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
    monkeypatch.setattr(workers, "PROGRAM", warm("tests.support.dying_worker", step, tmp_path / "died"))
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


@pytest.mark.usefixtures("small")
def test_a_machine_joins_the_load_of_another_whose_own_workers_load_nothing(machines, target, monkeypatch) -> None:
    """SCALE-02, SCALE-03: by what is at the store alone. It ends when the load is over, or nobody leads one."""
    monkeypatch.setenv("CHARTFERRY_WORKERS", "2")
    monkeypatch.setattr(workers, "PROGRAM", (sys.executable, "-c", "import time; time.sleep(600)"))
    monkeypatch.setattr(workers, "CLOSING_SECONDS", 0.0)
    monkeypatch.setattr(joining, "LOOK_SECONDS", 0.02)
    rows = "".join(f"k{n},p{n % PATIENTS},{1 + n % 7}.00,2026-02-{1 + n // 40:02},\n" for n in range(ROWS))
    path, feed = machines.put("one", rows), load_feeds().match("payments.csv")
    assert feed
    batch, outcome = batch_id_of(feed, path), StageOutcome()
    with (
        session_of(machines, "one") as one,
        session_of(machines, "two") as two,
        session_of(machines, "three") as three,
        ThreadPoolExecutor() as threads,
    ):
        receive_all(feed, machines.home("one"), [batch], one.inbox, one.batches)
        assert not validate_all(one, feed, [batch], NEVER).failed
        one.pace = replace(one.pace, here=1)
        leads = threads.submit(load_all, one, feed, [batch], NEVER, outcome)
        one_too_many = threads.submit(join_all, three, feed, [batch], leads.done, 3)
        assert join_all(two, feed, [batch], leads.done, 2) == 2 * PARTS_A_WORKER
        assert one_too_many.result() == 0, "the pace is shared among two"
        loaded = leads.result().facts[batch]
        assert (loaded.result.state, loaded.result.count("created"), loaded.first) == ("finished", ROWS, True)
        assert load_all(two, feed, [batch], NEVER, outcome).facts[batch].first
        monkeypatch.setattr(joining, "PATIENCE_SECONDS", 0.1)
        assert join_all(two, feed, [batch], lambda: False, 2) == 0
    assert not outcome.failed
    assert len(target.stored) == ROWS
    came = defaultdict(list)
    for body in target.stored.values():
        came[body["request"]["reference"]].append(number_of(target, body))
    assert all(numbers == sorted(numbers) for numbers in came.values())


def test_a_load_that_another_process_ended_meanwhile_is_not_made_again(machines, monkeypatch) -> None:
    """SCALE-03: as of a step that was taken for lost, while it waited for the target. The counts of the run stay."""
    rows = "".join(f"k{n},p{n % 4},1.00,2026-02-01,\n" for n in range(12))
    path, feed = machines.put("one", rows), load_feeds().match("payments.csv")
    assert feed
    batch, outcome = batch_id_of(feed, path), StageOutcome()
    with session_of(machines, "one") as one, session_of(machines, "two") as two:
        receive_all(feed, machines.home("one"), [batch], one.inbox, one.batches)
        assert not validate_all(one, feed, [batch], NEVER).failed
        seen = [newest(two, feed, batch)]
        assert load_all(one, feed, [batch], NEVER, outcome).facts[batch].result.count("created") == 12
        [ended] = one.ledger.runs(one.target, batch)
        monkeypatch.setattr(loading, "newest", lambda *of: seen.pop() if seen else newest(*of))
        again = load_all(two, feed, [batch], NEVER, outcome).facts[batch].result
        assert (again.state, again.run, again.count("created")) == ("finished", 1, 12)
        assert two.ledger.runs(two.target, batch) == [ended]
        assert newest(one, feed, batch).result == again
    assert not outcome.failed


def session_of(machines, name):
    return open_session(machines.home(name), os.environ)

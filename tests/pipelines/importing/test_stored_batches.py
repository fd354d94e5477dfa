"""Batches at a store: machines that share ledger and store, and no disk, go on with each other's batches."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.dagster.stages.loading import load_all
from pipelines.dagster.stages.outcome import StageOutcome
from pipelines.dagster.stages.receiving import batch_id_of, receive_all
from pipelines.dagster.stages.validating import validate_all
from pipelines.dagster.unfinished import left_batches
from pipelines.home import stores
from pipelines.home.batch import SOURCE
from pipelines.home.batch_files import MANIFESTS
from pipelines.home.stores import StoreUnusable, store_at
from pipelines.importing.current_problems import broken_now
from pipelines.loading.settling import NOT_BY_ITSELF
from pipelines.session.opening import open_session
from tests.support.exports import TASKS
from tests.support.machines import ROWS, a_batch, amounts, batches_at, has_rows, rows_at

pytest.importorskip("obstore", reason="the extra `cluster` is not installed")


@pytest.mark.on_both
def test_all_of_many_simultaneous_entries_get_into_the_log(place, tmp_path):
    """SCALE-03: one after another, without a gap."""
    machines = [batches_at(place, tmp_path / str(number)) for number in range(12)]
    with ThreadPoolExecutor(12) as threads:
        won = list(
            threads.map(lambda each: (each.claim("b-1", "run-1"), each.claim("b-1", f"run-{id(each)}")), machines)
        )
    assert sorted(first for first, _ in won) == [False] * 11 + [True]
    assert all(second for _, second in won)
    assert store_at(place).names("log/b-1/") == sorted(f"{number}.json" for number in range(1, 14))
    assert batches_at(place, tmp_path / "last").names() == ["b-1"]


@pytest.mark.on_both
def test_rows_that_come_again_while_they_are_purged_stay(place, tmp_path, monkeypatch):
    """SCALE-03: the purge comes between the content and the entry that names it."""
    one, two = (batches_at(place, tmp_path / name) for name in ("one", "two"))
    a_batch(one)
    one.keep("payments-1", *SOURCE)
    a_batch(two, file="again.csv")
    kind = type(store_at(place))
    swap = kind.swap
    purged: list[str] = []

    def purging(store, key, content, before):
        if not purged and key.startswith("log/"):
            purged.append(key)
            one.remove("payments-1")
        return swap(store, key, content, before)

    monkeypatch.setattr(kind, "swap", purging)
    two.keep("payments-1", *SOURCE)
    assert purged
    folder = batches_at(place, tmp_path / "three").renew("payments-1")
    assert [path.read_text() for path in (folder / "source").iterdir()] == ["rows of p1"]


def test_damaged_copies_on_a_machine_do_not_reach_the_store_and_are_replaced_from_it(place, tmp_path):
    """SCALE-03: files that are written once are taken from the store."""
    one = batches_at(place, tmp_path / "one")
    folder = a_batch(one)
    (folder / "run-1").mkdir()
    for name in ("accepted.parquet", "manifest.json"):
        (folder / "run-1" / name).write_text("whole")
    one.keep("payments-1", *SOURCE, "run-1/*")
    (folder / "source" / "payments.csv").write_text("changed")
    (folder / "run-1" / "accepted.parquet").write_text("cut")
    (folder / "run-1" / "manifest.json").write_text("newer")
    one.keep("payments-1", *SOURCE, "run-1/*")
    for batches in (one, batches_at(place, tmp_path / "two")):
        found = batches.renew("payments-1")
        assert (found / "source" / "payments.csv").read_text() == "rows of p1"
        assert (found / "run-1" / "accepted.parquet").read_text() == "whole"
        assert (found / "run-1" / "manifest.json").read_text() == "newer"
    (found / "run-1" / "manifest.json").write_text("newest")
    batches.keep("payments-1", MANIFESTS)
    one.keep("payments-1", MANIFESTS)
    assert (one.renew("payments-1") / "run-1" / "manifest.json").read_text() == "newest"


@pytest.mark.parametrize("machines", ["folder"], indirect=True)
def test_dagster_has_each_stage_on_a_machine_of_its_own(machines, target):
    """SCALE-03: what was validated on one is loaded by another, without a run of its own."""
    path = machines.put("one")
    with open_session(machines.home("one"), os.environ) as session:
        feed = session.catalog.named("payments")
        assert feed
        batch_id = batch_id_of(feed, path)
        assert receive_all(feed, session.home, [batch_id], None, session.ledger.batches_in(session.home)).failed == {}
    machines.loses("one")
    outcome = StageOutcome()
    with open_session(machines.home("two"), os.environ) as session:
        assert [each.batch_id for each in left_batches(session.ledger, session.home, session.target)] == [batch_id]
        assert validate_all(session, feed, [batch_id], datetime.now(UTC)).failed == {}
    machines.loses("two")
    with open_session(machines.home("three"), os.environ) as session:
        facts = load_all(session, feed, [batch_id], datetime.now(UTC), outcome).facts
        assert (outcome.failed, facts[batch_id].result.run) == ({}, 1)
        # The last row says the sum of those above it: what was noticed comes along.
        assert "total" in str(facts[batch_id].result.message)
        assert len(session.ledger.runs(session.target, batch_id)) == 1
    assert amounts(target) == [1.0, 2.0]


@pytest.mark.parametrize("machines", ["folder"], indirect=True)
def test_every_machine_knows_whether_a_stopped_file_has_come_again(machines, target):
    """SCALE-03, REPORT-24: also one that has a copy of it from before."""

    def broken(name):
        with open_session(machines.home(name), os.environ) as session:
            ledger = session.ledger
            found = broken_now(ledger, session.home, ledger.clock()).values()
            return [batch for each in found for batch in each.failed]

    rows, total = "k1,p1,1.00,2026-03-01,\n", json.dumps({"rows": 1, "amount": "9.00"})

    def stopped_at(name):
        path = machines.put(name, rows)
        path.with_name(f"{path.name}.control.json").write_text(total)
        [batch] = machines.asked(name, "import")["batches"]
        assert batch["state"] == "stopped"
        return batch["batch_id"]

    batch = stopped_at("one")
    machines.put("one", rows.replace("1.00", "2.00"), file="payments-2.csv")
    assert machines.asked("one", "import")["totals"]["created"] == 1
    assert [broken(name) for name in ("one", "two")] == [[], []]
    assert stopped_at("two") == batch
    assert [broken(name) for name in ("one", "two", "three")] == [[batch]] * 3


def test_a_machine_continues_the_batches_of_another(machines, target):
    """SCALE-03: its disk is empty, and it has received and rejected none of their files."""
    target.faults = ["lost_before"]
    target.additions = False
    machines.put("one")
    first = machines.asked("one", "import")
    assert (first["totals"]["in_doubt"], first["totals"]["rejected"]) == (1, 1)
    batch = first["batches"][0]["batch_id"]
    machines.loses("one")
    assert machines.asked("two", "doubts", "resolve")["left"] == {f"{batch}:2": NOT_BY_ITSELF}
    assert machines.asked("two", "doubts", "resend", f"{batch}:2")["exit_code"] == 0
    done = machines.asked("three", "import")
    assert [each["batch_id"] for each in done["batches"]] == [batch]
    assert amounts(target) == [1.0, 2.0]
    code, out, _ = machines.does("four", "rejects", "export", "--json")
    [exported] = json.loads(out)["files"]
    assert (code, exported["rejects"]) == (0, 1)
    corrected = Path(exported["file"]).read_text().replace("k3,,", "k3,p3,")
    (machines.home("five") / "inbox" / "fixed.csv").write_text(corrected)
    assert machines.asked("five", "import")["totals"]["created"] == 1
    assert amounts(target) == [1.0, 2.0, 3.0]
    assert machines.asked("six", "verify")["differences"] == []


@pytest.mark.long
def test_two_machines_that_take_in_the_same_bytes_have_one_batch(machines, target):
    """SCALE-03: under the name that came last, once; of a third machine nothing is asked but ledger and store."""
    machines.put("one", file="payments-1.csv")
    machines.put("two", file="payments-2.csv")
    assert machines.asked("one", "import")["totals"]["created"] == 2
    assert machines.asked("two", "import")["totals"]["unchanged"] == 2
    machines.loses("one")
    machines.loses("two")
    assert machines.asked("three", "rejects", "retry")["totals"]["rejected"] == 1
    [batch] = machines.home("three").glob("batches/payments-*")
    assert [path.name for path in (batch / "source").iterdir()] == ["payments-1.csv"]
    assert amounts(target) == [1.0, 2.0]


def test_a_purge_reaches_the_store_and_other_machines(machines, target, tmp_path):
    """SCALE-03: first the store; what a machine has of it goes with its next command."""
    machines.put("one", ROWS.partition("k3")[0])
    batch = machines.asked("one", "import")["batches"][0]["batch_id"]
    machines.put("two", ROWS.partition("k3")[0])
    assert machines.asked("two", "import")["totals"]["unchanged"] == 2
    assert rows_at(machines, "one", batch)
    assert rows_at(machines, "two", batch)
    store = store_at(machines.place)
    assert machines.does("three", "purge", batch)[:2] == (0, f"{batch}: its source rows are removed\n")
    assert f"{batch}: nothing to remove: its source rows were removed before" in machines.does("two", "purge", batch)[1]
    assert not has_rows(store, batch)
    for name in ("one", "two", "four"):
        assert machines.asked(name, "import")["batches"] == []
        assert rows_at(machines, name, batch) == []
    machines.put("one", ROWS.partition("k3")[0])
    assert machines.asked("one", "import")["totals"]["unchanged"] == 2
    machines.loses("one")
    assert has_rows(store, batch)
    assert amounts(target) == [1.0, 2.0]


def test_a_purge_that_the_store_did_not_carry_out_is_done_by_the_next(machines, target, monkeypatch):
    """SCALE-03: rows are still there, so the batch is not called purged."""
    machines.put("one", ROWS.partition("k3")[0])
    batch = machines.asked("one", "import")["batches"][0]["batch_id"]
    kind = type(store_at(machines.place))
    with monkeypatch.context() as patched:
        patched.setattr(kind, "remove", unusable)
        assert machines.does("one", "purge", batch)[0] == 6
        assert rows_at(machines, "one", batch)
    assert machines.does("two", "purge", batch)[:2] == (0, f"{batch}: its source rows are removed\n")
    store = store_at(machines.place)
    assert not has_rows(store, batch)


@pytest.mark.long
def test_retention_also_purges_batches_that_are_only_at_the_store(machines, target, monkeypatch):
    """SCALE-03"""
    machines.put("one", ROWS.partition("k3")[0])
    batch = machines.asked("one", "import")["batches"][0]["batch_id"]
    machines.loses("one")
    monkeypatch.setenv("CHARTFERRY_RETENTION_DAYS", "0")
    _, _, err = machines.does("two", "import")
    assert f"{batch}: older than 0 days: its source rows are removed" in err
    store = store_at(machines.place)
    assert not has_rows(store, batch)


def test_a_store_of_another_deployment_is_refused_and_left_alone(machines, target, postgres, monkeypatch):
    """SCALE-03"""
    machines.put("one")
    machines.asked("one", "import")
    store = store_at(machines.place)
    before = store.ages().keys()
    with postgres.database() as another:
        monkeypatch.setenv("CHARTFERRY_LEDGER", another)
        machines.put("other", "k9,p9,9.00,2026-03-01,\n")
        code, out, err = machines.does("other", "import")
        assert (code, out) == (6, "")
        assert "another deployment keeps its batches there (_owner.json): name a prefix of its own" in err
        assert store.ages().keys() == before
        assert (machines.home("other") / "inbox" / "payments.csv").exists()
        assert amounts(target) == [1.0, 2.0]
        store.remove(["_owner.json"])
        machines.asked("other", "verify", "--adopt")
        assert machines.asked("other", "import")["totals"]["created"] == 1


@pytest.mark.long
def test_batches_that_a_home_had_before_are_put_to_the_store(machines, target, monkeypatch):
    """SCALE-03"""
    with monkeypatch.context() as patched:
        patched.delenv("CHARTFERRY_BATCHES")
        machines.put("one")
        batch = machines.asked("one", "import")["batches"][0]["batch_id"]
    machines.asked("one", "verify")
    machines.loses("one")
    assert machines.asked("two", "rejects", "retry")["batches"][0]["batch_id"] == batch


@pytest.mark.long
def test_a_ledger_is_made_again_from_the_copies_of_its_journal_at_the_store(machines, target, postgres, monkeypatch):
    """SCALE-03, LEDGER-20: it is known for the ledger that the batches are of."""
    machines.put("one")
    machines.asked("one", "import")
    machines.put("two", "k4,p1,4.00,2026-03-01,\n")
    machines.asked("two", "import")
    store = store_at(machines.place)
    assert not list(machines.folder.glob("*/batches/journal/*"))
    copies = machines.home("three") / "batches" / "journal"
    copies.mkdir(parents=True)
    names = store.names("journal/")
    assert len(names) > 1
    for name in names:
        assert store.fetch(f"journal/{name}", copies / name)
    first = copies / names[0]
    twice = first.with_name(f"{first.name.partition('-')[0]}-{int(names[0].partition('-')[2][:12]) + 1:012}.ndjson.gz")
    shutil.copy(first, twice)  # of two machines that copied at once
    with postgres.database() as another:
        monkeypatch.setenv("CHARTFERRY_LEDGER", another)
        assert machines.asked("three", "verify")["differences"] == []
        assert machines.asked("three", "rejects", "retry")["totals"]["rejected"] == 1
        machines.put("three", "k5,p1,5.00,2026-03-01,\n")
        assert machines.asked("three", "import")["totals"]["created"] == 1
    assert amounts(target) == [1.0, 2.0, 4.0, 5.0]


@pytest.mark.alike
@pytest.mark.parametrize("machines", ["bucket"], indirect=True)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param(500, "it answers with an error (500)", marks=pytest.mark.long),
        pytest.param(503, "it answers with an error (503)", marks=pytest.mark.long),
        pytest.param(403, "it refuses these credentials (403)", marks=pytest.mark.long),
        pytest.param(404, "there is no such bucket or container", marks=pytest.mark.long),
        ("expired", "these credentials have expired"),
        pytest.param("lost", "it does not answer, or the connection to it was lost", marks=pytest.mark.long),
        ("cut", "it does not answer, or the connection to it was lost"),
        pytest.param("silent", "it does not answer, or the connection to it was lost", marks=pytest.mark.long),
    ],
)
def test_a_store_that_fails_is_reported_in_one_sentence_and_nothing_is_lost(
    machines, target, bucket, monkeypatch, wrong, said
):
    """SCALE-03: at whatever write, each of them where it is lost or cut; then every row is there once."""
    monkeypatch.setattr(stores, "SECONDS_OF_A_REQUEST", 1)
    monkeypatch.setattr(stores, "TRIES", 1)
    machines.put("one")
    calls, steps = 0, 0

    def failing(function):
        def counted(*arguments):
            nonlocal calls
            calls += 1
            bucket.wrong = wrong if calls == steps else bucket.wrong
            return function(*arguments)

        return counted

    for name in ("put", "swap"):
        monkeypatch.setattr(stores.Bucket, name, failing(getattr(stores.Bucket, name)))
    for step in (1, 2, 3, 4, 5, 7, 10, 13) if wrong in ("lost", "cut") else (3, 7):
        calls, steps = 0, step
        code, out, err = machines.does("one", "import")
        bucket.wrong, steps = None, 0
        assert "planted" not in out + err
        if calls < step:
            break
        assert code == 6
        assert f"the batches are out of reach: s3://bucket/pre/fix: {said}" in out + err
    done = machines.asked("one", "import")
    assert amounts(target) == [1.0, 2.0]
    assert done["exit_code"] in (0, 3)
    machines.loses("one")
    assert machines.asked("two", "rejects", "retry")["totals"]["rejected"] == 1
    assert machines.asked("two", "verify")["differences"] == []


@pytest.mark.parametrize("machines", ["bucket"], indirect=True)
def test_a_stored_content_with_another_hash_is_not_used(machines, target, bucket):
    """SCALE-03"""
    machines.put("one")
    batch = machines.asked("one", "import")["batches"][0]["batch_id"]
    machines.loses("one")
    [key] = [key for key, (body, _) in bucket.objects.items() if b"k1,p1" in body and b"PAR1" not in body]
    kept = bucket.objects[key]
    bucket.objects[key] = (kept[0].replace(b"1.00", b"9.00"), kept[1])
    code, out, _ = machines.does("two", "rejects", "retry")
    name = key.removeprefix("pre/fix/")
    assert (code, f"{name} is not what was put there: restore it" in out) == (6, True)
    del bucket.objects[key]
    code, out, _ = machines.does("two", "rejects", "retry")
    assert (code, f"{name} is not there any more: restore it" in out) == (6, True)
    bucket.objects[key] = kept
    assert machines.asked("two", "rejects", "retry")["batches"][0]["batch_id"] == batch


@pytest.mark.long
@pytest.mark.parametrize("machines", ["bucket"], indirect=True)
def test_a_bucket_that_lists_late_hides_no_batch_that_the_ledger_knows(machines, target, bucket, monkeypatch):
    """SCALE-03"""
    target.additions = False
    target.faults = ["lost_before"]
    monkeypatch.setattr(type(bucket), "listing", lambda *_: b"<ListBucketResult></ListBucketResult>")
    machines.put("one")
    assert machines.asked("one", "import")["totals"]["in_doubt"] == 1
    machines.loses("one")
    assert len(machines.asked("two", "doubts", "resolve")["left"]) == 1


@pytest.mark.long
@pytest.mark.parametrize("machines", ["bucket"], indirect=True)
def test_a_slow_store_keeps_batches(machines, target, bucket):
    """SCALE-03"""
    bucket.wrong = "slow"
    machines.put("one")
    assert machines.asked("one", "import")["totals"]["created"] == 2
    machines.loses("one")
    assert machines.asked("two", "rejects", "retry")["totals"]["rejected"] == 1


def unusable(*_: object) -> None:
    raise StoreUnusable("it refuses these credentials (403)")


def test_a_machine_loads_a_batch_again_whose_file_came_in_at_another(machines, target):
    """SCALE-03, CLI-CMD-18"""
    (machines.home("one") / "inbox" / "tasks.csv").write_text(f"{TASKS}t1,p1,call,requested,a\n")
    [batch] = machines.asked("one", "import")["batches"]
    assert machines.does("one", "undo", batch["batch_id"])[0] == 0
    machines.loses("one")
    assert machines.asked("two", "import", "--again", batch["batch_id"])["totals"]["created"] == 1
    assert sorted(body["status"] for body in target.of("Task")) == ["cancelled", "requested"]

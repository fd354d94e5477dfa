"""`verify --adopt`: ledger and journal are gone. What runs may have sent is in doubt; nothing doubles or is lost."""

import json
import random
import shutil
from collections import Counter
from contextlib import closing
from unittest.mock import Mock

import duckdb
import pytest

from pipelines.ledger.ledger import Ledger
from tests.support.exports import PAYMENTS, QUESTIONS, TASKS, let_update, payments, put, tasks
from tests.support.fake_answers import Said, outcome
from tests.support.ledgers import keep_ledger, lose_ledger, lose_tables
from tests.support.publishing import publish_nothing

ANSWERS = "response_id,patient_id,questionnaire,question,answer_text\n"


def records(home):
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        rows = ledger.tables()["record"].to_pylist()
    return {row["key"]: (row["state"], row["resource_id"]) for row in rows}


def states(home):
    return {key: state for key, (state, _) in records(home).items()}


def rejects(home):
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        rows = ledger.tables()["reject"].to_pylist()
    return {row["reject_id"]: row["state"] for row in sorted(rows, key=lambda row: row["line"])}


def amounts(target):
    return sorted(body["amount"]["value"] for body in target.of("PaymentNotice"))


def test_two_equal_payments_of_which_one_is_there_wait_for_a_person_at_a_bare_target(home, target, asked, additions):
    """CLI-CMD-17, LEDGER-08: with identifiers both are adopted."""
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "1.00"))
    target.faults = [] if additions else [None, "lost_before"]
    batch = asked("import")["batches"][0]["batch_id"]
    target.faults = []
    before = len(target.of("PaymentNotice"))
    lose_ledger(home)
    found = asked("verify", "--adopt")
    assert found["batches"][batch] == {"adopted": 2 * additions, "taken_back": 0, "in_doubt": 2 * (not additions)}
    assert asked("import")["totals"].get("created", 0) == 0
    assert len(target.of("PaymentNotice")) == before
    assert states(home) == dict.fromkeys(("k1", "k2"), "adopted" if additions else "in_doubt")
    assert asked("verify")["exit_code"] == (0 if additions else 5)


@pytest.mark.alike
@pytest.mark.parametrize("step", ["lost_runs.begin", "lost_runs.validate_run", "lost_batch.LostBatchWriter.write"])
@pytest.mark.parametrize("untold", [False, True], ids=["told", "untold"])
def test_an_adoption_that_is_stopped_halfway_has_adopted_nothing(
    home, target, asked, chartferry, monkeypatch, additions, step, untold
):
    """CLI-CMD-17, LEDGER-01: killed, or the target went away, and an import comes before it is run again."""
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    asked("import")
    lose_ledger(home)
    for manifest in home.glob("batches/*/run-*/manifest.json"):
        said = json.loads(manifest.read_text())
        manifest.unlink() if untold else manifest.write_text(json.dumps(said | {"ended_at": None, "state": "running"}))
    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(f"pipelines.verifying.{step}", stopped)
            chartferry("verify", "--adopt")
        chartferry("import")
    said = chartferry("verify", "--adopt")[2]
    assert additions or ": adopt done, 2 rows in " in said
    chartferry("import")
    assert amounts(target) == [1.0, 2.0]


@pytest.mark.alike
@pytest.mark.parametrize("way_out", ["the file", "purge"])
def test_a_batch_whose_copy_is_damaged_stays_lost(home, target, asked, chartferry, way_out):
    """CLI-CMD-17, LEDGER-01: the file comes once more, as the sentence asks for."""
    target.additions = False
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    lose_ledger(home)
    [copy] = home.glob("batches/*/source/*")
    copy.chmod(0o600)
    copy.write_bytes(b"damaged")
    assert batch in asked("verify", "--adopt")["left"]
    if way_out == "purge":
        assert chartferry("purge", batch)[0] == 0
        assert "check the chart" in asked("verify", "--adopt")["left"][batch]
        payments(home, ("k2", "p2", "2.00"), name="payments-b.csv")
        assert asked("import")["totals"]["created"] == 1
        return
    payments(home, ("k1", "p1", "1.00"))
    asked("import")
    assert amounts(target) == [1.0]
    assert asked("verify", "--adopt")["batches"][batch]["adopted"] == 1
    assert asked("import")["exit_code"] == 0
    assert amounts(target) == [1.0]


@pytest.mark.parametrize("is_mended", [False, True])
def test_a_file_of_which_nothing_was_sent_is_not_doubted(home, target, asked, additions, is_mended):
    """CLI-CMD-17, LEDGER-01: its totals did not agree. A row in doubt would hold up the corrected file."""
    payments(home, ("k1", "p1", "1.00"))
    put(home, "payments.csv.control.json", '{"rows": 2}')
    batch = asked("import")["batches"][0]["batch_id"]
    lose_ledger(home)
    payments(home, ("k0", "p2", "5.00"), name="payments-0.csv")
    assert asked("import")["totals"]["created"] == 1
    if is_mended:
        [control] = home.glob("batches/*/source/*.control.json")
        control.unlink()
    found = asked("verify", "--adopt")
    assert (found["batches"], list(found["left"]), states(home)) == ({}, [batch], {"k0": "created"})
    assert (asked("verify")["lost"], asked("import")["totals"]) == ([], {})
    payments(home, ("k1", "p1", "3.00"), ("k2", "p1", "2.00"), name="payments-b.csv")
    assert asked("import")["totals"]["created"] == 2


def stopped(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.long
def test_a_batch_that_this_program_fails_on_stays_lost(home, target, asked, monkeypatch, additions):
    """CLI-CMD-17, LEDGER-01: the run that failed counted as one that makes good for those before it, and each payment
    was sent again.
    """
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    lose_ledger(home)
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.runs.received.validate", Mock(side_effect=KeyError))
        assert asked("verify", "--adopt")["exit_code"] == 3
    assert asked("verify")["lost"] == [batch]
    [source] = home.glob("batches/*/source/*")
    asked("import", str(source))
    assert amounts(target) == [1.0, 2.0]
    asked("verify", "--adopt")
    assert asked("verify")["lost"] == []
    assert amounts(target) == [1.0, 2.0]


def test_an_older_payment_of_the_chart_is_not_the_rows(home, target, asked, additions):
    """CLI-CMD-17, LEDGER-01: it was made there long before the row was first sent."""
    payments(home, ("k1", "p1", "1.00"))
    target.faults = ["busy"] * 40
    asked("import")
    target.faults = []
    older = {"resourceType": "PaymentNotice", "request": {"reference": "Patient/p1"}, "amount": {"value": 1.0}}
    name = target.create(older)[1].rpartition("/")[2]
    target.stored[name]["created"] = "2020-01-01T00:00:00+00:00"
    lose_ledger(home)
    assert asked("verify", "--adopt")["exit_code"] == 5
    assert states(home) == {"k1": "in_doubt"}


@pytest.mark.alike
@pytest.mark.parametrize("kind", ["Task", "QuestionnaireResponse"])
def test_records_that_were_undone_before_the_ledger_was_lost_are_not_loaded_again(home, target, asked, additions, kind):
    """CLI-CMD-17, CLI-CMD-22"""
    target.stored["q1"] = QUESTIONS
    if kind == "Task":
        tasks(home, "k1", "k2")
    else:
        put(home, "answers.csv", ANSWERS + "k1,p1,q1,1,yes\nk2,p1,q1,1,no\n")
    batch = asked("import")["batches"][0]["batch_id"]
    asked("undo", batch)
    before = dict(target.stored)
    lose_ledger(home)
    found = asked("verify", "--adopt")["batches"][batch]
    assert (found["taken_back"], found["in_doubt"]) == ((2, 0) if additions else (0, 2))
    for _ in range(2):
        asked("import")
        assert target.stored == before
    assert set(states(home).values()) == {"undone" if additions else "in_doubt"}


@pytest.mark.long
@pytest.mark.publishes("import_row")
def test_status_and_tables_count_undone_records_alike_even_if_the_decision_is_lost(
    home, asked, chartferry, monkeypatch
):
    """CLI-CMD-10, CLI-CMD-17: of two files the second has a record of the first once more."""
    with monkeypatch.context() as patched:
        publish_nothing(patched)
        tasks(home, "k1", "k2")
        batch = asked("import")["batches"][0]["batch_id"]
        put(home, "tasks-2.csv", TASKS + "".join(f"{key},p1,call {key},requested,a\n" for key in ("k2", "k3")))
        asked("import")
    asked("undo", batch)
    told = [told_back(home, chartferry)]
    lose_ledger(home)
    with monkeypatch.context() as patched:
        publish_nothing(patched)
        asked("verify", "--adopt")
        asked("import", "--again", batch)
        asked("undo", batch)
    lose_ledger(home)
    assert asked("verify", "--adopt")["batches"][batch]["taken_back"]
    asked("reports")
    told.append(told_back(home, chartferry))
    assert all(status == published for status, published in told)
    assert all(status[batch] for status, _ in told)


def told_back(home, chartferry):
    """Return what is taken back by batch, by the status and by the published tables."""

    def of(*which):
        found = json.loads(chartferry("status", *which, "--json")[1])["batches"]
        return {each["batch_id"]: each["taken_back"] for each in found}

    status = of()
    assert all(of(name) == {name: number} for name, number in status.items())
    query = "SELECT batch_id, count(*) FROM import_row WHERE state = 'undone' GROUP BY batch_id"
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as db:
        found = dict(db.execute(query).fetchall())
    return status, dict.fromkeys(status, 0) | found


@pytest.mark.alike
@pytest.mark.parametrize("kept", [None, "before the undo", "after the undo"])
def test_adoption_takes_the_reloaded_resource_and_not_the_one_that_was_taken_back(home, target, asked, kept):
    """CLI-CMD-17, CLI-CMD-18: also after another undo and load."""
    tasks(home, "k1")
    batch = asked("import")["batches"][0]["batch_id"]
    put_back = keep_ledger(home)
    asked("undo", batch)
    put_back = keep_ledger(home) if kept == "after the undo" else put_back
    asked("import", "--again", batch)
    put_back() if kept else lose_ledger(home)
    [standing] = [body["id"] for body in target.of("Task") if body["status"] == "requested"]
    assert asked("verify", "--adopt")["exit_code"] == 0
    assert [made for _, made in records(home).values()] == [standing]
    assert asked("verify")["differences"] == []
    asked("undo", batch)
    asked("import", "--again", batch)
    assert sorted(body["status"] for body in target.of("Task")) == ["cancelled", "cancelled", "requested"]


def test_a_change_of_an_earlier_batch_is_a_reject_again_after_adoption(home, target, asked, additions):
    """CLI-CMD-17, LEDGER-09: ledger and journal are those of yesterday."""
    payments(home, ("k1", "p1", "1.00"))
    asked("import")
    put_back = keep_ledger(home)
    payments(home, ("k1", "p1", "9.00"), ("k2", "p1", "3.00"), name="payments-b.csv")
    batch = asked("import")["batches"][0]["batch_id"]
    put_back()
    assert asked("verify", "--adopt")["batches"] == {batch: {"adopted": 1, "taken_back": 0, "in_doubt": 0}}
    found = asked("import")
    assert (found["exit_code"], found["batches"][0]["reasons"]) == (3, {"LEDGER-08": 1})
    assert amounts(target) == [1.0, 3.0]


@pytest.mark.parametrize("again", ["refused", "updated"])
def test_after_adoption_an_import_tries_a_change_again_that_the_target_had_refused(home, target, asked, again):
    """CLI-CMD-17: the task is adopted as it is there."""
    let_update(home)
    tasks(home, "k1")
    asked("import")
    tasks(home, "k1", text="ring")
    target.put_faults = ["refused"]
    asked("import")
    lose_ledger(home)
    [made] = [body["id"] for body in target.of("Task")]
    assert asked("verify", "--adopt")["exit_code"] == 0
    assert records(home) == {"k1": ("adopted", made)}
    target.put_faults = ["refused"] * (again == "refused")
    assert asked("import")["totals"][again] == 1
    assert records(home) == {"k1": ("updated" if again == "updated" else "adopted", made)}
    assert asked("verify")["differences"] == []


@pytest.mark.alike
@pytest.mark.publishes("payment_reconciliation")
@pytest.mark.parametrize("refused", ["1.00", "9.00"], ids=["the first was refused", "the second was set aside"])
def test_of_two_amounts_under_a_key_adoption_counts_the_one_at_the_target(home, target, asked, refused, monkeypatch):
    """CLI-CMD-17, LEDGER-09, REPORT-18"""
    target.refuse = lambda body: body["amount"]["value"] == float(refused)
    with monkeypatch.context() as patch:
        publish_nothing(patch)
        payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "3.00"))
        asked("import")
        payments(home, ("k1", "p1", "9.00"), ("k2", "p1", "3.00"), name="payments-b.csv")
        asked("import")
    there = amounts(target)
    lose_ledger(home)
    assert asked("verify", "--adopt")["exit_code"] == 0
    found = asked("import")
    assert (found.get("error"), amounts(target), asked("verify")["differences"]) == (None, there, [])
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as db:
        [(created,)] = db.execute("SELECT sum(created) FROM payment_reconciliation").fetchall()
    assert float(created) == sum(there)


@pytest.mark.parametrize("is_lost", [False, True], ids=["nothing lost", "all lost"])
def test_adoption_leaves_each_reject_as_it_was(home, asked, additions, is_lost):
    """CLI-CMD-17, LEDGER-05: of the first, another row is wrong yet; the second was loaded under another key."""
    payments(home, ("k1", "p1", "x"), ("k2", "p1", "y"), ("k3", "p1", "z"))
    asked("import")
    first, second, _ = rejects(home)
    rows = [(first, "k1,p1,1.00"), (first, "k5,p1,z"), (second, "k4,p2,2.00"), ("", "k3,p2,3.00")]
    lines = "".join(f"{name},{said},2026-03-01,\n" for name, said in rows)
    put(home, "payments-b.csv", f"_reject_id,{PAYMENTS}{lines}")
    asked("import")
    before = rejects(home)
    assert list(before.values()) == ["open", "closed", "closed"]
    if is_lost:
        lose_ledger(home)
    asked("verify", "--adopt")
    assert rejects(home) == before


@pytest.mark.long
def test_a_refused_row_is_a_reject_again_after_adoption(home, target, asked, additions):
    """CLI-CMD-17, LEDGER-05"""
    target.refuse = lambda body: body.get("description") == "call k2"
    tasks(home, "k1", "k2")
    assert asked("import")["exit_code"] == 3
    target.stored["t0"] = {"resourceType": "Task", "id": "t0", "status": "requested", "description": "of the chart"}
    lose_ledger(home)
    asked("verify", "--adopt")
    monday = asked("import")
    assert (monday["totals"].get("created", 0), len(target.of("Task"))) == (0, 2)
    if additions:
        assert (monday["exit_code"], states(home)) == (3, {"k1": "adopted", "k2": "refused"})
    else:  # it settles before it goes again
        assert (monday["exit_code"], states(home)) == (5, {"k1": "adopted", "k2": "in_doubt"})


def test_records_that_the_ledger_has_are_not_doubted_at_a_target_without_statuses(home, target, asked, additions):
    """LEDGER-01, CLI-CMD-17: else a person might have a row sent again, and a payment would be there twice."""
    target.drops = {"status"}
    payments(home, ("k1", "p1", "1.00"))
    asked("import")
    put_back = keep_ledger(home)
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"), name="payments-b.csv")
    batch = asked("import")["batches"][0]["batch_id"]
    put_back()
    found = asked("verify", "--adopt")
    assert found["batches"] == {batch: {"adopted": 1, "taken_back": 0, "in_doubt": 0}}
    assert asked("verify")["counts"] == {}


def test_a_purged_batch_is_named_and_holds_nothing_up_then(home, target, asked, chartferry):
    """CLI-CMD-17, CLI-CMD-16: its rows cannot be looked up any more."""
    target.additions = False
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    chartferry("purge", batch)
    lose_ledger(home)
    payments(home, ("k2", "p2", "2.00"), name="payments-b.csv")
    assert asked("import")["batches"][0]["state"] == "failed"
    left = asked("verify", "--adopt")["left"]
    assert left == {
        batch: "its source rows are no longer in this home: check the chart before you import these rows again"
    }
    assert asked("import")["totals"]["created"] == 1
    assert amounts(target) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("fault", "there", "state"), [("lost_after", [1.0, 2.0], "adopted"), ("lost_before", [], "in_doubt")]
)
def test_a_row_in_doubt_from_bare_times_is_not_sent_by_a_conditional_create(fault, there, state, home, target, asked):
    """LEDGER-01, LEDGER-08: the first request carried no identifier, and its resource would not be found."""
    target.additions, target.faults = False, [fault]
    payments(home, ("k1", "p1", "1.00"))
    asked("import")
    target.additions = True
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"), name="payments-b.csv")
    for _ in range(2):
        asked("import")
    assert amounts(target) == there
    assert states(home)["k1"] == state


def test_journal_gone_and_ledger_there_is_asked_for_first(home, target, asked, chartferry):
    """CLI-CMD-17: `verify --adopt` begins it anew with what the ledger has."""
    payments(home, ("k1", "p1", "1.00"))
    asked("import")
    (home / "journal.ndjson").unlink()
    code, _, err = chartferry("import")
    assert (code, "journal.ndjson is missing beside its ledger" in err) == (6, True)
    assert asked("verify", "--adopt")["exit_code"] == 0
    assert asked("import")["totals"] == {}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 12))])
def test_no_record_is_there_twice_whatever_part_of_ledger_and_journal_was_lost(seed, additions, home, target, asked):
    """CLI-CMD-17, LEDGER-01, LEDGER-20: files, faults, and ledger and journal lost or of another day."""
    dice = random.Random(seed)
    target.stored["q1"] = QUESTIONS
    put_back = None
    for step in range(6):
        keys = [f"k{dice.randrange(8)}" for _ in range(3)]
        match dice.randrange(3):
            case 0:
                rows = {key: (key, "p" + key[1:], f"{key[1:]}.50") for key in keys}
                payments(home, *rows.values(), name=f"payments-{step}.csv")
            case 1:
                tasks(home, *dict.fromkeys(keys))
            case _:
                lines = "".join(f"{key},p{key[1:]},q1,1,said\n" for key in dict.fromkeys(keys))
                put(home, f"answers-{step}.csv", ANSWERS + lines)
        target.faults = [dice.choice([None, "lost_before", "lost_after", Said(422, outcome("invalid"))])]
        asked("import")
        target.faults = []
        if dice.random() < 0.3:
            put_back = keep_ledger(home)
    put_back() if put_back and dice.random() < 0.5 else lose_ledger(home)
    asked("verify", "--adopt")
    for _ in range(2):
        asked("import")
    drawn = Counter(
        json.dumps([body[name] for name in ("request", "subject", "for", "amount", "description") if name in body])
        for kind in ("PaymentNotice", "QuestionnaireResponse", "Task")
        for body in target.of(kind)
    )
    assert set(drawn.values()) <= {1}
    assert not {"double", "unknown", "gone"} & asked("verify")["counts"].keys()


def test_closed_segments_that_are_lost_with_the_ledger_leave_a_way_out(home, target, asked, chartferry, monkeypatch):
    """CLI-CMD-17: what is left of the journal is put aside, and what it knew is in doubt."""
    target.additions = False
    monkeypatch.setattr("pipelines.ledger.journal.BYTES_A_SEGMENT", 800)
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    asked("import")
    lose_tables(home)
    shutil.rmtree(home / "journal")
    code, _, err = chartferry("import")
    assert (code, "is missing: restore" in err) == (6, True)
    assert asked("verify", "--adopt")["exit_code"] == 0
    assert (home / "journal.aside").exists()
    asked("import")
    assert amounts(target) == [1.0, 2.0]


@pytest.mark.parametrize("command", ["status", "undo", "verify", "doubts resolve -b", "doubts accept --resource x"])
def test_a_name_that_is_no_text_is_no_batch(home, target, asked, chartferry, command):
    """STATE-HOME-07"""
    payments(home, ("k1", "p1", "1.00"))
    asked("import")
    code, _, err = chartferry(*command.split(), "a\udcff")
    assert (code, "fault of this program" in err) == (4, False)

"""What runs leave on record of their rows, and what a ledger that was lost, or is an older copy, gets back by it."""

import json
import shutil
import sqlite3
from contextlib import closing

import pytest

from pipelines.ledger.ledger import Ledger
from pipelines.loading.outcomes import NAME, OnRecord, Told, outcomes_in
from pipelines.loading.sending import Result, Row
from tests.pipelines.fake_target import Said, outcome
from tests.pipelines.test_adopt import ANSWERS, both, records, yesterday
from tests.pipelines.test_decisions import payments, put, tasks
from tests.pipelines.test_verify import QUESTIONS, lose_ledger

MOMENT = "2026-02-01T00:00:00.000000Z"
ROW = Row(7, 1, "k1", "lane", "hash", "p1", None, 100, "{}", "2026-01-01T00:00:00.000000Z", generation=2)
REFUSED = Said(422, outcome("business-rule"))


# -- the record


def test_each_outcome_is_a_line_and_what_tells_nothing_is_left_out(tmp_path):
    """LEDGER-01"""
    told = OnRecord(tmp_path, lambda: MOMENT)
    told.note([(ROW, Result("created", "a")), (ROW, Result("planned")), (ROW, Result("refused", status=422))])
    told.note([(ROW, Result("in_doubt")), (ROW._replace(change="again"), Result("in_doubt", "a"))])
    assert list(outcomes_in(tmp_path)) == [
        Told("k1", "hash", 7, 2, "created", "a", None, None, MOMENT),
        Told("k1", "hash", 7, 2, "refused", None, 422, None, MOMENT),
        Told("k1", "hash", 7, 2, "in_doubt", None, None, ROW.first_attempt_at, MOMENT),
    ]


def test_a_line_that_was_cut_off_takes_no_other_with_it(tmp_path):
    """LEDGER-01: the disk was full, and is not any more."""
    OnRecord(tmp_path, lambda: MOMENT).note([(ROW, Result("created", "a"))] * 2)
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes()[:-5])
    OnRecord(tmp_path, lambda: MOMENT).note([(ROW, Result("created", "b"))])
    assert [each.resource_id for each in outcomes_in(tmp_path)] == ["a", "b"]


@pytest.mark.parametrize(
    "line",
    [
        *("", "{}", "7", "[]", "[1]", "null", "\x00", '["k1","hash",7,1', '"a moment"', '{"a":1,"b":2}'),
        '["k1","hash","7",1,"created","a",null,null]',
        '["k1","hash",-7,1,"created","a",null,null]',
        '["k1","hash",7,100000000000000000000,"created","a",null,null]',
        '["k1","hash",7,1,"odd","a",null,null]',
        '["k1","hash",7,1,"created",["a"],null,null]',
        '["k1","hash",7,1,null,null,null,null]',
    ],
)
def test_a_line_that_is_no_outcome_is_passed_over(tmp_path, line):
    """LEDGER-01"""
    (tmp_path / NAME).write_text(f"{line}\n")
    OnRecord(tmp_path, lambda: MOMENT).note([(ROW, Result("created", "a"))])
    assert [each.resource_id for each in outcomes_in(tmp_path)] == ["a"]


def test_no_record_is_no_outcome(tmp_path):
    """LEDGER-01"""
    OnRecord(tmp_path, lambda: MOMENT).note([])
    assert not (tmp_path / NAME).exists()
    assert list(outcomes_in(tmp_path)) == []


# -- the ledger that was lost


@both
def test_equal_payments_of_a_patient_are_again_whose_they_were(home, target, asked, additions):
    """CLI-CMD-17, LEDGER-01"""
    target.additions = additions
    payments(home, *((f"k{number}", "p1", "1.00") for number in range(6)))
    asked("import")
    before = {key: name for key, (_, name) in records(home).items()}
    lose_ledger(home)
    assert asked("verify", "--adopt")["exit_code"] == 0
    assert {key: name for key, (_, name) in records(home).items()} == before


@both
def test_a_task_that_was_rewritten_in_the_chart_is_still_the_rows(home, target, asked, additions):
    """CLI-CMD-17, LEDGER-01: by its content it was nobody's, and was made once more."""
    target.additions = additions
    tasks(home, "k1", "k2")
    asked("import")
    for body in target.of("Task"):
        body["description"] = "as the clinic has it now"
    before = dict(target.stored)
    lose_ledger(home)
    assert asked("verify", "--adopt")["exit_code"] == 0
    assert asked("import")["totals"] == {}
    assert target.stored == before


def test_a_payment_in_doubt_is_so_again_and_not_sent(home, target, asked):
    """CLI-CMD-17, LEDGER-01: whether it arrives late, only a person can know."""
    target.additions, target.faults = False, ["lost_before"]
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    line = {"k1": 2, "k2": 3}
    [key] = (key for key, (state, _) in records(home).items() if state == "in_doubt")
    lose_ledger(home)
    asked("verify", "--adopt")
    found = asked("import")
    assert (found["exit_code"], found["totals"]["in_doubt"]) == (5, 1)
    assert len(target.of("PaymentNotice")) == 1
    assert list(asked("doubts", "resolve")["left"]) == [f"{batch}:{line[key]}"]


def test_a_payment_that_was_refused_does_not_take_the_equal_one_of_another_row(home, target, asked):
    """CLI-CMD-17, LEDGER-01"""
    target.additions, target.faults = False, [REFUSED]
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "1.00"))
    asked("import")
    before = {key: ("adopted" if state == "created" else state, name) for key, (state, name) in records(home).items()}
    lose_ledger(home)
    asked("verify", "--adopt")
    assert records(home) == before
    assert asked("import")["totals"] == {}
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        [reason] = ledger.tables()["reject_reason"].to_pylist()
    assert (reason["rule_id"], reason["retryable"]) == ("HTTP-422", 1)
    assert asked("rejects", "retry")["totals"]["created"] == 1
    assert len(target.of("PaymentNotice")) == 2


# -- the ledger of yesterday


def changing(home, feed, kind, columns, changed):
    (home / "feeds").mkdir(exist_ok=True)
    names = "".join(f'{name} = "{name}"\n' for name in columns.strip().split(","))
    head = f'kind = "{kind}"\nfiles = ["{feed}*"]\nchanged = "{changed}"\n[columns]\n'
    (home / "feeds" / f"{feed}.toml").write_text(head + names)


@both
def test_what_was_superseded_since_is_not_superseded_again(home, target, asked, additions):
    """CLI-CMD-17, LEDGER-08"""
    target.additions, target.stored["q1"] = additions, QUESTIONS
    changing(home, "form", "answers", ANSWERS, "supersede")
    put(home, "form-1.csv", ANSWERS + "k1,p1,q1,1,yes\n")
    asked("import")
    put_back = yesterday(home)
    put(home, "form-2.csv", ANSWERS + "k1,p1,q1,1,no\n")
    asked("import")
    before = dict(target.stored)
    [standing] = [body["id"] for body in target.of("QuestionnaireResponse") if body["status"] == "completed"]
    put_back()
    assert asked("verify", "--adopt")["exit_code"] == 0
    assert records(home) == {"k1": ("superseded", standing)}
    assert asked("import")["totals"] == {}
    assert target.stored == before
    assert asked("verify")["differences"] == []


@both
def test_what_was_updated_since_is_known_as_that(home, target, asked, additions):
    """CLI-CMD-17, LEDGER-08"""
    target.additions = additions
    changing(home, "tasks", "tasks", "task_id,patient_id,description,status,requester_id", "update")
    tasks(home, "k1")
    asked("import")
    put_back = yesterday(home)
    tasks(home, "k1", text="mail")
    asked("import")
    [task] = target.of("Task")
    written, puts = dict(task), target.puts
    put_back()
    assert asked("verify", "--adopt")["exit_code"] == 0
    assert records(home) == {"k1": ("updated", task["id"])}
    assert asked("import")["totals"] == {}
    assert (target.of("Task"), target.puts) == ([written], puts)


@pytest.mark.parametrize("killed", [False, True], ids=["ended", "killed"])
def test_a_copy_of_the_time_when_a_run_was_under_way_sends_nothing_twice(home, target, asked, killed, monkeypatch):
    """CLI-CMD-17, LEDGER-01: it knows the run, and not what that did after."""
    target.additions = False
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    if killed:
        manifest = home / "batches" / batch / "run-1" / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"ended_at": "', '"ended_at": null, "was": "'))
    with closing(sqlite3.connect(home / "ledger.db")) as db, db:
        db.execute("UPDATE run SET finished_at = NULL, state = 'running'")
        db.execute("UPDATE batch SET finished_at = NULL, state = 'running'")
        db.execute("DELETE FROM entry")
    found = asked("import")
    assert "chartferry verify --adopt" in found["batches"][0]["message"]
    assert len(target.of("PaymentNotice")) == 2
    assert asked("verify", "--adopt")["exit_code"] == 0
    assert asked("import")["totals"] == {}
    assert asked("verify")["differences"] == []


def test_what_was_purged_keeps_its_resources_from_equal_rows(home, target, asked, chartferry):
    """CLI-CMD-16, CLI-CMD-17: its rows are gone, and what they made is theirs."""
    target.additions = False
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    chartferry("purge", batch)
    assert (home / "batches" / batch / "run-1" / NAME).exists()
    target.faults = [REFUSED]
    payments(home, ("k2", "p1", "1.00"), name="payments-b.csv")
    asked("import")
    shutil.rmtree(home / "published", ignore_errors=True)
    lose_ledger(home)
    asked("verify", "--adopt")
    assert records(home) == {"k1": ("adopted", next(iter(target.stored))), "k2": ("refused", None)}


def test_the_record_holds_no_data_of_a_patient(home, target, asked):
    """LEDGER-01, STATE-HOME-03"""
    target.additions, target.faults = False, ["lost_before"]
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    told = list(outcomes_in(home / "batches" / batch / "run-1"))
    assert {each.key for each in told} == {"k1", "k2"}
    assert {each.line for each in told} == {2, 3}
    assert {each.state for each in told} == {"created", "in_doubt"}
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        kept = {row["resource_id"] for row in ledger.tables()["record"].to_pylist()}
    assert {each.resource_id for each in told} == kept


@both
def test_an_older_file_put_in_once_more_changes_nothing_that_a_newer_one_said(home, target, asked, additions):
    """CLI-CMD-17, LEDGER-08: as with the ledger that was lost."""
    target.additions = additions
    changing(home, "tasks", "tasks", "task_id,patient_id,description,status,requester_id", "update")
    for text in ("call", "mail"):
        tasks(home, "k1", text=text)
        asked("import")
    lose_ledger(home)
    asked("verify", "--adopt")
    tasks(home, "k1", text="call")
    asked("import")
    assert [body["description"] for body in target.of("Task")] == ["mail k1"]


@pytest.mark.parametrize("more", [(), (("k2", "p2", "2.00"),)], ids=["the same file", "a longer one"])
def test_rows_of_a_purged_batch_that_came_once_more_are_what_they_made(home, target, asked, chartferry, more):
    """CLI-CMD-16, CLI-CMD-17, LEDGER-01: they were sent again."""
    target.additions = False
    payments(home, ("k1", "p1", "1.00"))
    chartferry("purge", asked("import")["batches"][0]["batch_id"])
    payments(home, ("k1", "p1", "1.00"), *more, name="payments-b.csv")
    asked("import")
    before = dict(target.stored)
    lose_ledger(home)
    asked("verify", "--adopt")
    asked("import")
    assert target.stored == before
    assert asked("verify")["differences"] == []


def test_rows_that_a_feed_reads_otherwise_by_now_are_what_they_made(home, target, asked):
    """CLI-CMD-17, LEDGER-01: by line, where neither their content nor its hash is what it was."""
    target.additions = False
    changing(home, "payments", "payments", "payment_id,patient_id,amount,paid_on,claim_id", "reject")
    text = "payment_id,patient_id,amount,paid_on,claim_id\nk1,p1,1.00,2026-03-01,c1\nk2,p1,1.00,2026-03-01,c1\n"
    put(home, "payments.csv", text)
    asked("import")
    feed, before = home / "feeds" / "payments.toml", dict(target.stored)
    feed.write_text(feed.read_text().replace('claim_id = "claim_id"\n', ""))
    lose_ledger(home)
    asked("verify", "--adopt")
    asked("import")
    assert target.stored == before


def killed(*_, **__):
    raise KeyboardInterrupt


def test_a_copy_of_the_time_before_a_retry_that_was_killed_sends_nothing_twice(
    home, target, asked, chartferry, monkeypatch
):
    """CLI-CMD-17, LEDGER-01: the copy knows all its keys, and not what came of them since."""
    target.additions, target.faults = False, [REFUSED]
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    asked("import")
    put_back = yesterday(home)
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.pipeline.end", killed)
        chartferry("rejects", "retry")
    before = dict(target.stored)
    assert len(before) == 2
    put_back()
    asked("verify", "--adopt")
    chartferry("rejects", "retry")
    asked("import")
    assert target.stored == before
    assert asked("verify")["differences"] == []


@both
def test_who_was_killed_between_the_record_and_the_ledger_goes_on(
    home, target, asked, chartferry, additions, monkeypatch
):
    """LEDGER-01: the ledger is no older copy, it had only begun to write."""
    target.additions = additions
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.load.forget_sightings", killed)
        patched.setattr("pipelines.pipeline.end", killed)
        chartferry("import")
    with closing(sqlite3.connect(home / "ledger.db")) as db, db:
        db.execute("UPDATE entry SET state = 'sending', resource_id = NULL")
    before = dict(target.stored)
    assert len(before) == 2
    found = asked("import")
    assert (found["exit_code"], found["batches"][0]["message"]) == (0, None)
    assert {name for _, name in records(home).values()} == set(before)
    assert target.stored == before


@pytest.mark.parametrize("command", [("import",), ("doubts", "resolve")], ids=" ".join)
def test_a_task_made_just_before_a_kill_is_the_rows_also_where_it_was_rewritten(
    home, target, asked, chartferry, monkeypatch, command
):
    """LEDGER-05, LEDGER-06: by what is on record; by its content it was not found, and was made again."""
    target.additions = False
    tasks(home, "k1")
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.load.forget_sightings", killed)
        chartferry("import")
    with closing(sqlite3.connect(home / "ledger.db")) as db, db:
        long_ago = "first_attempt_at = '2026-01-01T00:00:00.000000Z', finished_at = NULL"
        db.execute(f"UPDATE entry SET state = 'in_doubt', resource_id = NULL, {long_ago}")
    [task] = target.of("Task")
    task["description"] = "rewritten"
    asked(*command)
    assert target.of("Task") == [task]
    assert records(home) == {"k1": ("adopted", task["id"])}


@both
def test_who_was_killed_after_a_change_was_refused_goes_on(home, target, asked, chartferry, additions, monkeypatch):
    """LEDGER-01, LEDGER-08: the record is what it was before, and the ledger knows."""
    target.additions, target.stored["q1"] = additions, QUESTIONS
    changing(home, "form", "answers", ANSWERS, "supersede")
    put(home, "form-1.csv", ANSWERS + "k1,p1,q1,1,yes\n")
    asked("import")
    before = dict(target.stored)
    target.refuse = lambda body: "maybe" in json.dumps(body)
    put(home, "form-2.csv", ANSWERS + "k1,p1,q1,1,maybe\n")
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.pipeline.end", killed)
        chartferry("import")
    target.refuse = lambda _: False
    found = asked("import")
    assert (found["exit_code"], found["batches"][0]["message"]) == (0, None)
    assert len(target.stored) == len(before) + 1
    assert {state for state, _ in records(home).values()} == {"superseded"}


def test_what_a_later_file_changed_after_a_run_was_killed_is_no_news_to_the_ledger(
    home, target, asked, chartferry, monkeypatch
):
    """LEDGER-01, LEDGER-08: that run knew the record otherwise."""
    target.additions = False
    changing(home, "tasks", "tasks", "task_id,patient_id,description,status,requester_id", "update")
    tasks(home, "k1", "k2")
    asked("import")
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.pipeline.end", killed)
        tasks(home, "k1", text="mail")
        chartferry("import")
    tasks(home, "k1", text="visit")
    [later] = (home / "inbox").iterdir()
    assert asked("import", str(later))["exit_code"] == 0
    found = asked("import")
    assert (found["exit_code"], [batch["message"] for batch in found["batches"]]) == (0, [None])
    assert {body["description"] for body in target.of("Task")} == {"visit k1", "call k2"}


def test_what_was_refused_stays_so_where_the_ledgers_making_was_cut_off(home, target, asked, chartferry, monkeypatch):
    """CLI-CMD-17, LEDGER-07"""
    target.additions, target.faults = False, [REFUSED]
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    asked("import")
    before = dict(target.stored)
    lose_ledger(home)
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.verifying.adopting.end", killed)
        chartferry("verify", "--adopt")
    asked("verify", "--adopt")
    assert asked("import")["totals"] == {}
    assert target.stored == before
    assert asked("rejects", "retry")["totals"]["created"] == 1


def test_what_was_loaded_last_stands_whatever_clocks_say(home, target, asked):
    """CLI-CMD-17, LEDGER-08: generations tell, whatever a clock that was set back says of the runs."""
    target.stored["q1"] = QUESTIONS
    changing(home, "form", "answers", ANSWERS, "supersede")
    put(home, "form-1.csv", ANSWERS + "k1,p1,q1,1,yes\n")
    asked("import")
    put(home, "form-2.csv", ANSWERS + "k1,p1,q1,1,no\n")
    asked("import")
    runs = sorted((home / "batches").glob("*/run-*"), key=lambda run: (run / "manifest.json").stat().st_mtime)
    for run, moment in zip(runs, ("2026-01-02T00:00:00.000000Z", "2026-01-01T00:00:00.000000Z"), strict=True):
        manifest = run / "manifest.json"
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "started_at": moment}))
    before = records(home)
    lose_ledger(home)
    asked("verify", "--adopt")
    assert {name for _, name in records(home).values()} == {name for _, name in before.values()}
    assert asked("import")["totals"] == {}
    assert asked("verify")["differences"] == []


def test_a_resource_on_record_of_one_row_that_another_has_by_its_content_is_nobodys_twice(
    home, target, asked, chartferry, monkeypatch
):
    """LEDGER-05, LEDGER-06: of two equal payments one was made."""
    target.additions, target.faults = False, [Said(401, outcome("unknown"))] * 40
    payments(home, ("k1", "p1", "1.00"), name="payments-1.csv")
    asked("import")
    target.valid_tokens.add("fixed")
    target.faults = ["lost_before"]
    payments(home, ("j1", "p1", "1.00"), name="payments-2.csv")
    asked("import", str(home / "inbox" / "payments-2.csv"))
    target.faults = []
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.ledger.ledger.Ledger.settle", killed)
        chartferry("import")
    asked("doubts", "resolve")
    for _ in range(2):
        asked("import")
    made = [each for _, each in records(home).values() if each]
    assert len(made) == len(set(made)) == len(target.of("PaymentNotice"))


@pytest.mark.parametrize("said", ["{", None, '{"started_at": 7}'])
def test_a_copy_of_before_a_run_that_is_not_told_any_more_is_an_older_one(home, target, asked, chartferry, said):
    """LEDGER-01, STATE-HOME-07"""
    target.additions = False
    target.faults = [None, *[Said(401, outcome("unknown"))] * 40]
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    target.faults, put_back = [], yesterday(home)
    target.valid_tokens.add("fixed")
    asked("import")
    manifest = home / "batches" / batch / "run-2" / "manifest.json"
    manifest.write_text(said) if said else manifest.unlink()
    put_back()
    payments(home, ("k2", "p2", "2.00"), name="payments-b.csv")
    for found in asked("import")["batches"]:
        assert "chartferry verify --adopt" in found["message"]
    asked("verify", "--adopt")
    asked("import")
    assert len(target.of("PaymentNotice")) == 2
    assert asked("verify")["differences"] == []

"""`verify` of records that were superseded, taken back or changed in the chart, also with a lost ledger."""

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import records
from tests.pipelines.verifying.test_verify import named
from tests.support.exports import QUESTIONS, TASKS, feed_file, payments, put, tasks
from tests.support.ledgers import keep_ledger, lose_ledger

ANSWERS = "response_id,patient_id,questionnaire,authored,author,encounter_id,note_id,question,answer_code,answer_text\n"


def test_adoption_takes_the_newest_of_superseded_responses_and_the_old_one_stays_withdrawn(
    home, target, asked, additions
):
    """CLI-CMD-17, LEDGER-08"""
    supersede_one(home, target, asked)
    before = dict(target.stored)
    lose_ledger(home)
    assert asked("verify", "--adopt")["exit_code"] == 0
    assert asked("verify")["differences"] == []
    asked("import")
    assert target.stored == before
    assert asked("import")["totals"] == {}


@pytest.mark.long
def test_a_response_that_a_lost_run_superseded_and_did_not_take_back_is_taken_back_by_the_next_file(
    home, target, asked
):
    """CLI-CMD-17, LEDGER-08: the ledger is of yesterday, and the run was killed."""
    target.additions, kept = False, []
    supersede_one(home, target, asked, before_the_second=lambda: kept.append(keep_ledger(home)))
    target.of("QuestionnaireResponse")[0]["status"] = "completed"
    kept[0]()
    assert asked("verify", "--adopt")["exit_code"] == 0
    put(home, "forms-2.csv", "response_id,patient_id,questionnaire,question,answer_text\nr2,p1,q1,1,same\n")
    asked("import")
    statuses = [body["status"] for body in target.of("QuestionnaireResponse")]
    assert statuses == ["entered-in-error", "completed", "completed"]


@pytest.mark.long
def test_a_key_that_ends_like_a_later_generation_of_another_keeps_its_own_resource(home, target, asked):
    """CLI-CMD-17, LEDGER-01, decision X2: loaded, taken back, loaded again, and the ledger lost."""
    tasks(home, "k1", "k1~2")
    name = asked("import")["batches"][0]["batch_id"]
    asked("undo", name)
    assert asked("import", "--again", name)["totals"]["created"] == 2
    values = [body["identifier"][0]["value"] for body in target.of("Task")]
    assert values == ["k1", "k1~2~1", "k1~2", "k1~2~2"]
    assert asked("verify")["differences"] == []
    lose_ledger(home)
    assert asked("verify", "--adopt")["batches"] == {name: {"adopted": 2, "taken_back": 0, "in_doubt": 0}}
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        rows = ledger.tables()["record"].to_pylist()
    known = {(row["key"], row["generation"], row["resource_id"]) for row in rows}
    third, fourth = (body["id"] for body in target.of("Task")[2:])
    assert known == {("k1", 2, third), ("k1~2", 2, fourth)}
    assert asked("verify")["differences"] == []


def test_rows_that_were_taken_back_before_the_ledger_was_lost_count_with_their_batch(home, target, asked):
    """CLI-CMD-17, CLI-CMD-18: the batch closes, and so does what is published of it."""
    target.stored["q1"] = QUESTIONS
    put(home, "answers.csv", ANSWERS + "r1,p1,q1,,,,,1,,yes\nr2,p1,q1,,,,,1,,no\n")
    name = asked("import")["batches"][0]["batch_id"]
    asked("undo", name)
    lose_ledger(home)
    assert asked("verify", "--adopt")["exit_code"] == 0
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        [batch] = ledger.batches()
        states = {row["state"] for row in ledger.tables()["record"].to_pylist()}
    assert (batch["state"], batch["accepted"], batch["adopted"], batch["rejected"]) == ("finished", 2, 2, 0)
    assert states == {"undone"}


def test_a_superseded_response_that_the_target_would_not_take_back_is_named(home, target, asked):
    """CLI-CMD-17, LEDGER-08: both stand in the chart, until a later load can end that."""
    target.put_faults = ["refused"]
    supersede_one(home, target, asked)
    old = next(iter(target.of("QuestionnaireResponse")))["id"]
    found = asked("verify")
    assert [(each["kind"], each["resource_id"]) for each in found["differences"]] == [("not taken back", old)]


@pytest.mark.alike
@pytest.mark.parametrize(("copies", "kind"), [(0, "not taken back"), (2, "double")], ids=["no identifier", "several"])
def test_superseded_responses_that_an_import_leaves_are_named(home, target, asked, copies, kind):
    """CLI-CMD-17, LEDGER-08: as the import says."""
    target.additions, target.promised = False, ["transaction", "conditional", "identifier"]

    def change():
        old = target.of("QuestionnaireResponse")[0]
        body = target.stored.pop(old["id"]) if copies else old
        target.stored |= {f"copy-{at}": {**body, "id": f"copy-{at}"} for at in range(copies)}
        body["identifier"] = []
        stay.extend([f"copy-{at}" for at in range(copies)] or [old["id"]])

    stay: list[str] = []
    supersede_one(home, target, asked, before_the_second=change)
    found = [(each["kind"], each["resource_id"]) for each in asked("verify")["differences"]]
    assert sorted(found) == [(kind, each) for each in stay]
    assert {target.stored[each]["status"] for each in stay} == {"completed"}


@pytest.mark.alike
@pytest.mark.by_hand
@pytest.mark.parametrize("kind", ["PaymentNotice", "Task"])
def test_verify_names_a_request_that_arrived_after_a_resend_by_hand(home, target, asked, kind):
    """LEDGER-21, CLI-CMD-17: its time lies between the first attempt and the second."""
    target.additions, target.faults = False, ["lost_before"]
    payments(home, ("k1", "p1", "1.00")) if kind == "PaymentNotice" else tasks(home, "k1")
    name = asked("import")["batches"][0]["batch_id"]
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        [record] = ledger.tables()["record"].to_pylist()
    asked("doubts", "resend", f"{name}:2")
    assert asked("import")["totals"]["created"] == 1
    [body] = target.of(kind)
    late = {"authoredOn": record["first_sent_at"]} if kind == "Task" else {}
    double = target.create({each: value for each, value in body.items() if each != "id"} | late)[1].rpartition("/")[2]
    an_hour_later(home)
    assert named(asked("verify")) == [("double", f"{name}:2", double)]


@pytest.mark.long
@pytest.mark.by_hand
def test_a_task_that_arrives_after_it_was_taken_back_and_loaded_again_is_named(home, target, asked):
    """LEDGER-21, CLI-CMD-17"""
    target.additions = False
    tasks(home, "k1")
    name = asked("import")["batches"][0]["batch_id"]
    (first,) = target.of("Task")
    asked("undo", name)
    assert asked("import", "--again", name)["totals"]["created"] == 1
    double = target.create(dict(first))[1].rpartition("/")[2]
    an_hour_later(home)
    assert named(asked("verify")) == [("double", f"{name}:2", double)]


@pytest.mark.long
@pytest.mark.by_hand
def test_a_response_that_arrives_after_it_was_superseded_is_named(home, target, asked):
    """LEDGER-21, CLI-CMD-17: its content is that of the earlier version."""
    target.additions = False
    supersede_one(home, target, asked)
    first = next(iter(target.of("QuestionnaireResponse")))
    assert first["status"] == "entered-in-error"
    double = target.create({**first, "status": "completed"})[1].rpartition("/")[2]
    an_hour_later(home)
    [(kind, _, resource_id)] = named(asked("verify"))
    assert (kind, resource_id) == ("double", double)


def an_hour_later(home):
    """The newest generation of each record was sent an hour after the target made anything."""
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    with closing(Ledger.open(home / "ledger.db")) as ledger, ledger.transaction() as connection:
        connection.execute(update(records).values(first_attempt_at=later))


def supersede_one(home, target, asked, before_the_second=lambda: None):
    """Two files of responses; the second supersedes one of the first. Its totals."""
    target.stored["q1"] = QUESTIONS
    header = "response_id,patient_id,questionnaire,question,answer_text\n"
    feed_file(home, "forms", 'kind = "answers"\nfiles = ["forms*.csv"]\nchanged = "supersede"\n', header)
    for number, said in enumerate(("yes", "no")):
        if number:
            before_the_second()
        put(home, f"forms-{number}.csv", f"{header}r1,p1,q1,1,{said}\nr2,p1,q1,1,same\n")
        totals = asked("import")["totals"]
    return totals


@pytest.mark.long
def test_a_later_generation_that_a_lost_ledger_knew_is_no_double_and_is_adopted(home, target, asked):
    """CLI-CMD-17, CLI-CMD-18: taken back and loaded anew; then another file met the first generation."""
    tasks(home, "t1")
    batch = asked("import")["batches"][0]["batch_id"]
    asked("undo", batch)
    asked("import", "--again", batch)
    [newest] = [body["id"] for body in target.of("Task") if body["status"] == "requested"]
    lose_ledger(home)
    elsewhere = home.parent / "tasks-again.csv"
    tasks(home, "t1")
    elsewhere.write_text((home / "inbox" / "tasks.csv").read_text() + "\n")
    (home / "inbox" / "tasks.csv").unlink()
    assert asked("import", elsewhere)["totals"]["adopted"] == 1
    found = asked("verify")
    assert (found["lost"], named(found)) == ([batch], [("unknown", None, newest)])
    assert asked("verify", "--adopt")["exit_code"] == 0
    found = asked("verify")
    assert (found["exit_code"], found["differences"]) == (0, [])
    assert asked("import", elsewhere)["totals"]["unchanged"] == 1
    assert len(target.of("Task")) == 2


@pytest.mark.long
def test_superseded_and_taken_back_responses_agree(home, target, asked):
    """CLI-CMD-17, LEDGER-08"""
    totals = supersede_one(home, target, asked)
    assert (totals["superseded"], totals["unchanged"]) == (1, 1)
    assert asked("verify")["differences"] == []
    old = next(body for body in target.of("QuestionnaireResponse") if body["status"] == "entered-in-error")
    old["status"] = "completed"
    assert [(kind, resource) for kind, _, resource in named(asked("verify"))] == [("not taken back", old["id"])]


def test_verify_reports_a_task_changed_in_the_chart_and_does_not_fail(home, target, asked):
    tasks(home, "k1")
    asked("import")
    target.of("Task")[0]["description"] = "done by phone"
    found = asked("verify")
    assert (found["exit_code"], [each["kind"] for each in found["differences"]]) == (0, ["changed"])


@pytest.fixture
def restored(home, target, asked):
    """Three tasks that a second file updated, of which the store has two as they were before: batch, old ones by key.

    Of k1 the status alone was updated, of k2 the patient; k3 was, and somebody in the chart has reopened it since;
    the target's clock is behind.
    """
    feed_file(home, "todo", 'kind = "tasks"\nfiles = ["todo*.csv"]\nchanged = "update"\n', TASKS)
    rows = ("k1,p1,call,{},a", "k2,{},write,requested,a", "k3,p1,ask,{},a")
    for number, said in enumerate((("requested", "p1", "requested"), ("completed", "p2", "completed"))):
        before = {body["identifier"][0]["value"]: dict(body) for body in target.of("Task")}
        lines = [row.format(each) for row, each in zip(rows, said, strict=True)]
        put(home, f"todo-{number}.csv", TASKS + "\n".join([*lines, ""]))
        found = asked("import")
    assert found["totals"]["updated"] == 3
    for body in before.values():
        target.stored[body["id"]] = body
    old = {key: body["id"] for key, body in before.items()}
    target.changed_at = dict.fromkeys([old["k1"], old["k2"]], datetime.now(UTC) - timedelta(days=1))
    target.changed_at[old["k3"]] = datetime.now(UTC) - timedelta(seconds=30)
    return found["batches"][0]["batch_id"], old


@pytest.mark.long
def test_an_update_that_a_restored_store_lost_is_named_and_put_in_again(restored, target, asked, chartferry):
    """CLI-CMD-17, CLI-CMD-18: not for something that the chart changed since, which stays."""
    batch, old = restored
    found = asked("verify")
    assert (found["exit_code"], named(found)) == (
        3,
        [("not updated", f"{batch}:2", old["k1"]), ("not updated", f"{batch}:3", old["k2"])],
    )
    assert "Task: look for lost updates done, 3 rows in " in chartferry("verify")[2]
    evidence = asked("evidence")
    assert (evidence["exit_code"], [feed["agrees"] for feed in evidence["feeds"]]) == (3, [False])
    assert asked("import", "--again", batch)["totals"]["updated"] == 2
    assert {
        body["identifier"][0]["value"]: (body["for"]["reference"], body["status"]) for body in target.of("Task")
    } == {
        "k1": ("Patient/p1", "completed"),
        "k2": ("Patient/p2", "requested"),
        "k3": ("Patient/p1", "requested"),
    }
    assert asked("verify")["differences"] == []
    status = json.loads(chartferry("status", batch, "--json")[1])["batches"][0]
    assert (status["state"], status["updated"], status["accepted"]) == ("finished", 3, 3)


@pytest.mark.long
def test_a_task_that_another_patient_has_now_is_no_task_that_was_merely_changed(home, target, asked):
    tasks(home, "k1")
    batch = asked("import")["batches"][0]["batch_id"]
    [task] = target.of("Task")
    task["for"] = {"reference": "Patient/p2"}
    found = asked("verify")
    assert (found["exit_code"], named(found)) == (3, [("differs", f"{batch}:2", task["id"])])

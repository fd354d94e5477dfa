"""Decisions by hand on the command line: doubts, undo, --again, --remap and purge. All are recorded."""

import json
import os
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from unittest.mock import Mock

import duckdb
import pytest

from pipelines.corrections.retention import purge_older
from pipelines.home.user import user_name
from pipelines.importing.current_problems import broken_now
from pipelines.ledger.ledger import Ledger
from pipelines.loading.settling import NOT_BY_ITSELF
from pipelines.runs.lines import SHOWN_NEXT
from tests.support.commands import asked_of_status, totals_close
from tests.support.exports import ANSWERS, QUESTIONS, TASKS, feed_file, payments, put, tasks
from tests.support.fake_target import FakeTarget, serving
from tests.support.ledgers import decisions, read_ledger

ONE = {"resourceType": "PaymentNotice", "request": {"reference": "Patient/p1"}, "amount": {"value": 1.0}}


def test_a_dry_run_says_what_the_import_then_does(home, target, asked):
    """CLI-IMPORT-10: also for records that are known, changed or taken back."""
    tasks(home, "gone")
    [undone] = asked("import")["batches"]
    asked("undo", undone["batch_id"])
    tasks(home, "same", "changed")
    asked("import")
    rows = ["gone,p1,call gone", "same,p1,call same", "changed,p1,another text", "new,p1,call new", "new,p1,call new"]
    put(home, "tasks.csv", TASKS + "".join(f"{row},requested,a\n" for row in rows))
    tried, [batch] = (found := asked("import", "--dry-run"))["totals"], found["batches"]
    done = (found := asked("import"))["totals"]
    totals_close(found)
    names = ("accepted", "rejected", "unchanged", "skipped")
    assert {name: tried[name] for name in names} == {name: done[name] for name in names}
    assert (tried["rejected"], tried["waiting"], done["created"]) == (2, 1, 1)
    assert batch["reasons"] == found["batches"][0]["reasons"] == {"LEDGER-08": 1, "TAKEN-BACK": 1}


# -- doubts


@pytest.fixture
def doubt(home, target, asked):
    """Make a payment in doubt that never arrived at the target, and one that waits behind it. Return the batch."""
    target.additions = False
    target.faults = ["lost_before"]
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"))
    found = asked("import")
    totals_close(found)
    assert (found["exit_code"], found["totals"]["in_doubt"], found["totals"]["waiting"]) == (5, 1, 1)
    return found["batches"][0]["batch_id"]


def test_resolve_looks_up_and_adopts_what_arrived_late(doubt, target, asked, chartferry):
    """CLI-CMD-08"""
    found = asked("doubts", "resolve")
    assert (found["exit_code"], found["left"]) == (5, {f"{doubt}:2": NOT_BY_ITSELF})
    again = chartferry("import")[1]
    assert f"{doubt}: 1 row waits for the next import; rows behind a row in doubt wait until that is settled" in again
    for said in (again, chartferry("status", doubt)[1]):
        assert "in doubt" in said
        assert "chartferry doubts resolve looks again, and says what to do" in said
    target.create({"resourceType": "PaymentNotice", "request": {"reference": "Patient/p1"}, "amount": {"value": 1.0}})
    late = next(reversed(target.stored))
    code, _, err = chartferry("doubts", "resolve", "--batch", "another")
    assert (code, "another: no such batch" in err) == (4, True)
    found = asked("doubts", "resolve")
    assert (found["exit_code"], found["adopted"]) == (0, {f"{doubt}:2": f"PaymentNotice/{late}"})
    found = asked("import")
    assert (found["exit_code"], found["totals"]["created"]) == (0, 1)
    assert len(target.of("PaymentNotice")) == 2


@pytest.mark.long
@pytest.mark.parametrize("arrives", [False, True])
def test_a_doubt_of_a_retry_is_open_for_the_next_import(home, target, asked, chartferry, arrives):
    """CLI-CMD-06, LEDGER-10: the batch had finished. Without a word of the import the doubt would stay unseen."""
    target.additions = False
    target.refuse = lambda body: body["amount"]["value"] == 2.0
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"))
    assert asked("import")["exit_code"] == 3
    target.refuse, target.faults = lambda body: False, ["lost_before"]
    found = asked("rejects", "retry")
    assert (found["exit_code"], found["totals"]["in_doubt"]) == (5, 1)
    (batch,) = json.loads(chartferry("status", "--json")[1])["batches"]
    assert (batch["state"], batch["created"], batch["in_doubt"]) == ("running", 1, 1)
    if arrives:
        target.create(
            {"resourceType": "PaymentNotice", "request": {"reference": "Patient/p1"}, "amount": {"value": 2.0}}
        )
    found = asked("import")
    assert (found["exit_code"], found["totals"]["in_doubt"]) == ((0, 0) if arrives else (5, 1))
    (batch,) = json.loads(chartferry("status", "--json")[1])["batches"]
    left = tuple(batch[name] for name in ("state", "created", "adopted", "in_doubt", "open_rejects"))
    assert left == (("finished", 1, 1, 0, 0) if arrives else ("running", 1, 0, 1, 1))
    assert len(target.of("PaymentNotice")) == (2 if arrives else 1)


def test_accept_settles_a_doubt_as_the_resource_that_a_person_names(doubt, home, target, chartferry, asked):
    """CLI-CMD-09, CLI-CMD-19"""
    body = {"resourceType": "PaymentNotice", "request": {"reference": "Patient/p1"}, "amount": {"value": 9.0}}
    other, right = (target.create({**body, "amount": {"value": value}})[1].rpartition("/")[2] for value in (9.0, 1.0))
    for name, resource, said in (
        (f"{doubt}:7", right, "no such row in doubt"),
        (f"{doubt}:2", "none", "the target has no PaymentNotice/none"),
        (f"{doubt}:2", "no\nid", "is no id of a resource"),
        (f"{doubt}:2", other, "has other content"),
    ):
        code, _, err = chartferry("doubts", "accept", name, "--resource", resource)
        assert code == 4
        assert said in err
        assert len(err.splitlines()) == 1
    assert decisions(home) == []
    accepted = asked("doubts", "accept", f"{doubt}:2", "--resource", f"PaymentNotice/{right}")
    assert (accepted["exit_code"], accepted["line"]) == (0, f"{doubt}:2: PaymentNotice/{right}; {SHOWN_NEXT}")
    assert decisions(home) == [("doubts accept", f"{doubt}:2", f"PaymentNotice/{right}")]
    assert asked("import")["totals"]["created"] == 1


@pytest.mark.parametrize("how", ["the target went away", "doubts resolve", "doubts accept"])
def test_an_import_takes_back_the_old_response_once_the_new_one_is_there(home, target, asked, chartferry, how):
    """LEDGER-01, LEDGER-08: until then the batch is not finished."""
    target.additions = False
    target.stored["q1"] = QUESTIONS
    feed_file(home, "answers", 'kind = "answers"\nfiles = ["answers*.csv"]\nchanged = "supersede"\n', ANSWERS)
    put(home, "answers-1.csv", ANSWERS + "r1,p1,q1,1,first\n")
    asked("import")
    put(home, "answers-2.csv", ANSWERS + "r1,p1,q1,1,second\n")
    if how == "the target went away":
        target.put_faults = ["lost_before"] * 50
        assert asked("import")["exit_code"] == 6
        target.put_faults = []
    else:
        target.faults = ["lost_before"]
        [batch] = asked("import")["batches"]
        target.create(
            target.of("QuestionnaireResponse")[0] | {"item": [{"linkId": "1", "answer": [{"valueString": "second"}]}]}
        )
        *_, late = target.of("QuestionnaireResponse")
        row = (f"{batch['batch_id']}:2", "--resource", late["id"])
        assert asked(*how.split(), *(row if how == "doubts accept" else ()))["exit_code"] == 0
    assert [body["status"] for body in target.of("QuestionnaireResponse")] == ["completed"] * 2
    assert asked("import")["exit_code"] == 0
    assert [body["status"] for body in target.of("QuestionnaireResponse")] == ["entered-in-error", "completed"]
    assert [batch["state"] for batch in asked_of_status(chartferry)] == ["finished"] * 2


def test_accept_takes_no_resource_that_is_another_rows(home, target, asked, chartferry):
    """CLI-CMD-09: two equal payments of a patient are two payments, and one of them may never have arrived."""
    target.additions, target.faults = False, ["", "lost_before"]
    payments(home, ("k1", "p1", "1.00"))
    asked("import")
    payments(home, ("k2", "p1", "1.00"), name="payments-2.csv")
    [second] = asked("import")["batches"]
    assert (second["state"], second["waiting"]) == ("running", 0)
    [first] = target.of("PaymentNotice")
    code, _, err = chartferry("doubts", "accept", f"{second['batch_id']}:2", "--resource", first["id"])
    assert (code, "belongs to another row already" in err, decisions(home)) == (4, True, [])


def test_accept_takes_no_resource_with_the_identifier_of_another_row(home, target, asked, chartferry):
    """CLI-CMD-09: another home of this source has sent it, and the row in doubt may never have arrived."""
    target.additions, target.promised = False, ["transaction", "conditional", "identifier"]
    target.faults = ["lost_before"] * 30
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    for key, code in (("k7", 4), ("k1", 0)):
        named = [{"system": "urn:chartferry:default:PaymentNotice", "value": key}]
        resource = target.create({**ONE, "identifier": named})[1].rpartition("/")[2]
        said = chartferry("doubts", "accept", f"{batch}:2", "--resource", resource)
        assert (said[0], "belongs to another row already" in said[2]) == (code, code == 4)
    [batch] = json.loads(chartferry("status", "--json")[1])["batches"]
    assert (batch["state"], batch["adopted"], len(decisions(home))) == ("finished", 1, 1)


@pytest.mark.then_published
def test_resend_lets_the_next_import_send_it(doubt, home, target, asked):
    """CLI-CMD-09, CLI-CMD-19"""
    asked("doubts", "resend", f"{doubt}:2")
    assert target.writes == 1
    found = asked("import")
    totals_close(found)
    assert (found["exit_code"], found["totals"]["created"]) == (0, 2)
    assert decisions(home) == [("doubts resend", f"{doubt}:2", None)]
    assert [body["amount"]["value"] for body in target.of("PaymentNotice")] == [1.0, 2.0]


def test_resend_refuses_while_something_equal_is_there_that_was_not_before(doubt, target, asked, chartferry):
    """LEDGER-21: the first request may have arrived late."""
    late = target.create(ONE)[1].rpartition("/")[2]
    code, out, err = chartferry("doubts", "resend", f"{doubt}:2")
    assert (code, out) == (4, "")
    assert f"{doubt}:2: not sent again: PaymentNotice/{late} has its content, and was not there before" in err
    asked("import")
    assert [body["amount"]["value"] for body in target.of("PaymentNotice")] == [1.0, 2.0]


def test_a_request_that_arrives_after_it_was_sent_again_by_hand_is_the_rows(doubt, target, asked):
    """LEDGER-21, LEDGER-06: "not there before" means before the first attempt of the key, whatever was noted since."""
    asked("doubts", "resend", f"{doubt}:2")
    target.create(ONE)
    target.faults = ["lost_before"]
    totals = asked("import")["totals"]
    assert (totals["adopted"], totals["created"]) == (1, 1)
    assert [body["amount"]["value"] for body in target.of("PaymentNotice")] == [1.0, 2.0]


def test_resend_is_allowed_once_a_person_names_the_equal_resources_as_others(doubt, home, target, asked, chartferry):
    """LEDGER-21: two equal resources came after the first attempt."""
    others = sorted(target.create(ONE)[1].rpartition("/")[2] for _ in range(2))
    code, _, err = chartferry("doubts", "resend", f"{doubt}:2")
    assert code == 4
    found = f"PaymentNotice/{others[0]}, PaymentNotice/{others[1]}"
    assert f"2 at the target and 1 in doubt have the same content: {found}" in err
    named = [part for other in others for part in ("--apart-from", f"PaymentNotice/{other}")]
    assert asked("doubts", "resend", f"{doubt}:2", *named)["exit_code"] == 0
    assert asked("import")["totals"]["created"] == 2
    assert decisions(home) == [("doubts resend", f"{doubt}:2", ", ".join(f"apart from {other}" for other in others))]


def test_no_row_is_settled_by_hand_without_its_content(doubt, home, target, chartferry):
    """CLI-CMD-09: as where another machine has its batch."""
    resource = target.create(ONE)[1].rpartition("/")[2]
    for path in (home / "batches" / doubt).glob("run-*/accepted.parquet"):
        path.unlink()
    for command in (["accept", f"{doubt}:2", "--resource", resource], ["resend", f"{doubt}:2"]):
        code, _, err = chartferry("doubts", *command)
        assert (code, "its source row is no longer in this home" in err) == (4, True), err


@pytest.mark.parametrize("later", [["identifier"], ["transaction", "conditional", "identifier"]])
def test_resend_looks_up_a_row_that_was_sent_without_a_condition(later, home, target, asked):
    """LEDGER-21: the next import does not settle it by itself, also where the target has become another make."""
    target.additions, target.faults = False, ["lost_before"] * 30
    target.promised = later if later == ["identifier"] else []
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    target.promised, target.faults = later, []
    assert asked("doubts", "resend", f"{batch}:2")["exit_code"] == 0
    assert asked("import")["totals"]["created"] == 1


def test_resend_refuses_where_the_target_cannot_be_asked(doubt, target, chartferry):
    """LEDGER-21"""
    target.found = Mock(side_effect=ValueError)
    code, _, err = chartferry("doubts", "resend", f"{doubt}:2")
    assert code == 4
    assert f"{doubt}:2: not sent again: the target could not be asked" in err


def test_remap_applies_the_policy_to_rows_that_the_feed_changed(home, target, asked):
    """CLI-CMD-18: without --remap the file is unchanged, and the summary says that the feed reads it differently."""
    feed = 'kind = "tasks"\nfiles = ["list*.csv"]\nchanged = "update"\n[columns]\n'
    columns = 'task_id = "id"\ndescription = "what"\nstatus = "state"\nrequester_id = "by"\n'
    (home / "feeds").mkdir()
    (home / "feeds" / "list.toml").write_text(feed + columns)
    put(home, "list.csv", "id,what,more,state,by\nk1,call,ring,requested,a\n")
    assert asked("import")["totals"]["created"] == 1
    (home / "feeds" / "list.toml").write_text(feed + columns.replace('"what"', '"more"'))
    batch = next((home / "batches").glob("list-*"))
    again = asked("import", str(next((batch / "source").iterdir())))
    assert again["totals"]["unchanged"] == 1
    assert again["batches"][0]["message"] == (
        f"{batch.name}: 1 row is read differently since the feed file changed, and stays as it was loaded;"
        ' chartferry import --remap applies the feed\'s policy to it (changed = "update")'
    )
    found = asked("import", "--remap")
    assert found["batches"][0]["message"] is None
    assert found["totals"]["updated"] == 1
    assert [body["description"] for body in target.of("Task")] == ["ring"]
    assert asked("import", "--remap")["batches"] == []
    assert decisions(home) == [("import --remap", batch.name, None)]


@pytest.mark.long
@pytest.mark.publishes("import_row")
def test_remap_applies_the_policy_to_rows_that_the_feed_skipped(home, target, asked):
    """CLI-CMD-18: in the order of their files. Their outcomes are those of remap, where a later file has the record."""
    feed = 'kind = "tasks"\nfiles = ["list*.csv"]\n[columns]\n'
    columns = 'task_id = "id"\ndescription = "what"\nstatus = "state"\nrequester_id = "by"\n'
    (home / "feeds").mkdir()
    (home / "feeds" / "list.toml").write_text(f'changed = "skip"\n{feed}{columns}')
    for number in (1, 2, 3):
        put(home, f"list-{number}.csv", f"id,what,state,by\nk1,call {number},requested,a\n")
        asked("import")
    assert [body["description"] for body in target.of("Task")] == ["call 1"]
    (home / "feeds" / "list.toml").write_text(f'changed = "update"\n{feed}{columns}')
    assert asked("import", "--remap")["totals"]["updated"] == 2
    assert [body["description"] for body in target.of("Task")] == ["call 3"]
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as tables:
        outcomes = tables.sql("SELECT state FROM import_row ORDER BY file_name").fetchall()
    assert outcomes == [("created",), ("updated",), ("updated",)]


@pytest.fixture
def work_list(home):
    """Write the feed file of a list of tasks. The descriptions are in a given column."""

    def write(what, changed="update"):
        feed = f'kind = "tasks"\nfiles = ["list*.csv"]\nchanged = "{changed}"\n[columns]\n'
        columns = f'task_id = "id"\ndescription = "{what}"\nstatus = "state"\nrequester_id = "by"\n'
        (home / "feeds").mkdir(exist_ok=True)
        (home / "feeds" / "list.toml").write_text(feed + columns)

    return write


def test_a_retry_applies_the_policy_to_rows_that_remap_rejected(home, target, asked, work_list):
    """CLI-CMD-18: the record as it was loaded before does not close the reject."""
    work_list("what", "reject")
    put(home, "list.csv", "id,what,more,state,by\nk1,call,ring,requested,a\n")
    asked("import")
    work_list("more", "reject")
    assert asked("import", "--remap")["totals"]["rejected"] == 1
    assert asked("rejects", "retry")["totals"]["rejected"] == 1
    work_list("more", "update")
    assert asked("rejects", "retry")["totals"]["updated"] == 1
    assert [each["description"] for each in target.of("Task")] == ["ring"]


def test_remap_reads_a_failed_file_of_which_rows_were_sent(home, target, asked, chartferry, monkeypatch, work_list):
    """CLI-CMD-18: it failed because of a mistake in the feed file. A failed file without sent rows is not read."""
    work_list("what")
    put(home, "list.csv", "id,what,more,state,by\nk1,call,ring,requested,a\n")
    with monkeypatch.context() as patch:
        patch.setattr("pipelines.runs.batch.end", Mock(side_effect=KeyboardInterrupt))
        chartferry("import")
    [batch] = (home / "batches").glob("list-*")
    work_list("wanting")
    put(home, "list-2.csv", "id,what,more,state,by\nk2,call,ring,requested,a\n")
    assert [each["state"] for each in asked("import")["batches"]] == ["failed", "failed"]
    work_list("more")
    found = asked("import", "--remap")
    assert [(each["batch_id"], each["state"]) for each in found["batches"]] == [(batch.name, "finished")]
    assert (found["totals"]["updated"], found["totals"]["created"]) == (1, 0)
    assert [each["description"] for each in target.of("Task")] == ["ring"]
    assert asked("import", "--remap")["batches"] == []
    (shown,) = [each for each in json.loads(chartferry("status", "--json")[1])["batches"] if each["created"]]
    assert (shown["batch_id"], shown["state"], shown["created"]) == (batch.name, "finished", 1)


@pytest.mark.long
@pytest.mark.parametrize("comes_again", [False, True], ids=["from its batch", "by its path"])
def test_a_stopped_file_that_remap_reads_again_has_come_again_only_by_its_path(
    home, target, asked, chartferry, monkeypatch, comes_again
):
    """CLI-CMD-18, REPORT-24: a later file has its record under the key that today's feed makes."""

    def list_feed(key, of_sums):
        columns = f'task_id = "{key}"\ndescription = "what"\nstatus = "state"\nrequester_id = "by"\n'
        (home / "feeds").mkdir(exist_ok=True)
        feed = f'kind = "tasks"\nfiles = ["list*.csv"]\n{of_sums}\n[columns]\n{columns}'
        (home / "feeds" / "list.toml").write_text(feed)

    def broken():
        with closing(Ledger.open(home / "ledger.db")) as ledger:
            return [batch for each in broken_now(ledger, home, ledger.clock()).values() for batch in each.failed]

    rows = "id,no,what,state,by\nk1,1,call,requested,a\nsum,9,,,\n"
    list_feed("id", '[skip]\nid = "sum"')
    put(home, "list-1.csv", rows)
    with monkeypatch.context() as patch:
        patch.setattr("pipelines.runs.batch.end", Mock(side_effect=KeyboardInterrupt))
        chartferry("import")
    list_feed("no", '[trailer]\nwhen = { id = "sum" }\nrows = "no"')
    [stopped] = asked("import")["batches"]
    assert (stopped["state"], broken()) == ("stopped", [stopped["batch_id"]])
    put(home, "list-2.csv", "id,no,what,state,by\nk1,1,ring,requested,a\nsum,1,,,\n")
    assert asked("import")["totals"]["created"] == 1
    assert broken() == []
    put(home, "list-1.csv", rows)
    again = [home / "inbox" / "list-1.csv"] if comes_again else []
    assert [each["state"] for each in asked("import", "--remap", *again)["batches"]] == ["stopped"]
    assert broken() == ([stopped["batch_id"]] if comes_again else [])
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        [batch] = [each for each in ledger.batches() if each["batch_id"] == stopped["batch_id"]]
    assert (batch["state"], batch["created"]) == ("stopped", 1)
    put(home, "list-3.csv", "id,no,what,state,by\nk1,1,write,requested,a\nsum,1,,,\n")
    asked("import")
    [copy] = (home / "batches" / stopped["batch_id"] / "source").iterdir()
    os.utime(copy, (time.time() + 60, time.time() + 60))  # as in a home that was copied without times
    assert broken() == []


@pytest.mark.parametrize("additions", [True, False], ids=["with additions", "bare"])
def test_undo_takes_back_the_resources_of_a_batch_that_remap_has_updated(home, target, asked, work_list, additions):
    """CLI-CMD-10, CLI-CMD-18: the batch has made them. Resources of another file stay."""
    target.additions = additions
    work_list("what")
    put(home, "list-1.csv", "id,what,more,state,by\nk1,call,ring,requested,a\nk2,write,mail,requested,a\n")
    first = asked("import")["batches"][0]["batch_id"]
    put(home, "list-2.csv", "id,what,more,state,by\nk2,print,send,requested,a\n")
    second = asked("import")["batches"][0]["batch_id"]
    work_list("more")
    assert asked("import", "--remap")["totals"]["updated"] == 2
    assert list(asked("undo", second)["left"]) == [f"{second}:2"]
    assert list(asked("undo", first, "--dry-run")["taken_back"]) == [f"{first}:2"]
    assert list(asked("undo", first)["taken_back"]) == [f"{first}:2"]
    shown = [(body["status"], body["description"]) for body in target.of("Task")]
    assert sorted(shown) == [("cancelled", "ring"), ("requested", "send")]
    assert asked("verify")["differences"] == []
    assert asked("import", "--again", first)["totals"]["created"] == 1
    assert asked("verify")["differences"] == []


@pytest.mark.long
def test_remap_reads_a_file_whose_rows_were_skipped_before_it_failed(home, target, asked, work_list):
    """CLI-CMD-18: the failed run recorded nothing about its rows."""
    work_list("what", "skip")
    for number in (1, 2):
        rows = f"id,what,state,by\nk1,call {number},requested,a\n"
        put(home, f"list-{number}.csv", rows)
        asked("import")
    work_list("wanting", "update")
    put(home, "list-2.csv", rows)
    assert asked("import")["batches"][0]["state"] == "failed"
    work_list("what", "update")
    assert asked("import", "--remap")["totals"]["updated"] == 1
    assert [body["description"] for body in target.of("Task")] == ["call 2"]
    assert asked("import", "--remap")["batches"] == []


@pytest.mark.alike
@pytest.mark.parametrize("how", ["import", "retry"])
def test_a_row_that_remap_set_aside_stays_a_reject_until_somebody_decides(home, target, asked, how):
    """CLI-CMD-18, LEDGER-08: the target has the content of the former feed file, not that of the reject."""
    feed = (
        'kind = "payments"\nfiles = ["till*.csv"]\n[columns]\npayment_id = "id"\npatient_id = "who"\npaid_on = "on"\n'
    )
    (home / "feeds").mkdir()
    file, rows = home / "feeds" / "till.toml", "id,who,much,on\nk1,p1,10.00,2026-01-01\n"

    def again():
        if how == "import":
            put(home, "till.csv", rows)
            return asked("import")
        return asked("rejects", "retry")

    file.write_text(f'{feed}amount = "much"\n')
    put(home, "till.csv", rows)
    assert asked("import")["totals"]["created"] == 1
    file.write_text(f'{feed}amount = {{ column = "much", scale = 0.1 }}\n')
    assert asked("import", "--remap")["totals"]["rejected"] == 1
    for _ in range(2):
        found = again()
        assert (found["exit_code"], found["totals"]["rejected"], found["batches"][0]["message"]) == (3, 1, None)
    with read_ledger(home) as ledger:
        reject = ledger.execute("SELECT state, attempts, message FROM reject JOIN reject_reason USING (reject_id)")
        [(state, attempts, message)] = reject.fetchall()
    assert (state, attempts) == ("open", 3)
    assert "correct the feed file and retry the reject, or discard" in message
    file.write_text(f'{feed}amount = "much"\n')
    assert again()["totals"]["unchanged"] == 1
    with read_ledger(home) as ledger:
        assert ledger.execute("SELECT state FROM reject").fetchall() == [("closed",)]
    file.write_text(f'{feed}amount = {{ column = "much", scale = 0.01 }}\n')
    assert asked("import", "--remap")["totals"]["rejected"] == 1
    with read_ledger(home) as ledger:
        assert ledger.execute("SELECT state, closed_by_batch FROM reject").fetchall() == [("open", None)]
    assert [body["amount"]["value"] for body in target.of("PaymentNotice")] == [10.0]


def test_every_decision_by_hand_is_on_record_with_its_reason(home, target, asked, chartferry):
    """CLI-CMD-19: and `status` shows it with its batch."""
    tasks(home, "k1")
    payments(home, ("k1", "p1", "x"), ("k2", "p1", "1.00"))
    batches = {each["feed"]: each["batch_id"] for each in asked("import")["batches"]}
    why = ("--why", "asked by the practice")
    asked("undo", batches["tasks"], *why)
    asked("import", "--again", batches["tasks"], *why)
    asked("rejects", "retry", *why)
    chartferry("rejects", "discard", "--why", "asked by the practice", *(open_rejects(chartferry, batches["payments"])))
    chartferry("purge", batches["payments"], *why)
    made = [("undo", "tasks"), ("import --again", "tasks"), ("rejects retry", "payments"), ("purge", "payments")]
    found = [each for each in decisions(home) if each[0] != "rejects discard"]
    assert found == [(command, batches[feed], "asked by the practice") for command, feed in made]
    assert chartferry("import", *why)[0] == 2
    shown = chartferry("status", batches["tasks"])[1]
    assert f"{user_name()}: undo {batches['tasks']}: asked by the practice" in shown


def open_rejects(chartferry, batch):
    found = json.loads(chartferry("status", batch, "--json")[1])
    return [each["reject_id"] for each in found["batches"][0]["rejects"]]


# -- purge


def test_purge_removes_source_rows_and_keeps_ledger_and_counts(home, chartferry, asked):
    """CLI-CMD-16, CLI-CMD-19"""
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    before = chartferry("status", batch)[1]
    assert chartferry("purge", batch) == (0, f"{batch}: its source rows are removed\n", "")
    left = sorted(path.name for path in (home / "batches" / batch).rglob("*") if path.is_file())
    assert left == ["manifest.json", "sha256"]
    after = chartferry("status", batch)[1].splitlines()
    assert [line for line in after if not line.startswith("decision:")] == before.splitlines()
    assert decisions(home) == [("purge", batch, None)]
    assert asked("import")["exit_code"] == 0
    assert chartferry("purge", "none")[0] == 4


@pytest.mark.parametrize("left", ["source/*", "run-1/accepted.parquet", "run-1/rejects.parquet"])
def test_a_purge_that_was_killed_is_ended_by_the_next_one(home, chartferry, asked, monkeypatch, left):
    """CLI-CMD-16: at whichever file it was killed; purges by hand and by age."""
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    folder = home / "batches" / batch
    [kept] = folder.glob(left)
    rows = kept.read_bytes()
    for again in (("purge", batch), ("import",)):
        chartferry("purge", batch)
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(rows)
        monkeypatch.setenv("CHARTFERRY_RETENTION_DAYS", "0" if again == ("import",) else "")
        assert "its source rows are removed" in "".join(map(str, chartferry(*again)))
        assert not kept.exists()


def test_purge_refuses_a_batch_that_is_not_finished_or_has_open_rejects(home, target, chartferry, asked, doubt):
    """CLI-CMD-16"""
    code, _, err = chartferry("purge", doubt)
    assert code == 4
    assert "not finished" in err
    target.additions = True
    payments(home, ("k9", "p1", "abc"))
    batch = next(b["batch_id"] for b in asked("import")["batches"] if b["batch_id"] != doubt)
    code, _, err = chartferry("purge", batch)
    assert code == 4
    assert "1 of its rejects is open" in err


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(("is_refused", "said"), [(False, "not finished"), (True, "1 of its rejects is open")])
def test_purge_refuses_rows_that_another_target_still_needs(
    at, is_refused, said, home, target, asked, chartferry, monkeypatch
):
    """CLI-CMD-16"""
    with serving(FakeTarget(additions=False)) as other:
        target.additions = False
        other.valid_tokens.add("fixed")
        troubled = (target, other)[at]
        troubled.refuse, troubled.faults = (lambda _: is_refused), [] if is_refused else ["lost_before"]
        for each in (target, other):
            monkeypatch.setenv("FHIR_BASE_URL", each.url)
            payments(home, ("k1", "p1", "1.00"))
            batch = asked("import")["batches"][0]["batch_id"]
        code, _, err = chartferry("purge", batch)
    assert (code, said in err) == (4, True), err


def test_purge_refuses_a_file_whose_correction_was_wrong_too(home, chartferry, asked, monkeypatch):
    """CLI-CMD-16, CLI-CMD-04: only the batch with the newest row of the reject is needed, not the first one."""
    payments(home, ("k1", "p1", "wrong"))
    first = asked("import")["batches"][0]["batch_id"]
    [file] = json.loads(chartferry("rejects", "export", "--json")[1])["files"]
    put(home, "payments-again.csv", Path(file["file"]).read_text().replace(",wrong,", ",xyz,"))
    second = asked("import")["batches"][0]["batch_id"]
    code, _, err = chartferry("purge", second)
    assert (code, err) == (
        4,
        f"chartferry: {second}: 1 of its rejects is open: export and correct, or discard it first\n",
    )
    assert chartferry("purge", first)[0] == 0
    assert "xyz" in Path(json.loads(chartferry("rejects", "export", "--json")[1])["files"][0]["file"]).read_text()
    monkeypatch.setenv("CHARTFERRY_RETENTION_DAYS", "0")
    _, _, err = chartferry("import")
    assert f"older than 0 days, and kept: {second}: 1 of its rejects is open" in err


def test_an_import_names_the_first_of_many_files_that_are_kept(home, chartferry, monkeypatch):
    """Each open reject keeps its file, and a clinic may leave some for months."""
    for number in range(7):
        put(home, f"payments-{number}.csv", f"payment_id,patient_id,amount,paid_on\nk{number},p1,x,2026-03-01\n")
    monkeypatch.setenv("CHARTFERRY_RETENTION_DAYS", "0")
    _, _, err = chartferry("import")
    kept = [line for line in err.splitlines() if "and kept" in line]
    assert (len(kept), kept[-1]) == (6, "older than 0 days, and kept: 2 more files; see chartferry status")


def test_old_batches_are_purged_when_a_retention_is_set(home, asked, monkeypatch):
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    monkeypatch.setenv("CHARTFERRY_RETENTION_DAYS", "1")
    asked("import")
    assert (home / "batches" / batch / "source").exists()
    monkeypatch.setenv("CHARTFERRY_RETENTION_DAYS", "0")
    (home / "rehearsals").mkdir()
    (home / "rehearsals" / "old.json").write_text("{}")
    asked("import")
    assert not (home / "batches" / batch / "source").exists()
    assert not list((home / "rehearsals").iterdir())


@pytest.mark.parametrize("elsewhere", [True, False])
def test_source_rows_are_kept_while_a_batch_is_young_at_one_of_its_targets(elsewhere, home, target, asked, monkeypatch):
    """CLI-CMD-16: all targets share the rows, so that the purge is recorded for each. Its last run counts."""
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    with serving(FakeTarget(additions=False)) as other, closing(Ledger.open(home / "ledger.db")) as ledger:
        first = ledger.clock()
        other.valid_tokens.add("fixed")
        monkeypatch.setenv("FHIR_BASE_URL", other.url if elsewhere else target.url)
        payments(home, ("k1", "p1", "1.00"))
        asked("import")
        rows = ledger.batches()
        assert [row["batch_id"] for row in rows] == [batch] * (1 + elsewhere)
        now = ledger.clock()
        between = (now - first) / timedelta(days=1)
        for days, done in ((between, {}), (0.0, {batch: None})):
            assert purge_older(home, ledger, rows[0]["target"], days, now) == done
        assert {row["target"] for row in ledger.decisions()} == {row["target"] for row in rows}
    assert not (home / "batches" / batch / "source").exists()


def test_a_reason_in_another_encoding_is_kept_as_far_as_it_can_be_read(home, target, asked):
    """A terminal that is set to Latin-1 sends bytes that are not UTF-8."""
    tasks(home, "t1")
    batch = asked("import")["batches"][0]["batch_id"]
    assert asked("undo", batch, "--why", "f\udcfcr Ann")["exit_code"] == 0
    assert {why for _, _, why in decisions(home)} == {"f?r Ann"}

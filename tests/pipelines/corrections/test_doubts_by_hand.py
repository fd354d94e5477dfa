"""Rows in doubt that a person has looked up, settles or sends again."""

import json
from unittest.mock import Mock

import pytest

from pipelines.loading.settling import NOT_BY_ITSELF
from pipelines.runs.lines import SHOWN_NEXT
from tests.support.commands import asked_of_status, totals_close
from tests.support.exports import ANSWERS, QUESTIONS, feed_file, payments, put
from tests.support.ledgers import decisions

ONE = {"resourceType": "PaymentNotice", "request": {"reference": "Patient/p1"}, "amount": {"value": 1.0}}


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

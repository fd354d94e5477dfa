"""`verify` where the target can be asked: it reads what the ledger knows and what may be ours, and finds as much."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.exports import payments, tasks

SAYS = ["transaction", "conditional", "identifier", "dated"]
YEARS = timedelta(days=800)


@pytest.fixture
def theirs(target):
    """A target of another make, with 300 payments and 300 tasks of years ago that no import made."""
    target.additions, target.promised = False, SAYS
    for number in range(300):
        for kind, subject in (("PaymentNotice", "request"), ("Task", "for")):
            body = {"resourceType": kind, subject: {"reference": f"Patient/q{number}"}, "status": "active"}
            target.create({**body, "amount": {"value": 9, "currency": "USD"}, "description": "call"})
    target.made = dict.fromkeys(target.stored, datetime.now(UTC) - YEARS)
    return target


@pytest.fixture
def imported(theirs, home, asked):
    """Three payments and two tasks at that target."""
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "1.00"), ("k3", "p2", "2.50"))
    tasks(home, "t1", "t2")
    asked("import")
    theirs.searches.clear()


def ours(target, kind):
    """Return the resources of the import, in the order of its rows."""
    made = (body for body in target.of(kind) if "identifier" in body)
    return sorted(made, key=lambda body: body["identifier"][0]["value"])


def test_verify_does_not_read_resources_that_others_made_before(imported, theirs, asked):
    """CLI-CMD-17"""
    found = asked("verify")
    assert (found["exit_code"], found["differences"]) == (0, [])
    assert (found["rows"], found["others"]) == ({"PaymentNotice": 3, "Task": 2}, {"PaymentNotice": 0, "Task": 0})
    assert (found["ledger_cents"], found["target_cents"]) == (450, 450)
    assert found["whole"] == {"PaymentNotice": False, "Task": False}
    of_payments, of_tasks = (s for s in theirs.searches if s["type"] != ["Questionnaire"] and "_id" not in s)
    assert of_payments["_lastUpdated"][0].startswith("ge")
    assert of_tasks["identifier"] == ["urn:chartferry:default:Task|"]


def test_verify_reads_the_whole_target_if_asked_to(imported, theirs, asked, chartferry):
    """CLI-CMD-17"""
    found = asked("verify", "--all")
    assert (found["exit_code"], found["others"]) == (0, {"PaymentNotice": 300, "Task": 300})
    assert found["whole"] == {"PaymentNotice": True, "Task": True}
    assert "Task: 2 rows of the ledger are there, 300 others are not in it" in chartferry("verify", "--all")[1]
    assert "Task: 2 rows of the ledger are there, 0 others of those read are not in it" in chartferry("verify")[1]


@pytest.mark.alike
@pytest.mark.parametrize("arguments", [(), ("--all",)], ids=["asked", "whole"])
def test_each_difference_is_found_whichever_way_the_target_is_read(arguments, imported, theirs, asked):
    """CLI-CMD-17"""
    first, second, third = ours(theirs, "PaymentNotice")
    task, other = ours(theirs, "Task")
    del theirs.stored[first["id"]], theirs.stored[task["id"]]
    second["amount"] = {"value": 9.99, "currency": "USD"}
    other["description"] = "changed in the chart"
    theirs.create(dict(third))
    double = theirs.create(dict(other))[1].rpartition("/")[2]
    stranger = theirs.create({**third, "identifier": [{"system": third["identifier"][0]["system"], "value": "x"}]})
    found = asked("verify", *arguments)
    assert [(each["kind"], each["row"] and each["row"].rpartition(":")[2]) for each in found["differences"]] == [
        ("gone", "2"),
        ("differs", "3"),
        ("double", "4"),
        ("unknown", None),
        ("gone", "2"),
        ("changed", "3"),
        ("double", "3"),
    ]
    assert {double, stranger[1].rpartition("/")[2]} <= {each["resource_id"] for each in found["differences"]}


@pytest.mark.alike
@pytest.mark.parametrize("arguments", [(), ("--all",)], ids=["asked", "whole"])
def test_a_task_of_others_that_merely_looks_equal_is_no_double_and_a_payment_is_to_be_explained(
    arguments, imported, theirs, asked
):
    """CLI-CMD-17"""
    for kind in ("Task", "PaymentNotice"):
        body = ours(theirs, kind)[0]
        theirs.create({name: part for name, part in body.items() if name not in ("id", "identifier")})
    found = asked("verify", *arguments)
    assert [(each["kind"], each["resource_type"]) for each in found["differences"]] == [("double", "PaymentNotice")]


def test_searches_that_show_less_than_there_is_lead_to_a_whole_read(imported, theirs, asked):
    """CLI-CMD-17: by a system alone some servers find nothing."""
    theirs.does_not = {"system"}
    theirs.create(dict(ours(theirs, "Task")[0]))
    found = asked("verify")
    assert found["whole"] == {"PaymentNotice": False, "Task": True}
    assert [each["kind"] for each in found["differences"]] == ["double"]


@pytest.mark.long
def test_a_clock_that_is_years_behind_leads_to_a_whole_read(imported, theirs, asked):
    """CLI-CMD-17"""
    theirs.made = dict.fromkeys(theirs.stored, datetime.now(UTC) - YEARS)
    found = asked("verify")
    assert (found["differences"], found["whole"]["PaymentNotice"]) == ([], True)


def test_a_target_that_refuses_its_declared_searches_is_read_whole(imported, theirs, asked):
    """CLI-CMD-17"""
    theirs.refused_parameters = {"_elements", "_total", "_lastUpdated"}
    found = asked("verify")
    assert (found["exit_code"], found["differences"]) == (0, [])
    assert found["whole"] == {"PaymentNotice": True, "Task": False}


@pytest.mark.alike
@pytest.mark.parametrize("arguments", [(), ("--all",)], ids=["asked", "whole"])
def test_verify_shows_its_progress(arguments, imported, theirs, chartferry, monkeypatch):
    """CLI-CMD-17: also while it reads one by one what a restored target has lost."""
    monkeypatch.setattr("pipelines.home.progress.SECONDS_A_LINE", 0)
    for body in ours(theirs, "PaymentNotice")[:2]:
        del theirs.stored[body["id"]]
    said = chartferry("verify", *arguments)[2].splitlines()
    assert any(line.startswith("PaymentNotice: read by id 1 of 2 rows, ") for line in said)
    assert any(line.startswith("PaymentNotice: read by id done, 2 rows in ") for line in said)
    for kind, rows in (("PaymentNotice", 3), ("Task", 2)):
        assert any(line.startswith(f"{kind}: read what was sent done, {rows} rows in ") for line in said)
    assert not [line for line in said if line.startswith(" ")]


def test_no_patient_is_shown(imported, chartferry):
    assert "Patient/" not in json.dumps(chartferry("verify", "--json")[1])


@pytest.mark.alike
@pytest.mark.parametrize("arguments", [(), ("--all",)], ids=["asked", "whole"])
@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        ("Task", {"status": 5}, "its status is no text"),
        ("Task", {"status": ["a"]}, "its status is no text"),
        ("Task", {"authoredOn": 2026}, "its authoredOn is no text"),
        ("PaymentNotice", {"status": 0}, "its status is no text"),
        ("PaymentNotice", {"amount": {"value": 2**63, "currency": "USD"}}, "its amount is too large"),
        ("PaymentNotice", {"amount": {"value": -(2**70), "currency": "USD"}}, "its amount is too large"),
    ],
)
def test_a_value_that_cannot_be_compared_is_named_with_its_resource(
    arguments, kind, given, why, imported, theirs, chartferry
):
    """CLI-CMD-17: none is taken for the text or the number that it looks like."""
    wrong = ours(theirs, kind)[1]
    wrong.update(given)
    code, _, err = chartferry("verify", *arguments)
    said = f"chartferry: {kind} could not be read from the target ({kind}/{wrong['id']}: {why})"
    assert (code, err.splitlines()[-1]) == (6, said)

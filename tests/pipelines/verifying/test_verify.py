"""`verify` names every kind of difference between ledger and target; a lost ledger is made again."""

import csv
import errno
import json
import os
import stat
from contextlib import closing
from functools import partial

import httpx
import pytest
from sqlalchemy import select, update

from pipelines.client.client import FhirClient
from pipelines.client.replies import Reply, RequestRefused
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import records
from pipelines.verifying.verify_result import MEANING
from tests.support.exports import payments, put, tasks
from tests.support.ledgers import keep_ledger, lose_ledger


def named(found):
    return sorted((each["kind"], each["row"], each["resource_id"]) for each in found["differences"])


def only(target, cents):
    return next(body for body in target.of("PaymentNotice") if body["amount"]["value"] == cents / 100)


def test_ledger_and_target_agree_to_the_row_and_the_cent(batch, asked, chartferry):
    """CLI-CMD-17"""
    found = asked("verify")
    assert (found["exit_code"], found["differences"]) == (0, [])
    assert (found["rows"], found["ledger_cents"], found["target_cents"]) == ({"PaymentNotice": 3}, 450, 450)
    code, out, _ = chartferry("verify", batch)
    assert code == 0
    assert "ledger and target agree" in out
    assert "payments: 4.50 in the ledger, 4.50 at the target" in out


def test_for_one_batch_the_target_is_read_for_its_type_alone(batch, home, asked):
    """CLI-CMD-17"""
    tasks(home, "t1")
    asked("import")
    assert [set(asked("verify", *of)["whole"]) for of in ((), (batch,))] == [
        {"PaymentNotice", "Task"},
        {"PaymentNotice"},
    ]


def test_rows_lost_by_a_restore_are_named_and_loaded_again(batch, target, asked, monkeypatch):
    """CLI-CMD-17, CLI-CMD-18: the store of yesterday was put back."""
    due = list[str]()
    monkeypatch.setattr("pipelines.verifying.verify.read_whole_next", lambda *of: due.append(of[2]))
    lost = only(target, 250)
    target.lose(lost["id"])
    found = asked("verify")
    assert (found["exit_code"], named(found)) == (3, [("gone", f"{batch}:4", lost["id"])])
    assert (found["ledger_cents"], found["target_cents"], due) == (450, 200, ["PaymentNotice"])
    assert asked("import", "--again", batch)["totals"]["created"] == 1
    assert asked("verify")["differences"] == []
    assert len(target.of("PaymentNotice")) == 3


def test_a_row_is_gone_only_if_a_read_by_id_says_so(batch, target, asked, chartferry):
    """CLI-CMD-17: the target's searches may lag behind, and may hide a double, too."""
    lost, late = only(target, 250)["id"], only(target, 100)["id"]
    target.lose(lost)
    target.not_indexed = {lost, late}
    found = asked("verify")
    of = [(each["kind"], each["resource_id"]) for each in found["differences"]]
    assert (found["exit_code"], of) == (3, [("gone", lost), ("hidden", late)])
    assert (found["rows"], found["target_cents"]) == ({"PaymentNotice": 2}, 200)
    assert "1 hidden: at the target, but not shown by its searches" in chartferry("verify")[1]


def test_a_withdrawn_resource_that_searches_leave_out_is_no_difference(home, target, asked):
    """CLI-CMD-17: some servers leave such resources out of searches."""
    tasks(home, "t1", "t2")
    asked("import")
    body = target.of("Task")[0]
    body["status"], target.not_indexed = "cancelled", {body["id"]}
    assert asked("verify")["differences"] == []


@pytest.mark.alike
@pytest.mark.parametrize("why", ["a read answers with another resource", "HTTP 404"])
def test_a_resource_that_cannot_be_read_is_not_called_gone(why, batch, target, chartferry, monkeypatch):
    """CLI-CMD-17: a 404 without an OperationOutcome may come from a gateway."""
    first, other, _ = target.of("PaymentNotice")
    target.not_indexed = {first["id"]}
    answer = httpx.Response(404, text="<html>") if why == "HTTP 404" else httpx.Response(200, json=other)
    send = FhirClient._patiently

    def answered(client, url, *rest):
        return answer if url.endswith(first["id"]) and "?" not in url else send(client, url, *rest)

    monkeypatch.setattr(FhirClient, "_patiently", answered)
    code, out, err = chartferry("verify")
    assert (code, out) == (6, "")
    assert f"could not be read from the target (PaymentNotice/{first['id']}: {why})" in err


@pytest.mark.long
def test_late_doubles_are_named(batch, target, asked):
    """CLI-CMD-17"""
    double = target.create({key: value for key, value in only(target, 250).items() if key != "identifier"})
    found = asked("verify", batch)
    assert (found["exit_code"], named(found)) == (3, [("double", f"{batch}:4", double[1].rpartition("/")[2])])


@pytest.mark.parametrize("status", ["cancelled", "entered-in-error"])
def test_a_double_that_the_chart_has_cancelled_is_named_no_more(batch, target, asked, status):
    """CLI-CMD-17: that is what its user was asked to do."""
    body = {key: value for key, value in only(target, 250).items() if key != "identifier"}
    double = target.create(body)[1].rpartition("/")[2]
    for created in (body["created"], "soon"):
        target.stored[double]["created"] = created
        assert asked("verify")["counts"] == {"double": 1}
    target.stored[double]["status"] = status
    assert asked("verify")["exit_code"] == 0


@pytest.mark.long
def test_a_double_that_may_belong_to_two_batches_is_named_by_the_verify_of_each(home, target, asked):
    """CLI-CMD-17, EVID-01: otherwise the first batch would seem to agree."""
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    first = asked("import")["batches"][0]["batch_id"]
    payments(home, ("k3", "p2", "2.00"))
    second = asked("import")["batches"][0]["batch_id"]
    body = {key: value for key, value in only(target, 200).items() if key != "identifier"}
    double = target.create(body)[1].rpartition("/")[2]
    for batch, line in ((first, 3), (second, 2)):
        found = asked("verify", batch)
        assert (found["exit_code"], named(found)) == (3, [("double", f"{batch}:{line}", double)])
    assert asked("verify")["counts"] == {"double": 1}


@pytest.mark.long
def test_a_resource_of_another_home_is_no_double_of_the_row_refused_for_its_key(home, target, asked):
    """CLI-CMD-17, LEDGER-15: the target has it once, and no person is asked to remove it."""
    payments(home, ("k1", "p1", "1.00"))
    asked("import")
    theirs = {**only(target, 100), "amount": {"value": 2.0, "currency": "USD"}}
    system = theirs["identifier"][0]["system"]
    theirs["identifier"] = [{"system": system, "value": "k2"}]
    other = target.create(theirs, f"identifier={system}|k2")[1].rpartition("/")[2]
    payments(home, ("k2", "p1", "3.00"))
    assert asked("import")["batches"][0]["reasons"] == {"KEY-TAKEN": 1}
    assert named(asked("verify")) == [("unknown", None, other)]


def test_an_equal_task_without_identifier_is_a_possible_double_only_at_a_bare_target(home, target, asked, additions):
    """CLI-CMD-17: elsewhere no person is asked to remove it."""
    header = "task_id,patient_id,description,status,requester_id,authored\n"
    put(home, "tasks.csv", f"{header}k1,p1,call,requested,a,2026-01-01T10:00:00Z\n")
    name = asked("import")["batches"][0]["batch_id"]
    [task] = target.of("Task")
    other = target.create({each: said for each, said in task.items() if each != "identifier"})[1].rpartition("/")[2]
    found = asked("verify")
    assert (found["others"], named(found)) == ({"Task": 1}, [] if additions else [("double", f"{name}:2", other)])
    target.stored[other]["status"] = "cancelled"
    assert asked("verify")["exit_code"] == 0


@pytest.mark.long
def test_a_late_double_of_a_row_without_a_time_is_known_by_that_of_its_first_attempt(home, target, asked):
    """CLI-CMD-17: an equal task of another day is not a double."""
    target.additions = False
    tasks(home, "k1")
    name = asked("import")["batches"][0]["batch_id"]
    (task,) = target.of("Task")
    target.create({**task, "authoredOn": "2020-01-01T00:00:00+00:00"})
    double = target.create(dict(task))[1].rpartition("/")[2]
    assert named(asked("verify")) == [("double", f"{name}:2", double)]
    target.stored[double]["status"] = "cancelled"
    assert asked("verify")["exit_code"] == 0


def test_verify_of_an_unknown_batch_fails(batch, chartferry):
    """CLI-CMD-17"""
    code, out, err = chartferry("verify", "another")
    assert (code, out, err.splitlines()) == (
        4,
        "",
        ["chartferry: another: no such batch at this target (chartferry status lists them)"],
    )


@pytest.mark.by_hand
def test_a_resource_that_belongs_to_two_rows_is_named(batch, home, asked):
    """CLI-CMD-17: also if one batch is verified, and the other row belongs to another batch."""
    payments(home, ("k5", "p2", "5.00"), ("k4", "p2", "4.00"))
    later = asked("import")["batches"][0]["batch_id"]
    with closing(Ledger.open(home / "ledger.db")) as ledger, ledger.transaction() as connection:
        one = connection.execute(select(records.c.resource_id).where(records.c.key == "k1")).scalar_one()
        connection.execute(update(records).where(records.c.key == "k4").values(resource_id=one))
    for asked_for, line in ((batch, 2), (later, 3)):
        found = asked("verify", asked_for)
        assert ("shared", f"{asked_for}:{line}", one) in named(found)
        assert found["exit_code"] == 3


def test_verify_fails_if_pages_hold_fewer_resources_than_the_target_counts(batch, chartferry, monkeypatch):
    """CLI-CMD-17"""
    whole = FhirClient.get

    def get(client, path):
        found = whole(client, path)
        return {**found, "entry": found.get("entry", [])[1:]}

    monkeypatch.setattr(FhirClient, "get", get)
    code, _, err = chartferry("verify")
    assert code == 6
    assert "PaymentNotice could not be read from the target (its pages hold 2 of 3)" in err


def test_a_target_that_refuses_large_pages_is_read_in_its_own(batch, asked, monkeypatch):
    whole = FhirClient.get

    def get(client, path):
        if "_count=1000" in path:
            raise RequestRefused(Reply(400))
        return whole(client, path)

    monkeypatch.setattr(FhirClient, "get", get)
    assert asked("verify")["differences"] == []


@pytest.mark.long
def test_an_equal_payment_from_before_the_first_attempt_is_no_double(batch, target, asked):
    made = target.create(dict(only(target, 250)))[1].rpartition("/")[2]
    target.stored[made] |= {"created": "2020-01-01T00:00:00+00:00", "identifier": []}
    found = asked("verify")
    assert (found["exit_code"], found["others"]) == (0, {"PaymentNotice": 1})


@pytest.mark.parametrize(("part", "purged"), [("amount", True), ("request", True), ("extension", False)])
def test_content_that_differs_is_named(batch, target, asked, chartferry, part, purged):
    """CLI-CMD-17: after a purge, amount and patient are still compared."""
    if purged:
        chartferry("purge", batch)
    claim = {"url": "claim", "valueReference": {"reference": "Claim/c1"}}
    others = {
        "amount": {"value": 2.51, "currency": "USD"},
        "request": {"reference": "Patient/p9"},
        "extension": [{"url": "http://schemas.example.com/fhir/copayment-claims", "extension": [claim]}],
    }
    other = only(target, 250)
    other[part] = others[part]
    assert named(asked("verify")) == [("differs", f"{batch}:4", other["id"])]


def test_an_equal_payment_that_was_made_for_another_record_is_not_the_rows(home, target, asked):
    """CLI-CMD-17, LEDGER-01: a store that was put back gave ids a second time, to records of another home."""
    target.additions, target.promised = False, ["transaction", "conditional", "identifier"]
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    first = next(body for body in target.of("PaymentNotice") if body["identifier"][0]["value"] == "k1")
    first["identifier"] = [first["identifier"][0] | {"value": "m1"}]
    target.identified = {name.replace("|k1", "|m1"): found for name, found in target.identified.items()}
    assert named(asked("verify")) == [("differs", f"{batch}:2", first["id"])]
    assert asked("import", "--again", batch)["totals"]["created"] == 1
    assert sorted(body["identifier"][0]["value"] for body in target.of("PaymentNotice")) == ["k1", "k2", "m1"]
    assert asked("verify")["differences"] == []


def test_a_task_that_was_made_for_another_record_is_not_one_that_was_merely_changed(home, target, asked):
    """CLI-CMD-17, LEDGER-01: as of a payment; its own patient and description are no proof."""
    target.additions, target.promised = False, ["transaction", "conditional", "identifier"]
    tasks(home, "k1", "k2")
    batch = asked("import")["batches"][0]["batch_id"]
    first = next(body for body in target.of("Task") if body["identifier"][0]["value"] == "k1")
    first["identifier"] = [first["identifier"][0] | {"value": "m1"}]
    first["description"] = "of another record"
    found = asked("verify")
    assert (found["exit_code"], named(found)) == (3, [("differs", f"{batch}:2", first["id"])])


@pytest.mark.parametrize("status", ["cancelled", "entered-in-error"])
def test_the_amount_of_a_payment_cancelled_in_the_chart_is_not_counted_at_the_target(
    batch, target, asked, chartferry, status
):
    """CLI-CMD-17, EVID-01: the evidence does not agree, and nobody is told to load it again by an undo."""
    cancelled = only(target, 250)
    cancelled["status"] = status
    found = asked("verify")
    assert (found["exit_code"], named(found)) == (3, [("taken back", f"{batch}:4", cancelled["id"])])
    assert (found["ledger_cents"], found["target_cents"]) == (450, 200)
    assert "(not payments: those are entered in the chart)" in chartferry("verify", batch)[1]
    found = asked("evidence")
    assert (found["exit_code"], [feed["agrees"] for feed in found["feeds"]]) == (3, [False])


def test_rows_in_doubt_are_named(home, target, asked):
    target.additions = False
    target.faults = ["lost_before"]
    payments(home, ("k1", "p1", "1.00"))
    name = asked("import")["batches"][0]["batch_id"]
    found = asked("verify")
    assert (found["exit_code"], named(found)) == (5, [("in doubt", f"{name}:2", None)])


def test_a_lost_ledger_is_rebuilt_and_nothing_is_sent_again(batch, home, target, asked, chartferry):
    """CLI-CMD-17, LEDGER-01"""
    put(home, "tasks.csv", "task_id,patient_id,description,status,requester_id\nt1,p1,call,requested,a\n")
    asked("import")
    before = dict(target.stored)
    payments(home, ("k4", "p2", "2.50"))
    lose_ledger(home)
    if not target.additions:
        code, out, _ = chartferry("import", str(next((home / "batches" / batch / "source").iterdir())))
        assert code == 4
        assert "verify --adopt" in out
        assert target.stored == before
    found = asked("verify", "--adopt")
    assert (found["exit_code"], found["left"]) == (0, {})
    assert sum(each["adopted"] for each in found["batches"].values()) == 4
    assert asked("verify")["differences"] == []
    assert target.stored == before
    assert asked("import")["totals"]["created"] == 1
    assert len(target.stored) == len(before) + 1
    assert asked("verify", "--adopt")["batches"] == {}


@pytest.mark.alike
@pytest.mark.parametrize("theirs", [{"system": "urn:oid:1.2.3", "value": "77"}, None, "odd"])
def test_the_name_that_the_importer_gave_need_not_be_the_first(home, target, asked, theirs):
    """CLI-CMD-17, LEDGER-01: a target may add its own identifiers before it."""
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "1.00"))
    asked("import")
    for body in target.stored.values():
        body["identifier"].insert(0, theirs)
    lose_ledger(home)
    asked("verify", "--adopt")
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        rows = ledger.tables()["record"].to_pylist()
    assert {row["key"]: row["resource_id"] for row in rows} == {
        body["identifier"][1]["value"]: resource_id for resource_id, body in target.stored.items()
    }


@pytest.mark.long
def test_after_adoption_records_that_the_target_lacks_wait_for_the_next_import(batch, home, target, asked):
    """CLI-CMD-17, LEDGER-08: at a bare target it is unknown which of two equal payments is there."""
    target.lose(only(target, 100)["id"])
    target.lose(only(target, 250)["id"])
    lose_ledger(home)
    found = asked("verify", "--adopt")
    adopted = 1 if target.additions else 0
    assert (found["exit_code"], found["batches"]) == (
        5,
        {batch: {"adopted": adopted, "taken_back": 0, "in_doubt": 3 - adopted}},
    )
    assert asked("import")["totals"].get("created", 0) == (3 - adopted if target.additions else 0)
    assert len(target.of("PaymentNotice")) == (3 if target.additions else 1)
    assert asked("verify")["counts"] == ({} if target.additions else {"in doubt": 3})


@pytest.mark.long
def test_an_older_copy_of_the_ledger_sends_nothing_twice(batch, home, target, asked, chartferry):
    """CLI-CMD-17, LEDGER-01: the ledger of yesterday has the first of two runs of one batch, and no run of another."""
    target.lose(only(target, 250)["id"])
    put_back = keep_ledger(home)
    asked("import", "--again", batch)
    payments(home, ("k4", "p2", "3.75"), name="payments-b.csv")
    assert asked("import")["totals"]["created"] == 1
    before = dict(target.stored)
    put_back()
    if not target.additions:
        code, out, _ = chartferry("import", "--again", batch)
        assert (code, "verify --adopt" in out) == (4, True)
    found = asked("verify", "--adopt")
    assert (found["exit_code"], sum(each["adopted"] for each in found["batches"].values())) == (0, 2)
    assert asked("verify")["differences"] == []
    assert asked("import")["totals"].get("created", 0) == 0
    assert target.stored == before


@pytest.mark.parametrize("older", [pytest.param(True, marks=pytest.mark.long), False], ids=["of yesterday", "lost"])
def test_no_other_file_goes_to_a_bare_target_while_the_ledger_is_behind(older, home, target, asked):
    """CLI-CMD-17, LEDGER-01: the next export holds rows that were sent by a batch that the ledger lacks."""
    target.additions = False
    payments(home, ("k1", "p1", "1.00"), name="payments-a.csv")
    asked("import")
    put_back = keep_ledger(home)
    payments(home, ("k2", "p1", "2.00"), name="payments-b.csv")
    lost = asked("import")["batches"][0]["batch_id"]
    put_back() if older else lose_ledger(home)
    payments(home, ("k2", "p1", "2.00"), ("k3", "p1", "3.00"), name="payments-c.csv")
    elsewhere = home.parent / "payments-d.csv"
    elsewhere.write_text((home / "inbox" / "payments-c.csv").read_text() + "\n")
    tasks(home, "t1")
    for paths in ((), (elsewhere,)):
        found = asked("import", *paths)
        assert found["exit_code"] == 4
        said = [each["message"] for each in found["batches"] if each["state"] == "failed"]
        assert all("chartferry verify --adopt" in message for message in said)
        assert not older or any(f"nothing was sent, since {lost}" in message for message in said)
        assert {each["resourceType"] for each in target.stored.values()} == {"PaymentNotice", "Task"}
        assert sorted(body["amount"]["value"] for body in target.of("PaymentNotice")) == [1.0, 2.0]
    assert asked("verify", "--adopt")["exit_code"] in (0, 3)
    assert asked("import")["totals"]["created"] == 1
    assert sorted(body["amount"]["value"] for body in target.of("PaymentNotice")) == [1.0, 2.0, 3.0]
    assert asked("verify")["differences"] == []


def test_nothing_goes_to_a_bare_target_while_a_batch_that_the_ledger_lost_cannot_be_read(
    home, target, chartferry, monkeypatch
):
    """CLI-CMD-17, LEDGER-01: a folder whose runs cannot be listed is not a folder without runs."""
    target.additions = False
    payments(home, ("k1", "p1", "1.00"), name="payments-a.csv")
    chartferry("import")
    lose_ledger(home)
    [batch] = (home / "batches").glob("payments-*")
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"), name="payments-b.csv")
    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, partial(refusing, getattr(os, name), batch))
    code, _, err = chartferry("import")
    assert (code, "Permission denied" in err) == (6, True)
    assert [body["amount"]["value"] for body in target.of("PaymentNotice")] == [1.0]


def refusing(listed, folder, asked="."):
    if str(asked) == str(folder):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    return listed(asked)


def test_a_lost_ledger_agrees_with_nothing(batch, home, target, asked, chartferry):
    """CLI-CMD-17: it names every batch, and every resource with an importer's identifier."""
    lose_ledger(home)
    found = asked("verify")
    assert (found["exit_code"], found["lost"]) == (3, [batch])
    unknown = {each["resource_id"] for each in found["differences"] if each["kind"] == "unknown"}
    assert unknown == ({body["id"] for body in target.of("PaymentNotice")} if target.additions else set())
    out = chartferry("verify")[1]
    assert f"{batch}: the ledger lacks this batch or a part of it; run chartferry verify --adopt" in out
    assert "ledger and target agree" not in out


@pytest.mark.long
def test_a_lost_ledger_and_a_lost_day_of_the_store_are_both_made_good(batch, home, target, asked):
    """CLI-CMD-17, CLI-CMD-18: no record is lost, and none is there twice."""
    payments(home, ("k4", "p2", "9.00"), name="payments-b.csv")
    asked("import")
    target.lose(only(target, 900)["id"])
    target.lose(only(target, 250)["id"])
    lose_ledger(home)
    found = asked("verify", "--adopt")
    assert (found["exit_code"], sum(each["in_doubt"] for each in found["batches"].values())) == (5, 2)
    if not target.additions:
        for name in asked("doubts", "resolve")["left"]:
            asked("doubts", "resend", name)
    assert asked("import")["totals"]["created"] == 2
    assert asked("verify")["differences"] == []
    assert sorted(body["amount"]["value"] for body in target.of("PaymentNotice")) == [1.0, 1.0, 2.5, 9.0]


def test_rows_that_were_damaged_since_are_no_fault_of_the_program(batch, home, asked):
    """CLI-CMD-17"""
    path = home / "batches" / batch / "run-1" / "accepted.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    found = asked("verify", batch)
    assert (found["differences"], found["without_source"]) == ([], {"PaymentNotice": 3})


def test_verify_says_what_it_does_not_compare_of_purged_rows(batch, asked, chartferry):
    """CLI-CMD-17, CLI-CMD-16"""
    assert asked("verify")["without_source"] == {"PaymentNotice": 0}
    chartferry("purge", batch)
    found = asked("verify", batch)
    assert (found["differences"], found["without_source"]) == ([], {"PaymentNotice": 3})
    assert "3 rows have no source here (purged, damaged, or in another home)" in chartferry("verify")[1]


def test_lost_resources_of_a_large_batch_are_found_by_a_sweep_and_loaded_again(batch, target, asked, monkeypatch):
    """CLI-CMD-18"""
    monkeypatch.setattr("pipelines.corrections.missing_resources.READS_WITHOUT_A_SWEEP", 1)
    target.lose(only(target, 250)["id"])
    assert asked("import", "--again", batch)["totals"]["created"] == 1
    assert asked("verify")["differences"] == []


def test_differences_show_no_patient_data(batch, target, chartferry):
    target.create(dict(only(target, 250)))
    for arguments in (["verify"], ["verify", "--json"]):
        out = json.dumps(chartferry(*arguments)[1])
        assert "Patient/" not in out


def test_verify_prints_the_first_differences_of_each_kind_and_writes_all_to_a_file(home, target, asked, chartferry):
    """CLI-CMD-17: the file belongs to the last `verify`, and is removed when ledger and target agree."""
    target.additions = False
    payments(home, *((f"k{number}", "p1", f"{number}.00") for number in range(1, 14)))
    name = asked("import")["batches"][0]["batch_id"]
    bodies = sorted(target.of("PaymentNotice"), key=lambda body: body["amount"]["value"])
    double = target.create(dict(bodies[12]))[1].rpartition("/")[2]
    for body in bodies[:12]:
        target.lose(body["id"])
    code, out, _ = chartferry("verify")
    shown = [f"gone: {name}:{line}: PaymentNotice/{bodies[line - 2]['id']}" for line in range(2, 14)]
    assert code == 3
    assert out.splitlines()[3:] == [
        *shown[:10],
        "and 2 more gone",
        f"double: {name}:14: PaymentNotice/{double}",
        f"12 gone: {MEANING['gone']}",
        f"gone, by batch: {name} (12)",
        f"1 double: {MEANING['double']}",
        f"all differences: {home / 'differences.csv'}",
    ]
    file = home / "differences.csv"
    with file.open(newline="", encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    found = asked("verify")
    assert rows == found["differences"]
    assert (len(rows), found["file"], stat.S_IMODE(file.stat().st_mode)) == (13, str(file), 0o600)
    assert asked("import", "--again", name)["totals"]["created"] == 12
    target.lose(double)
    assert (asked("verify")["file"], file.exists()) == (None, False)


@pytest.mark.long
def test_import_again_takes_up_former_resources_that_a_second_restore_brought_back(batch, target, asked):
    """CLI-CMD-17, CLI-CMD-18: an older store was put back, and then the newer one again."""
    before, named = dict(target.stored), dict(target.identified)
    for body in target.of("PaymentNotice"):
        target.lose(body["id"])
    assert asked("import", "--again", batch)["totals"]["created"] == 3
    target.stored, target.identified = before, named
    assert asked("verify")["counts"]["gone"] == 3
    asked("import", "--again", batch)
    assert asked("verify")["counts"] == {}
    assert len(target.of("PaymentNotice")) == 3


@pytest.mark.long
def test_verify_names_planned_rows_that_were_not_sent_and_a_later_import_sends_them(batch, home, target, asked):
    """CLI-CMD-17, CLI-CMD-18: the file was stopped after its rows had been planned again."""
    for body in target.of("PaymentNotice"):
        target.lose(body["id"])
    control = home / "batches" / batch / "source"
    (name,) = (path.name for path in control.iterdir())
    (control / f"{name}.control.json").write_text('{"rows": 99}')
    assert asked("import", "--again", batch)["batches"][0]["state"] == "stopped"
    found = asked("verify")
    assert (found["exit_code"], found["counts"]) == (3, {"not sent": 3})
    (control / f"{name}.control.json").unlink()
    assert asked("import", "--again", batch)["totals"]["created"] == 3
    assert asked("verify")["counts"] == {}


@pytest.mark.long
@pytest.mark.parametrize("additions", [False], ids=["bare"], indirect=True)
def test_import_again_after_a_restore_looks_up_all_former_resources_of_a_record(batch, target, asked):
    """CLI-CMD-18: without identifiers, and only if the patient is the same."""
    before = dict(target.stored)
    for _ in range(2):
        for body in target.of("PaymentNotice"):
            target.lose(body["id"])
        assert asked("import", "--again", batch)["totals"]["created"] == 3
    target.stored = before
    lost = next(iter(before))
    target.stored[lost] = before[lost] | {"request": {"reference": "Patient/other"}}
    assert asked("import", "--again", batch)["totals"]["created"] == 1
    assert len(target.of("PaymentNotice")) == 4


def test_the_resource_of_a_row_in_doubt_is_not_reported_as_unknown(home, target, asked):
    """CLI-CMD-17: after a killed import only its rows in doubt are named; the ledger does not seem lost."""
    target.additions, target.faults = True, ["lost_after"] * 99
    payments(home, ("k1", "p1", "1.00"))
    name = asked("import")["batches"][0]["batch_id"]
    assert len(target.stored) == 1
    found = asked("verify")
    assert (found["exit_code"], named(found)) == (5, [("in doubt", f"{name}:2", None)])
    assert (found["others"], found["of_doubts"]) == ({"PaymentNotice": 0}, {"PaymentNotice": 1})

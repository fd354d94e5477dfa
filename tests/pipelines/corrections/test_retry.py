"""Rejects tried again as they are: by the rules, feeds, records and target of today."""

import json
import sqlite3
from contextlib import closing
from unittest.mock import Mock

import pytest

from fhir_service.reference.loading import load as load_reference
from pipelines.loading.settling import NOT_BY_ITSELF
from tests.pipelines.corrections.test_rejects import HERE, built_in
from tests.support.exports import payments
from tests.support.giving_back import HEADER, Practice, one


def test_a_retry_sends_refused_rows_again_and_closes_what_is_created(practice):
    """CLI-CMD-06: a further run of the batch over these records alone; the batch's totals still close."""
    practice.target.refuse = lambda body: body["amount"]["value"] == 2.5
    batch = practice.take(HEADER + "k1,p1,1,2026-01-01,\nk2,p1,2.50,2026-01-01,\nk3,p1,none,2026-01-01,\n")[1]
    name = batch["batches"][0]["batch_id"]
    assert practice.run("rejects", "retry")[0] == 3
    assert practice.rejects() == {"k2": ("open", 2), "k3": ("open", 2)}
    practice.target.refuse = lambda body: False
    code, said, _ = practice.run("rejects", "retry", "--json")
    [tried] = json.loads(said)["batches"]
    assert (code, tried["batch_id"], tried["run"], tried["state"]) == (3, name, 3, "finished")
    counts = {key: number for key, number in tried["counts"].items() if number}
    assert counts == {
        "lines": 2, "records": 2, "accepted": 1, "rejected": 1, "created": 1,
        "amount_received": 250, "amount_accepted": 250, "amount_created": 250,
    }  # fmt: skip
    assert practice.rejects() == {"k2": ("closed", 2), "k3": ("open", 3)}
    assert practice.created() == ["k1", "k2"]
    [kept] = practice.rows("SELECT state, lines, records, accepted, rejected, created, refused FROM batch")
    assert kept == ("finished", 4, 3, 2, 1, 2, 0)
    assert practice.run("rejects", "retry", "--batch", "none")[0] == 4


TASKS = """
kind = "tasks"
files = ["list*"]
changed = "{changed}"
[columns]
task_id = "id"
patient_id = "patient"
description = "{text}"
status = "{status}"
requester_id = {{ constant = "d1" }}
"""


class Killed(BaseException):
    """The importer's process ends here: nothing is written any more."""


@pytest.mark.parametrize(
    ("changed", "text", "told"),
    [("update", "short", "call"), ("update", "long", "call back"), ("skip", "long", "call")],
)
def test_a_retry_that_was_killed_before_its_first_row_leaves_its_rejects_on_their_way(
    changed, text, told, practice, monkeypatch
):
    """LEDGER-07: the record of before is no answer, unless the row is found to be known as it is."""
    (practice.home / "feeds").mkdir()
    feed = practice.home / "feeds" / "list.toml"
    feed.write_text(TASKS.format(changed=changed, text="short", status="now"))
    practice.take("id,patient,short,long,now,later\nt1,p1,call,call back,requested,odd\n", "list.csv")
    feed.write_text(TASKS.format(changed=changed, text="short", status="later"))
    assert practice.run("import", "--remap")[0] == 3
    feed.write_text(TASKS.format(changed=changed, text=text, status="now"))
    with monkeypatch.context() as killed:
        killed.setattr("pipelines.loading.stage.Intake", Mock(side_effect=Killed))
        with pytest.raises(Killed):
            practice.run("rejects", "retry")
    assert practice.rejects() == {"t1": ("resubmitted", 1)}
    assert practice.run("rejects", "retry")[0] == 0
    assert practice.rejects() == {"t1": ("closed", 1)}
    [task] = practice.target.of("Task")
    assert task["description"] == told


def test_a_retry_uses_the_feeds_of_today(practice):
    """CLI-CMD-06: a feed file that was mended is enough."""
    feed = (
        'kind = "payments"\nfiles = ["till*.txt"]\n[columns]\npayment_id = "no"\npatient_id = "who"\namount = "sum"\n'
    )
    (practice.home / "feeds").mkdir()
    (practice.home / "feeds" / "till.toml").write_text(feed + 'paid_on = "day"\n')
    practice.take("no,who,sum,day\n1,p1,1.00,31.12.2025\n2,p1,-2,31.12.2025\n", "till.txt")
    (practice.home / "feeds" / "till.toml").write_text('dates = ["%d.%m.%Y"]\n' + feed + 'paid_on = "day"\n')
    assert practice.run("rejects", "retry")[0] == 3
    assert practice.rejects() == {"1": ("closed", 1), "2": ("open", 2)}
    (practice.home / "feeds" / "till.toml").unlink()
    code, said, _ = practice.run("rejects", "retry")
    assert (code, "the feed till no longer exists" in said) == (4, True)
    assert practice.run("rejects", "export", "--out", practice.out)[0] == 4
    renamed = 'source = "till"\ndates = ["%d.%m.%Y"]\n' + feed + 'paid_on = "day"\n'
    (practice.home / "feeds" / "cash.toml").write_text(renamed)
    assert practice.run("rejects", "retry")[0] == 3
    corrected = one(practice.export()).replace("-2", "2")
    assert practice.take(corrected, "corrected.csv")[0] == 0
    assert practice.rejects() == {"1": ("closed", 1), "2": ("closed", 3)}


@pytest.mark.by_hand
def test_a_reject_that_was_created_meanwhile_is_closed_and_not_sent_again(practice):
    """CLI-CMD-06, LEDGER-01"""
    practice.target.refuse = lambda body: True
    practice.take(HEADER + "k1,p1,1.00,2026-01-01,\n")
    practice.target.refuse = lambda body: False
    practice.take(HEADER + "k1,p1,1.00,2026-01-01,\n\n", "payments-2.csv")
    with (
        closing(sqlite3.connect(practice.home / "ledger.db")) as ledger,
        ledger,
    ):  # as if the importer had died before it closed it
        ledger.execute("UPDATE reject SET state = 'open', closed_by_batch = NULL")
    writes = practice.target.writes
    assert practice.run("rejects", "retry")[0] == 0
    assert practice.rejects() == {"k1": ("closed", 1)}
    assert practice.target.writes == writes
    assert practice.created() == ["k1"]


def test_a_retry_does_not_undo_changes_of_a_later_file(practice):
    """CLI-CMD-06: it sends only the records of open rejects."""
    columns = "task_id,description,status,requester_id\n"
    (practice.home / "feeds").mkdir()
    builtin = built_in("tasks").path.read_text()
    (practice.home / "feeds" / "tasks.toml").write_text(
        builtin.replace("\n[columns]", 'changed = "skip"\n\n[columns]', 1)
    )
    practice.take(f"{columns}t1,old,requested,d1\nt2,,requested,d1\n", "tasks-1.csv")
    practice.take(f"{columns}t1,new,requested,d1\n", "tasks-2.csv")
    code, said, _ = practice.run("rejects", "retry", "--json")
    assert (code, json.loads(said)["totals"]["records"]) == (3, 1)


def test_a_retry_applies_its_change_to_a_task_that_an_older_file_loaded_anew_meanwhile(practice):
    """CLI-CMD-06, CLI-CMD-11: the chart lost the task, a newer file could not change it, and the older one was loaded
    again as `verify` advises.
    """
    (practice.home / "feeds").mkdir()
    (practice.home / "feeds" / "list.toml").write_text(TASKS.format(changed="update", text="text", status="status"))
    head = "id,patient,text,status\n"
    first = practice.take(head + "k1,p1,call,requested\nk2,p1,write,requested\n", "list-1.csv")[1]
    practice.target.lose(next(body["id"] for body in practice.target.of("Task") if body["description"] == "call"))
    assert practice.take(head + "k1,p1,call again,requested\n", "list-2.csv")[1]["totals"]["refused"] == 1
    assert practice.run("import", "--again", first["batches"][0]["batch_id"])[0] == 0
    code, said, _ = practice.run("rejects", "retry", "--json")
    assert (code, json.loads(said)["totals"]["updated"]) == (0, 1)
    assert sorted(body["description"] for body in practice.target.of("Task")) == ["call again", "write"]
    assert practice.rejects() == {"k1": ("closed", 1)}


def test_a_retry_that_cannot_reach_the_target_leaves_everything_as_it_was(practice, monkeypatch):
    """CLI-CMD-06"""
    monkeypatch.setattr("pipelines.client.client.RetryPauses.wait", lambda *_: None)
    practice.target.refuse = lambda body: True
    practice.take(HEADER + "k1,p1,1.00,2026-01-01,\n")
    before = practice.rows("SELECT state, finished_at, records, refused FROM batch")
    practice.target.faults = ["busy"] * 20
    assert practice.run("rejects", "retry")[0] == 6
    assert [row[0] for row in practice.rows("SELECT state FROM batch")] == [before[0][0]]
    practice.target.faults, practice.target.refuse = [], lambda body: False
    assert practice.run("rejects", "retry")[0] == 0
    assert practice.rejects() == {"k1": ("closed", 1)}
    assert practice.created() == ["k1"]


def test_rejects_of_a_stopped_batch_are_not_sent_behind_its_back(practice):
    """CLI-CMD-06, LEDGER-14"""
    (practice.home / "inbox" / "payments.csv.control.json").write_text('{"rows": 5}')
    assert practice.take(HEADER + "k1,p1,none,2026-01-01,\n")[0] == 4
    code, said, _ = practice.run("rejects", "retry")
    assert (code, "its batch was stopped" in said) == (4, True)


def test_the_bundled_rules_and_records_of_today_decide_a_retry(fresh_service, home, chartferry, tmp_path, monkeypatch):
    """CLI-CMD-06: at a real service, whose reference data came later."""
    monkeypatch.setenv("FHIR_BASE_URL", fresh_service.url)
    monkeypatch.setenv("FHIR_TOKEN", fresh_service.headers["authorization"].removeprefix("Bearer "))
    practice = Practice(home, None, chartferry)
    assert practice.take(HEADER + "k1,latecomer,1.00,2026-01-01,\n")[0] == 3
    assert "latecomer" in one(practice.export())
    service = fresh_service.service
    claim = json.loads((HERE.parent / "spec" / "world" / "claim.ndjson").read_text().splitlines()[0])
    claim |= {"id": "c-late", "patient": {"reference": "Patient/latecomer"}}
    for name, body in (("patient", {"resourceType": "Patient", "id": "latecomer"}), ("claim", claim)):
        path = tmp_path / f"{name}.ndjson"
        path.write_text(json.dumps(body) + "\n")
        report = load_reference([path], service.writer, service.store, service.clock, service.new_id, service.site)
        assert report["refused"] == []
    code, said, wrong = practice.run("rejects", "retry")
    assert code == 0, said + wrong
    assert practice.rejects() == {"k1": ("closed", 1)}
    assert fresh_service.client.get("/PaymentNotice?request=Patient/latecomer").json()["total"] == 1


def test_a_row_that_is_tried_again_and_waits_for_another_of_its_patient_goes_once_that_is_settled(
    home, target, asked, chartferry
):
    """CLI-CMD-06, LEDGER-07: the import goes on with it, as the retry says."""
    target.additions = False
    target.refuse = lambda body: body["amount"]["value"] == 3.0
    payments(home, ("k1", "p1", "3.00"), name="payments-1.csv")
    asked("import")
    target.refuse, target.faults = lambda _: False, ["lost_before"]
    payments(home, ("k2", "p1", "2.00"), name="payments-2.csv")
    in_doubt = asked("import")["batches"][0]["batch_id"]
    retried = asked("rejects", "retry")
    assert "chartferry import goes on once those are settled" in retried["batches"][0]["message"]
    assert asked("doubts", "resolve")["left"] == {f"{in_doubt}:2": NOT_BY_ITSELF}
    asked("doubts", "resend", f"{in_doubt}:2")
    for _ in range(2):
        asked("import")
    assert sorted(body["amount"]["value"] for body in target.of("PaymentNotice")) == [2.0, 3.0]
    assert json.loads(chartferry("rejects", "export", "--json")[1])["files"] == []

"""A run that is killed over a batch that had ended: nothing of it stays unseen, and its end is put down later."""

import json
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import run

import pytest

from pipelines.client.replies import TargetUnusable
from pipelines.feeds.files.catalog import load_feeds
from pipelines.home.batch import UnreadableFile
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.manifests import runs_in
from pipelines.session.session import Session
from tests.support.ledgers import lose_ledger

PAYMENTS = "payment_id,patient_id,amount,paid_on\n"
STARTED_AT = "2026-11-21T08:47:16.000000Z"
TASKS = "task_id,description,status,requester_id\n"


def put(home, name, text):
    (home / "inbox" / name).write_text(text)


def said_of(home, run):
    [path] = (home / "batches").glob(f"*/run-{run}/manifest.json")
    return json.loads(path.read_bytes())


@pytest.fixture
def batches(chartferry):
    return lambda: json.loads(chartferry("status", "--json")[1])["batches"]


@contextmanager
def killed(monkeypatch, at="settle"):
    """Within, end a load when the outcomes or the intents of its first bundle are to be written."""

    def stopped(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, at, stopped)
        yield


def test_rows_of_a_killed_retry_are_open_for_the_next_import(home, target, asked, chartferry, monkeypatch, batches):
    """CLI-CMD-06, LEDGER-10: the batch had ended; an import with nothing to do would leave them unseen."""
    target.refuse = lambda body: body["amount"]["value"] == 2.0
    put(home, "payments.csv", PAYMENTS + "k1,p1,1.00,2026-01-01\nk2,p1,2.00,2026-01-01\nk3,p1,x,2026-01-01\n")
    assert asked("import")["exit_code"] == 3
    [before] = batches()
    target.refuse = lambda body: False
    with killed(monkeypatch):
        assert chartferry("rejects", "retry")[0] == 130
    assert len(target.of("PaymentNotice")) == 2
    [batch] = batches()
    assert (batch["state"], batch["open_rejects"]) == ("running", 2)
    found = asked("import")
    assert (found["exit_code"], found["totals"]["records"], found["totals"]["in_doubt"]) == (0, 1, 0)
    [batch] = batches()
    assert (batch["state"], batch["created"] + batch["adopted"], batch["refused"]) == ("finished", 2, 0)
    assert (batch["records"], batch["rejected"], batch["open_rejects"]) == (3, 1, 1)
    assert batch["finished_at"] == before["finished_at"]
    assert len(target.of("PaymentNotice")) == 2
    assert asked("import")["batches"] == []


def test_a_batch_with_a_row_in_doubt_has_no_end_though_a_later_run_of_it_was_over_others(home, target, asked, batches):
    """LEDGER-10: as ended, no import would look its row up again."""
    target.additions = False
    put(home, "tasks-1.csv", TASKS + "t1,one,requested,d1\n")
    [first] = asked("import")["batches"]
    asked("undo", first["batch_id"])
    target.refuse = lambda body: body["description"] == "refused"
    put(home, "tasks-2.csv", TASKS + "t1,one,requested,d1\nt2,refused,requested,d2\n")
    [second] = asked("import")["batches"]
    target.refuse, target.faults = lambda body: False, ["error"]
    assert asked("rejects", "retry")["totals"]["in_doubt"] == 1
    assert asked("rejects", "retry", "--taken-back")["totals"]["created"] == 1
    [batch] = [each for each in batches() if each["batch_id"] == second["batch_id"]]
    assert (batch["state"], batch["created"], batch["in_doubt"]) == ("running", 1, 1)
    [found] = asked("import")["batches"]
    assert (found["batch_id"], found["counts"]["records"], found["counts"]["in_doubt"]) == (second["batch_id"], 1, 1)


@pytest.mark.alike
@pytest.mark.parametrize("because", [UnreadableFile, TargetUnusable])
def test_rows_of_a_killed_retry_stay_open_if_the_run_that_goes_on_with_them_fails(
    because, home, target, asked, chartferry, monkeypatch, batches
):
    """LEDGER-10: the batch had ended; as ended again, an import with nothing to do would leave them unseen."""
    target.refuse = lambda body: body["amount"]["value"] == 2.0
    put(home, "payments.csv", PAYMENTS + "k1,p1,1.00,2026-01-01\nk2,p1,2.00,2026-01-01\n")
    assert asked("import")["exit_code"] == 3
    target.refuse = lambda body: False
    with killed(monkeypatch):
        assert chartferry("rejects", "retry")[0] == 130

    def fails(*_, **__):
        raise because("not now")

    with monkeypatch.context() as patched:
        patched.setattr("pipelines.runs.received.validate", fails)
        assert asked("import")["exit_code"] == (6 if because is TargetUnusable else 4)
    assert [batch["state"] for batch in batches()] == ["running"]
    assert asked("import")["exit_code"] == 0
    [batch] = batches()
    assert (batch["state"], batch["created"] + batch["adopted"], batch["open_rejects"]) == ("finished", 2, 0)
    assert len(target.of("PaymentNotice")) == 2


def test_a_killed_run_says_so_once_a_later_one_went_on_with_it(home, asked, chartferry, monkeypatch, batches):
    """CLI-CMD-03, COMMON-42: in status and in its manifest, with what it had counted."""
    put(home, "payments.csv", PAYMENTS + "k1,p1,1.00,2026-01-01\n")
    with killed(monkeypatch):
        assert chartferry("import")[0] == 130
    manifest = said_of(home, 1)
    assert (manifest["state"], manifest["ended_at"], manifest["counts"]) == ("running", None, {})
    assert asked("import")["exit_code"] == 0
    manifest = said_of(home, 1)
    said = "it was killed or terminated, only validated, or the machine went down; run 2 went on with it"
    assert (manifest["state"], manifest["ended_at"], manifest["message"]) == ("cut off", None, said)
    assert (manifest["counts"]["records"], manifest["counts"]["created"]) == (1, 0)
    out = chartferry("status", batches()[0]["batch_id"])[1]
    assert "run 1: cut off, since" in out
    assert said in out
    assert "the next import continues with it" not in out


@pytest.mark.long
def test_the_next_import_completes_a_killed_retry_without_the_other_rows_of_the_file(
    home, target, asked, chartferry, monkeypatch
):
    """CLI-CMD-06, LEDGER-08: otherwise the old file would undo a change of a later one."""
    (home / "feeds").mkdir(exist_ok=True)
    feed = load_feeds().named("tasks")
    assert feed
    builtin = feed.path.read_text()
    (home / "feeds" / "tasks.toml").write_text(builtin.replace("\n[columns]", 'changed = "update"\n\n[columns]', 1))
    target.refuse = lambda body: body["description"] == "refused"
    put(home, "tasks-1.csv", TASKS + "t1,old,requested,d1\nt2,refused,requested,d1\n")
    assert asked("import")["exit_code"] == 3
    put(home, "tasks-2.csv", TASKS + "t1,new,requested,d1\n")
    assert asked("import")["totals"]["updated"] == 1
    target.refuse = lambda body: False
    with killed(monkeypatch):
        assert chartferry("rejects", "retry")[0] == 130
    found = asked("import")
    assert (found["exit_code"], found["totals"]["records"]) == (0, 1)
    assert sorted(task["description"] for task in target.of("Task")) == ["new", "refused"]


@pytest.mark.long
def test_a_second_import_of_a_file_considers_all_its_rows_even_after_a_killed_retry(
    home, target, asked, chartferry, monkeypatch, batches
):
    """CLI-CMD-06"""
    target.refuse = lambda body: body["amount"]["value"] == 2.0
    text = PAYMENTS + "k1,p1,1.00,2026-01-01\nk2,p1,2.00,2026-01-01\n"
    put(home, "payments.csv", text)
    assert asked("import")["exit_code"] == 3
    target.refuse = lambda body: False
    with killed(monkeypatch):
        assert chartferry("rejects", "retry")[0] == 130
    [batch] = batches()
    path = home.parent / "payments.csv"
    path.write_text(text)
    found = asked("import", path)
    assert (found["exit_code"], found["totals"]["records"]) == (0, 2)
    [batch] = batches()
    assert (batch["state"], batch["open_rejects"]) == ("finished", 0)
    assert len(target.of("PaymentNotice")) == 2


@pytest.mark.long
@pytest.mark.parametrize("again", ["retry", "import"])
def test_a_killed_retry_is_ended_by_the_next_one_too(home, target, asked, chartferry, monkeypatch, batches, again):
    """CLI-CMD-06"""
    target.refuse = lambda body: True
    put(home, "payments.csv", PAYMENTS + "k1,p1,1.00,2026-01-01\n")
    asked("import")
    target.refuse = lambda body: False
    with killed(monkeypatch):
        chartferry("rejects", "retry")
    assert (asked("rejects", "retry") if again == "retry" else asked("import"))["exit_code"] == 0
    [batch] = batches()
    assert (batch["state"], batch["accepted"], batch["open_rejects"]) == ("finished", 1, 0)
    assert asked("import")["batches"] == []
    assert [said_of(home, run)["state"] for run in (1, 2, 3)] == ["finished", "cut off", "finished"]


def test_a_retry_that_the_ledger_has_lost_takes_no_rows_from_a_killed_run(
    home, target, asked, chartferry, monkeypatch, batches
):
    """CLI-CMD-06, LEDGER-08: its folder has the highest number, and the run was over one row of the file."""
    target.refuse = lambda body: body["amount"]["value"] == 2.0
    put(home, "payments.csv", PAYMENTS + "k1,p1,1.00,2026-01-01\nk2,p1,2.00,2026-01-01\nk3,p1,x,2026-01-01\n")
    asked("import")
    target.refuse = lambda body: False
    asked("rejects", "retry")
    lose_ledger(home)
    with killed(monkeypatch, "intend"):
        assert chartferry("import")[0] == 130
    assert asked("import")["exit_code"] == 3
    [batch] = batches()
    assert (batch["state"], batch["records"], batch["accepted"], batch["open_rejects"]) == ("finished", 3, 2, 1)
    assert batch["created"] + batch["adopted"] + batch["unchanged"] == len(target.of("PaymentNotice")) == 2


def test_runs_of_a_second_target_have_its_numbers_whatever_their_folders_are_called(tmp_path):
    """EVID-01: its numbers start anew, beside the folders of the first."""
    for folder, target in (("run-1", "a"), ("run-1-2", "b"), ("run-2", "b")):
        about = {"target": target, "source": "s", "resource": "Task", "feed_hash": "f"}
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "manifest.json").write_text(json.dumps({**about, "started_at": STARTED_AT}))
    assert [each[:2] for each in runs_in(tmp_path, "b")] == [(1, tmp_path / "run-1-2"), (2, tmp_path / "run-2")]


@pytest.mark.long
def test_a_file_that_another_importer_ended_before_has_no_end_while_rows_of_it_are_sent(
    home, target, asked, monkeypatch
):
    """LEDGER-10, SCALE-03: else an import would not go on with it once this one was killed."""
    text, found = PAYMENTS + "k1,p1,1.00,2026-01-01\nk2,p1,2.00,2026-01-01\n", list[str]()
    other, lease = home.parent / "payments.csv", Session.lease

    def refuse(body):
        if body["amount"]["value"] == 2.0:
            with closing(Ledger.open(home / "ledger.db")) as ledger:
                found.extend(row["state"] for row in ledger.batches())
        return body["amount"]["value"] == 2.0

    def ended_meanwhile(session):
        if not found:
            other.write_text(text)
            command = [sys.executable, "-m", "tests.support.unpublished", "--home", str(home), "import", str(other)]
            done = run(command, check=False, cwd=Path(__file__).parents[3], capture_output=True)
            assert done.returncode == 3
        return lease(session)

    target.refuse = refuse
    monkeypatch.setattr(Session, "lease", ended_meanwhile)
    put(home, "payments.csv", text)
    assert asked("import")["batches"][0]["state"] == "finished"
    assert found == ["running", "running"]

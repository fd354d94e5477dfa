"""`import --remap`: the policy of the feed for rows that changed only because the feed did."""

import json
import os
import time
from contextlib import closing
from unittest.mock import Mock

import duckdb
import pytest

from pipelines.importing.current_problems import broken_now
from pipelines.ledger.ledger import Ledger
from tests.support.exports import put
from tests.support.ledgers import decisions, read_ledger


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

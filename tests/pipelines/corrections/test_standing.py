"""The state of a key after rejects, undo and corrections, by commands."""

import csv
import gzip
import json
import shutil
import sqlite3
from contextlib import closing

import duckdb
import pyarrow as pa
import pytest

from tests.support.archives import zipped
from tests.support.exports import PAYMENTS, TASKS, feed_file
from tests.support.publishing import publish_nothing


@pytest.fixture
def put(home):
    def put(name, *rows):
        header = PAYMENTS if name.startswith("payments") else TASKS
        (home / "inbox" / name).write_text(header + "".join(f"{row}\n" for row in rows))

    return put


def pay(key, amount):
    return f"{key},p1,{amount},2026-03-01,"


def call(key, text="call"):
    return f"{key},p1,{text},requested,a"


def rejects(home):
    with closing(sqlite3.connect(home / "ledger.db")) as ledger:
        return ledger.execute("SELECT source_key, state FROM reject ORDER BY first_seen_at, source_key").fetchall()


def published(home, query):
    with duckdb.connect(str(home / "published/reports.duckdb"), read_only=True) as tables:
        return tables.sql(query).fetchall()


def there(target):
    return sorted(body["description"] for body in target.of("Task") if body["status"] != "cancelled")


# -- what closes a reject


@pytest.mark.long
@pytest.mark.publishes("payment_reconciliation")
def test_the_old_content_again_closes_no_reject_of_other_content(home, put, asked, chartferry, monkeypatch):
    """LEDGER-17: nobody decided, and nothing was loaded."""
    with monkeypatch.context() as patched:
        publish_nothing(patched)
        put("payments-1.csv", pay("x1", "10.00"))
        asked("import")
        put("payments-2.csv", pay("x1", "12.00"))
        assert asked("import")["exit_code"] == 3
    put("payments-3.csv", pay("x1", "10.00"))
    assert asked("import")["totals"]["unchanged"] == 1
    assert rejects(home) == [("x1", "open")]
    reconciled = "SELECT received::varchar, created::varchar, refused::varchar FROM payment_reconciliation"
    assert published(home, reconciled) == [("22.00", "10.00", "12.00")]
    publish_nothing(monkeypatch)
    put("payments-2.csv", pay("x1", "12.00"))
    assert asked("import")["exit_code"] == 3
    assert rejects(home) == [("x1", "open")]
    code, out, _ = chartferry("rejects", "export", "--out", home.parent / "out")
    assert (code, "no open rejects" in out) == (0, False)


@pytest.mark.long
def test_a_reject_is_closed_once_its_content_was_created_from_another_file(home, target, put, asked):
    """LEDGER-17"""
    target.refuse = lambda body: body["amount"]["value"] == 12
    put("payments-1.csv", pay("x1", "12.00"))
    assert asked("import")["totals"]["refused"] == 1
    target.refuse = lambda body: False
    put("payments-2.csv", pay("x1", "12.00"))
    assert asked("import")["totals"]["created"] == 1
    assert rejects(home) == [("x1", "closed")]


@pytest.mark.long
@pytest.mark.parametrize("changed", ["update", "reject"])
def test_a_change_that_is_made_closes_the_reject_of_an_earlier_one(home, target, put, asked, changed):
    """LEDGER-17"""
    put("tasks-1.csv", call("t1", "one"))
    asked("import")
    put("tasks-2.csv", call("t1", "two"))
    asked("import")
    assert rejects(home) == [("t1", "open")]
    says = f'kind = "tasks"\nsource = "default"\nfiles = ["tasks*"]\nchanged = "{changed}"\n'
    feed_file(home, "tasks", says, TASKS)
    put("tasks-3.csv", call("t1", "three"))
    found = asked("import")
    if changed == "update":
        assert found["totals"]["updated"] == 1
        assert rejects(home) == [("t1", "closed")]
        assert there(target) == ["three"]
    else:
        assert rejects(home) == [("t1", "open"), ("t1", "open")]


@pytest.mark.long
def test_an_earlier_file_that_goes_on_late_closes_no_reject_of_a_later_one(home, put, asked, chartferry):
    """LEDGER-17: only a later record of the key does."""
    put("payments-1.csv", pay("x1", "nothing"))
    asked("import")
    put("payments-2.csv", pay("x1", "1.2.3"))
    asked("import")
    assert rejects(home) == [("x1", "open"), ("x1", "open")]
    old, _ = export(home, chartferry)
    fixed = old.read_text().replace("nothing", "10.00")
    (home / "inbox" / "payments-fixed.csv").write_text(fixed)
    assert asked("import")["totals"]["created"] == 1
    assert rejects(home) == [("x1", "closed"), ("x1", "closed")]


def export(home, chartferry):
    """The files of open rejects, those of the oldest batch first."""
    out = home.parent / "out"
    assert chartferry("rejects", "export", "--out", out)[0] == 0
    with closing(sqlite3.connect(home / "ledger.db")) as ledger:
        came = dict(ledger.execute("SELECT batch_id, received_at FROM batch"))
    batches = sorted(came, key=lambda name: came[name])
    files = {path: path.read_text() for path in out.iterdir() if path.suffix == ".csv"}
    return sorted(files, key=lambda path: next((n for n, name in enumerate(batches) if name in path.name), 9))


# -- which file is the newer one


def as_zip(content):
    return zipped({"tasks-old.csv": content})


def as_zst(content):
    return pa.compress(content, "zstd", asbytes=True)


PACKED = {"csv": lambda content: content, "csv.gz": gzip.compress, "csv.zst": as_zst, "zip": as_zip}


@pytest.mark.long
@pytest.mark.parametrize(("first", "again"), [("csv", "csv.gz"), ("csv.gz", "csv"), ("csv.zst", "zip")])
def test_a_file_that_comes_again_is_the_older_one_however_it_is_packed(first, again, home, target, put, asked):
    """LEDGER-08: exports that were packed once they were old took back what newer ones had said."""
    updating(home, "tasks")
    old = f"{TASKS}{call('t1', 'old')}\n".encode()
    (home / "inbox" / f"tasks-1.{first}").write_bytes(PACKED[first](old))
    asked("import")
    put("tasks-2.csv", call("t1", "new"))
    assert asked("import")["totals"]["updated"] == 1
    (home / "inbox" / f"tasks-3.{again}").write_bytes(PACKED[again](old))
    assert (asked("import")["totals"]["skipped"], there(target)) == (1, ["new"])


def updating(home, name):
    """A feed of tasks under a name, whose records are updated."""
    shutil.rmtree(home / "feeds", ignore_errors=True)
    feed_file(home, name, 'kind = "tasks"\nsource = "default"\nfiles = ["tasks*"]\nchanged = "update"\n', TASKS)


@pytest.mark.long
@pytest.mark.by_hand
def test_a_packed_file_of_an_earlier_version_is_known_under_a_renamed_feed(home, target, put, asked):
    """LEDGER-08: its content was not on record then."""
    updating(home, "tasks")
    old = gzip.compress(f"{TASKS}{call('t1', 'old')}\n".encode())
    (home / "inbox" / "tasks-1.csv.gz").write_bytes(old)
    asked("import")
    put("tasks-2.csv", call("t1", "new"))
    asked("import")
    with closing(sqlite3.connect(home / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE batch SET content_sha256 = NULL")
    updating(home, "todo")
    (home / "inbox" / "tasks-1.csv.gz").write_bytes(old)
    assert (asked("import")["totals"]["skipped"], there(target)) == (1, ["new"])


# -- what was taken back is not there


@pytest.fixture
def undone(put, asked):
    """A batch of four tasks that was taken back: its name."""
    put("tasks-1.csv", *(call(f"t{n}", f"call {n}") for n in range(4)))
    batch = asked("import")["batches"][0]["batch_id"]
    assert asked("undo", batch)["taken"] == 4
    return batch


def test_the_file_that_was_undone_says_so_and_how_to_load_it(undone, home, target, put, chartferry, asked):
    """LEDGER-18"""
    put("tasks-1.csv", *(call(f"t{n}", f"call {n}") for n in range(4)))
    code, out, _ = chartferry("import", "--json")
    found = json.loads(out)
    assert (code, found["totals"]["skipped"], found["totals"]["unchanged"]) == (3, 4, 0)
    message = f"{undone}: 4 of these were taken back by undo; chartferry import --again {undone} loads them again"
    assert found["batches"][0]["message"] == message
    assert there(target) == []
    assert asked("import", "--again", undone)["totals"]["created"] == 4
    assert there(target) == [f"call {n}" for n in range(4)]


@pytest.mark.long
@pytest.mark.publishes("reject_reason")
def test_a_corrected_export_loads_records_that_were_undone_anew(additions, undone, home, target, put, asked):
    """LEDGER-18: each corrected row is a new generation; unchanged rows are set aside, and named."""
    put("tasks-2.csv", *(call(f"t{n}", "right") for n in range(3)), call("t3", "call 3"))
    found = asked("import")
    assert (found["exit_code"], found["totals"]["created"], found["totals"]["rejected"]) == (3, 3, 1)
    assert found["batches"][0]["reasons"] == {"TAKEN-BACK": 1}
    assert there(target) == ["right"] * 3
    [(message,)] = published(home, "SELECT message FROM reject_reason WHERE rule_id = 'TAKEN-BACK'")
    assert f"taken back by undo of {undone} at 20" in message
    assert "chartferry rejects retry --taken-back" in message
    verified = asked("verify")
    assert (verified["exit_code"], verified["differences"]) == (0, [])
    if additions:
        names = sorted(body["identifier"][0]["value"] for body in target.of("Task") if body["status"] == "requested")
        assert names == ["t0~2", "t1~2", "t2~2"]


def test_a_nightly_full_export_does_not_reload_records_that_a_person_undid(
    undone, home, target, put, asked, chartferry
):
    """LEDGER-18, LEDGER-03"""
    rows = [*(call(f"t{n}", f"call {n}") for n in range(4)), call("t9", "new")]
    for night in range(2):
        put(f"tasks-night-{night}.csv", *rows, call(f"u{night}"))
        assert asked("import")["totals"]["rejected"] == 4
    assert there(target) == ["call", "call", "new"]
    code, out, _ = chartferry("rejects", "retry")
    assert (code, there(target)) == (3, ["call", "call", "new"])
    assert "rows were taken back by a person: chartferry rejects retry --taken-back loads them" in out
    found = asked("rejects", "retry", "--taken-back")
    assert found["totals"]["created"] == 4
    assert there(target) == ["call", *(["call"] + [f"call {n}" for n in range(4)]), "new"]
    assert {state for _, state in rejects(home)} == {"closed"}
    assert asked("verify")["exit_code"] == 0


@pytest.mark.alike
@pytest.mark.publishes("reject")
@pytest.mark.parametrize("key", ["t1", "t2"], ids=["its key", "another key"])
def test_a_reject_is_open_again_once_its_correction_was_taken_back(
    key, home, target, put, asked, chartferry, monkeypatch
):
    """LEDGER-17, LEDGER-18: the chart has nothing of it, and it may go once more, in one of its ways."""
    with monkeypatch.context() as patch:
        publish_nothing(patch)
        put("tasks-1.csv", "t1,p1,call,odd,a")
        asked("import")
        (path,) = export(home, chartferry)
        corrected = path.read_text().replace("t1,p1,call,odd", f"{key},p1,call,requested")
        (home / "inbox" / "tasks-2.csv").write_text(corrected)
        batch = asked("import")["batches"][0]["batch_id"]
    assert (there(target), rejects(home)) == (["call"], [("t1", "closed")])
    assert asked("undo", batch)["taken"] == 1
    assert published(home, "SELECT state, closed_by_batch FROM reject") == [("open", None)]
    publish_nothing(monkeypatch)
    assert [each["open_rejects"] for each in json.loads(chartferry("status", "--json")[1])["batches"]] == [1, 0]
    for again in (["import", home / "batches" / batch / "source" / "tasks-2.csv"], ["rejects", "retry"]):
        assert asked(*map(str, again))["totals"]["skipped"] == 1
        assert (there(target), rejects(home)) == ([], [("t1", "open")])
    old = export(home, chartferry)[-1]
    put("tasks-3.csv", call("t1", "mended in the source"))
    assert asked("import")["totals"]["created"] == 1
    assert rejects(home) == [("t1", "closed")]
    (home / "inbox" / "tasks-4.csv").write_text(old.read_text().replace(f"{key},p1,call", "t4,p1,call"))
    found = asked("import")
    assert (found["totals"]["created"], found["batches"][0]["reasons"]) == (0, {"LEDGER-07": 1})
    assert there(target) == ["mended in the source"]


@pytest.mark.parametrize("is_corrected", [True, False], ids=["corrected", "tried again as it was"])
def test_a_reject_whose_loaded_record_was_undone_is_exported_with_that_reason(
    is_corrected, home, target, put, asked, chartferry
):
    """CLI-CMD-04, LEDGER-18: the former reason no longer applies: the row was good."""
    target.refuse = lambda body: body["description"] == "odd"
    put("tasks-1.csv", call("t1", "odd"))
    first = asked("import")["batches"][0]["batch_id"]
    (path,) = export(home, chartferry)
    [row] = csv.DictReader(path.read_text().splitlines())
    name = row["_reject_id"]
    assert row["_reasons"].startswith("business-rule: ")
    if is_corrected:
        (home / "inbox" / "tasks-2.csv").write_text(path.read_text().replace("odd", "right"))
        batch = asked("import")["batches"][0]["batch_id"]
    else:
        target.refuse = lambda _: False
        batch = asked("rejects", "retry")["batches"][0]["batch_id"]
    assert asked("undo", batch)["taken"] == 1
    exported = export(home, chartferry)[-1]
    [row] = csv.DictReader(exported.read_text().splitlines())
    found = row["_reject_id"], row["task_id"], row["_reasons"].partition(" at 20")[0]
    assert found == (name, "t1", f"TAKEN-BACK: the record was taken back by undo of {batch}")
    assert row["_reasons"].count(": ") == 1
    [told] = json.loads(chartferry("status", first, "--json")[1])["batches"][0]["rejects"]
    assert (told["reject_id"], told["rules"]) == (name, ["TAKEN-BACK"])
    (home / "inbox" / "again.csv").write_text(exported.read_text())
    assert asked("import")["totals"]["created"] == 1
    assert (there(target), rejects(home)) == (["right" if is_corrected else "odd"], [("t1", "closed")])


@pytest.mark.long
def test_a_reject_is_closed_again_once_its_correction_is_loaded_again(home, target, put, asked, chartferry):
    """LEDGER-17, LEDGER-18"""
    put("tasks-1.csv", "t1,p1,call,odd,a")
    asked("import")
    (path,) = export(home, chartferry)
    (home / "inbox" / "tasks-2.csv").write_text(path.read_text().replace("t1,p1,call,odd", "t2,p1,call,requested"))
    batch = asked("import")["batches"][0]["batch_id"]
    asked("undo", batch)
    assert rejects(home) == [("t1", "open")]
    assert asked("import", "--again", batch)["totals"]["created"] == 1
    assert (there(target), rejects(home)) == (["call"], [("t1", "closed")])
    put("tasks-3.csv", call("t1"))
    assert asked("import")["batches"][0]["reasons"] == {"LEDGER-07": 1}
    assert asked("verify")["exit_code"] == 0


@pytest.mark.long
def test_a_feed_may_reload_undone_records_by_a_setting(undone, home, target, put, asked):
    """LEDGER-18"""
    feed_file(home, "tasks", 'kind = "tasks"\nsource = "default"\nfiles = ["tasks*"]\ntaken_back = "load"\n', TASKS)
    put("tasks-2.csv", call("t1", "call 1"))
    assert asked("import")["totals"]["created"] == 1
    assert there(target) == ["call 1"]


def test_a_row_imported_by_its_reject_id_is_loaded_although_its_record_was_taken_back(
    undone, home, target, put, asked, chartferry
):
    """LEDGER-18, CLI-CMD-05: the reject id shows that a person wants it."""
    put("tasks-2.csv", call("t1", "call 1"))
    asked("import")
    (path,) = export(home, chartferry)
    (home / "inbox" / "anything.csv").write_text(path.read_text())
    assert asked("import")["totals"]["created"] == 1
    assert (there(target), rejects(home)) == (["call 1"], [("t1", "closed")])


@pytest.mark.long
def test_after_an_undo_a_refused_row_may_be_corrected_and_is_then_created(undone, home, target, put, asked):
    """LEDGER-18"""
    target.refuse = lambda body: body.get("description") == "wrong"
    put("tasks-2.csv", call("t1", "wrong"))
    assert asked("import")["totals"]["refused"] == 1
    put("tasks-3.csv", call("t1", "right"))
    assert asked("import")["totals"]["created"] == 1
    assert (there(target), rejects(home)) == (["right"], [("t1", "closed")])
    assert asked("verify")["exit_code"] == 0


@pytest.mark.long
@pytest.mark.publishes("import_row")
def test_a_record_without_an_amount_is_published_without_one(home, put, asked):
    """REPORT-15: no sum of tables over tasks or answers is made of it."""
    put("tasks-1.csv", call("t1"), "t2,p1,call,odd,a")
    assert asked("import")["exit_code"] == 3
    assert published(home, "SELECT amount FROM import_row") == [(None,)]
    assert published(home, "SELECT sum(amount_received)::varchar FROM import_batch") == [("0.00",)]

"""A feed that gets another name, source or key makes nothing a second time: such a file is stopped."""

import json
import shutil
import sys
from contextlib import closing
from pathlib import Path
from subprocess import run

import pytest

from pipelines.ledger.ledger import Ledger
from pipelines.validation import withheld_files
from tests.support.commands import totals_close
from tests.support.exports import PAYMENTS, TASKS, feed_file, put


@pytest.fixture(params=[True, False], ids=["with additions", "bare"])
def till(request, home, target):
    """Puts a till's export of payments with these numbers into the inbox, beside a feed file of this name."""
    target.additions = request.param

    def export(feed, numbers, source="", cents=0):
        shutil.rmtree(home / "feeds", ignore_errors=True)
        feed_file(home, feed, f'{source}kind = "payments"\nfiles = ["till*.csv"]\n', PAYMENTS)
        rows = [f"k{number},p{number % 7},{number}.{cents:02},2026-03-01,\n" for number in numbers]
        put(home, f"till-{len(rows)}.csv", PAYMENTS + "".join(rows))

    return export


def test_a_file_under_a_renamed_feed_is_stopped_and_passes_with_its_former_source(till, target, asked):
    """LEDGER-01, LEDGER-03"""
    till("till", range(1, 4))
    assert asked("import")["totals"]["created"] == 3
    till("cash", range(1, 4))
    assert asked("import", "--dry-run")["batches"][0]["state"] == "stopped"
    found = asked("import")
    assert (found["exit_code"], found["batches"][0]["state"]) == (4, "stopped")
    assert 'source = "till"' in found["batches"][0]["message"]
    assert len(target.stored) == 3
    till("cash", range(1, 4), 'source = "till"\n')
    found = asked("import")
    totals_close(found)
    assert (found["exit_code"], found["totals"]["created"]) == (0, 0)
    assert len(target.stored) == 3
    assert asked("verify")["exit_code"] == 0


def test_a_feed_that_allows_copayments_alone_lets_no_file_through_that_seems_to_be_loaded(till, home, target, asked):
    """LEDGER-01, LEDGER-23: it answers one question, and not every one."""
    till("till", range(1, 4), allowed := 'copayments = "all"\n')
    assert asked("import")["totals"]["created"] == 3
    till("till", range(1, 4), allowed)
    path = home / "inbox" / "till-3.csv"
    path.write_text(path.read_text().replace("k", "other-"))
    found = asked("import")
    assert (found["exit_code"], found["batches"][0]["state"]) == (4, "stopped")
    assert len(target.stored) == 3


def test_a_longer_export_is_stopped_wherever_the_known_records_stand(till, target, asked, monkeypatch):
    """LEDGER-03"""
    monkeypatch.setattr("pipelines.validation.withheld_files.LOOKED_AT", 50)
    monkeypatch.setattr("pipelines.validation.withheld_files.ROWS_A_LOOK", 7)
    till("till", range(400, 500))
    asked("import")
    till("cash", range(1, 500))
    assert asked("import")["batches"][0]["state"] == "stopped"
    assert len(target.stored) == 100


def test_a_file_that_was_loaded_under_other_keys_is_stopped(till, home, target, asked):
    """LEDGER-02: its feed file makes another key of the same rows now."""
    till("till", range(1, 4))
    asked("import")
    till("till", range(1, 4))
    feed = home / "feeds" / "till.toml"
    before = feed.read_text()
    feed.write_text(before.replace('payment_id = "payment_id"', 'payment_id = { column = "payment_id", before = "r" }'))
    found = asked("import")
    assert (found["exit_code"], found["batches"][0]["state"]) == (4, "stopped")
    assert "under other keys" in found["batches"][0]["message"]
    assert len(target.stored) == 3
    till("till", range(1, 4))
    assert asked("import")["totals"]["unchanged"] == 3


def rekeyed(home, feed="till"):
    """Makes the feed put a sign before its keys."""
    file = home / "feeds" / f"{feed}.toml"
    text = file.read_text().replace('payment_id = "payment_id"', 'payment_id = { column = "payment_id", before = "r" }')
    file.write_text(text)


@pytest.mark.long
def test_a_longer_export_is_stopped_once_the_feed_makes_other_keys(till, home, target, asked):
    """LEDGER-02: also when a file of new rows came first. With the key that it had, the feed goes on."""
    till("till", range(1, 9))
    asked("import")
    till("till", range(10, 12))
    rekeyed(home)
    assert asked("import")["totals"]["created"] == 2
    till("till", range(1, 13))
    rekeyed(home)
    assert asked("import", "--dry-run")["batches"][0]["state"] == "stopped"
    found = asked("import")
    assert (found["exit_code"], found["batches"][0]["state"]) == (4, "stopped")
    assert "under other keys" in found["batches"][0]["message"]
    assert len(target.stored) == 10
    till("till", range(1, 10))
    assert (found := asked("import"))["totals"]["created"] == 1, found
    assert len(target.stored) == 11


@pytest.mark.long
def test_tasks_that_say_the_same_are_others_while_the_key_is_made_as_it_was(home, target, asked):
    """LEDGER-02: also where the feed file was changed in what does not make the key."""
    feed = feed_file(home, "tasks", 'kind = "tasks"\nfiles = ["tasks*"]\n', TASKS)
    text = feed.read_text()

    def sent(first, said):
        feed.write_text(said)
        rows = [f"k{number},p1,Call,requested,d1\n" for number in range(first, first + 5)]
        put(home, f"tasks-{first}.csv", TASKS + "".join(rows))
        (batch,) = asked("import")["batches"]
        return batch["state"], batch["batch_id"]

    assert sent(10, text)[0] == sent(20, text.replace("[columns]", 'changed = "skip"\n[columns]'))[0] == "finished"
    rekeyed = text.replace('"task_id"', '{ column = "task_id", before = "r" }')
    state, name = sent(30, rekeyed)
    assert state == "stopped"
    assert asked("import", "--new", name)["totals"]["created"] == 5
    assert sent(40, rekeyed)[0] == "finished", "it was asked once"
    assert len(target.stored) == 20


def test_a_file_that_another_importer_loads_meanwhile_is_not_stopped(till, target, asked, monkeypatch):
    """LEDGER-10: its records were not known when they were looked up, and a moment later are, by the same keys."""
    till("till", range(1, 4))
    asked("import")
    till("till", range(1, 4))
    known, looks = Ledger.known, []

    def known_late(*of):
        looks.append(of)
        return known(*of) if len(looks) > 1 else {}

    monkeypatch.setattr(Ledger, "known", known_late)
    found = asked("import")
    assert len(looks) > 1
    assert (found["exit_code"], found["totals"]["unchanged"]) == (0, 3)
    assert len(target.stored) == 3


@pytest.mark.long
def test_equal_keys_of_two_sources_are_different_records_if_their_contents_differ(till, target, asked):
    """LEDGER-01: nor does a record that was never sent count as known."""
    till("till", range(1, 11))
    asked("import")
    till("cash", range(1, 11), cents=50)
    assert asked("import")["totals"]["created"] == 10
    target.refuse = lambda body: body["amount"]["value"] > 20
    till("till", range(21, 24))
    assert asked("import")["totals"]["refused"] == 3
    target.refuse = lambda body: False
    till("cash", range(21, 24))
    assert asked("import")["totals"]["created"] == 3


@pytest.mark.long
def test_a_line_whose_key_the_feed_reads_otherwise_now_counts_once(home, target, asked):
    """LEDGER-02: it keeps the outcome that it had."""
    target.additions = False
    feed = feed_file(home, "payments", 'kind = "payments"\nfiles = ["payments*"]\nchanged = "skip"\n', PAYMENTS)
    for name, row in (("payments-b.csv", "c1,p1,1.00,2026-03-01,"), ("payments-a.csv", "k1,p1,1.00,2026-03-01,c1")):
        put(home, name, f"{PAYMENTS}{row}\n")
        asked("import")
    keyless = feed.read_text().replace('claim_id = "claim_id"\n', "")
    feed.write_text(keyless.replace('payment_id = "payment_id"', 'payment_id = "claim_id"'))
    put(home, "payments-a.csv", f"{PAYMENTS}k1,p1,1.00,2026-03-01,c1\n")
    asked("import")
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        counts = [(batch["accepted"], batch["rejected"], batch["created"]) for batch in ledger.batches()]
    assert counts == [(1, 0, 1)] * 2


def without_zeros(home):
    """Takes the zeros from the keys in the inbox, as a spreadsheet does."""
    for path in (home / "inbox").glob("*.csv"):
        path.write_text(path.read_text().replace("\n00", "\n"))


def test_payments_whose_keys_a_spreadsheet_changed_are_stopped_until_a_person_says_that_they_are_others(
    home, target, asked, chartferry
):
    """LEDGER-02: by what a payment says, and only where there are several. Tasks may well say the same."""
    head = "payment_id,patient_id,amount,paid_on\n"
    rows = [f"00{number},p1,{number}.00,2026-03-0{number}\n" for number in range(1, 9)]
    put(home, "payments-1.csv", head + "".join(rows[:6]))
    first = asked("import")["batches"][0]["batch_id"]
    put(home, "payments-2.csv", head + "".join(rows))
    without_zeros(home)
    found = asked("import")
    (batch,) = found["batches"]
    assert (found["exit_code"], batch["state"]) == (4, "stopped")
    assert "6 of 8 records that were looked at are known with the same content under other keys" in batch["message"]
    name = batch["batch_id"]
    assert f"chartferry import --new {name}" in batch["message"]
    assert len(target.stored) == 6
    put(home, "payments-3.csv", head + rows[0] + "x1,p1,1.00,2026-03-01\n")
    assert asked("import")["totals"]["created"] == 1, "one alone may be a second one"
    assert chartferry("import", "--new", "payments-none")[0] == 4
    assert chartferry("import", "--new", first)[0] == 4, "nobody asked for it"
    assert asked("import", "--new", name, "--why", "the bank says so")["totals"]["created"] == 8
    decisions = json.loads(chartferry("status", name, "--json")[1])["batches"][0]["decisions"]
    assert [each["why"] for each in decisions] == ["the bank says so"]
    assert chartferry("import", "--new", "payments-none", "--again", name)[0] == 2
    put(home, "payments-4.csv", head + "".join(rows).replace("00", "Z", 8))
    assert asked("import")["batches"][0]["state"] == "stopped", "one file was confirmed, and no other"


@pytest.mark.long
def test_rows_of_a_file_that_was_loaded_in_part_are_looked_for_too(home, target, asked, chartferry):
    """LEDGER-02: what had been refused is not loaded beside its like from another file."""
    head = "payment_id,patient_id,amount,paid_on\n"
    rows = [f"00{number},p1,{number}.00,2026-03-0{number}\n" for number in range(1, 6)]
    target.refuse = lambda body: body["amount"]["value"] > 1
    put(home, "payments-1.csv", head + "".join(rows))
    assert asked("import")["totals"]["refused"] == 4
    target.refuse = lambda body: False
    put(home, "payments-2.csv", head + "".join(rows[1:]))
    without_zeros(home)
    assert asked("import")["totals"]["created"] == 4
    assert chartferry("rejects", "retry")[0] == 4
    put(home, "payments-1.csv", head + "".join(rows))
    assert asked("import")["exit_code"] == 4
    assert len(target.stored) == 5


def test_two_equal_payments_are_not_both_known_by_one(home, target, asked):
    """LEDGER-02"""
    head = "payment_id,patient_id,amount,paid_on\n"
    put(home, "payments-1.csv", head + "k1,p1,1.00,2026-03-01\n")
    asked("import")
    put(home, "payments-2.csv", head + "k2,p1,1.00,2026-03-01\nk3,p1,1.00,2026-03-01\n")
    assert asked("import")["totals"]["created"] == 2


@pytest.mark.long
def test_rows_that_another_importer_loaded_meanwhile_do_not_stop_the_file(home, target, asked, monkeypatch):
    """LEDGER-02, LEDGER-10: their keys were new when they were looked up, and their content was known just after."""
    head = "payment_id,patient_id,amount,paid_on\n"
    rows = [f"k{number},p1,{number}.00,2026-03-01\n" for number in range(1, 9)]
    other, looked_up = home.parent / "payments-other.csv", withheld_files._new
    other.write_text(head + "".join(rows[:6]))
    found = list[int]()

    def taken_meanwhile(*of):
        new = looked_up(*of)
        if not found:
            command = [sys.executable, "-m", "tests.support.unpublished", "--home", str(home), "import", str(other)]
            run(command, cwd=Path(__file__).parents[3], capture_output=True, check=True)
        found.append(len(new))
        return new

    monkeypatch.setattr(withheld_files, "_new", taken_meanwhile)
    put(home, "payments-1.csv", head + "".join(rows))
    (batch,) = asked("import")["batches"]
    assert (found, batch["state"]) == ([8, 2], "finished"), batch["message"]
    assert len(target.stored) == 8
    put(home, "payments-2.csv", head + "".join(row.replace("k", "m") for row in rows))
    assert asked("import")["batches"][0]["state"] == "stopped"
    assert found[2:] == [8, 8], "looked up before it was said, and after"


@pytest.mark.long
def test_a_small_file_under_new_keys_that_passed_does_not_let_the_full_export_pass(home, target, asked):
    """LEDGER-02: its tasks would be made a second time, under other keys."""
    feed = feed_file(home, "tasks", 'kind = "tasks"\nfiles = ["tasks*"]\n', TASKS)
    rows = [f"k{number},p1,Call {number},requested,d1\n" for number in range(7)]
    put(home, "tasks-1.csv", TASKS + "".join(rows[:5]))
    asked("import")
    feed.write_text(feed.read_text().replace('"task_id"', '{ column = "task_id", before = "r" }'))
    put(home, "tasks-2.csv", TASKS + rows[5])
    assert asked("import")["totals"]["created"] == 1
    put(home, "tasks-3.csv", TASKS + "".join(rows))
    assert asked("import")["batches"][0]["state"] == "stopped"
    assert len(target.stored) == 6


@pytest.mark.long
def test_known_rows_that_are_set_aside_anyway_do_not_stop_a_file(home, target, asked, chartferry):
    """LEDGER-02, LEDGER-07: a person loaded them under other keys before the source corrected them."""
    head = "payment_id,patient_id,amount,paid_on\n"
    put(home, "payments-1.csv", head + "k1,p1,one,2026-03-01\nk2,p1,two,2026-03-01\n")
    asked("import")
    chartferry("rejects", "export", "--out", home.parent / "out")
    (export,) = (home.parent / "out").iterdir()
    mended = export.read_text().replace("k1,p1,one", "k1-b,p1,1.00").replace("k2,p1,two", "k2-b,p1,2.00")
    put(home, "fixed.csv", mended)
    assert asked("import")["totals"]["created"] == 2
    for night in range(2):
        put(
            home,
            f"payments-n{night}.csv",
            f"{head}k1,p1,1.00,2026-03-01\nk2,p1,2.00,2026-03-01\nn{night},p2,9.00,2026-03-02\n",
        )
        totals = asked("import")["totals"]
        assert (totals["created"], totals["rejected"]) == (1, 2)
    assert len(target.stored) == 4

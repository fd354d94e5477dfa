"""Money as the tables count it: each payment of the source once, and no difference once nothing is open."""

import json
import shutil
import sqlite3
from contextlib import closing
from datetime import timedelta
from unittest.mock import Mock

import duckdb
import pytest

from pipelines.corrections.retention import purge_older
from pipelines.home import arrow
from pipelines.importing.current_problems import broken_now
from pipelines.ledger import unanswered_records
from pipelines.ledger.access import JOURNAL
from pipelines.ledger.ledger import Ledger
from pipelines.reports.ledger_inputs import UNANSWERED
from tests.support.exports import ANSWERS, QUESTIONS, feed_file, put
from tests.support.publishing import publish_last_target, publish_only

HEADER = "payment_id,patient_id,amount,paid_on,claim_id\n"
DAY = "2026-03-01"


def row(key, amount, patient="p1", day=DAY):
    return f"{key},{patient},{amount},{day},"


@pytest.fixture
def night(home, asked):
    """Imports a file of these rows; total: what its control file says, if it has one."""

    def night(name, *rows, total=None):
        if total is not None:
            control = home / "inbox" / f"{name}.control.json"
            control.write_text(json.dumps({"rows": len(rows), "amount": total}))
        (home / "inbox" / name).write_text(HEADER + "".join(f"{each}\n" for each in rows))
        return asked("import")

    return night


def published(home, query, *more):
    """What the tables say, published anew if anything has come since.

    more: tables beside those of payments and rejects.
    """
    journal, made = home / JOURNAL, home / "made-of.ndjson"
    if more or not made.exists() or made.read_bytes() != journal.read_bytes():
        with closing(Ledger.open(home / "ledger.db")) as ledger, pytest.MonkeyPatch.context() as patch:
            publish_only(patch, "payment_reconciliation", "reject", *more)
            publish_last_target(home, ledger)
        shutil.copy(journal, made)
    with duckdb.connect(str(home / "published/reports.duckdb"), read_only=True) as tables:
        return tables.sql(query).fetchall()


def payments(home):
    return published(home, "SELECT source_key, amount::VARCHAR, fate FROM payment ORDER BY ALL")


def difference(home):
    [(total,)] = published(home, "SELECT sum(difference)::VARCHAR FROM payment_reconciliation")
    return total


def broken(home):
    """The batches that the standing check names as failed."""
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        return [batch for each in broken_now(ledger, home, ledger.clock()).values() for batch in each.failed]


def unanswered(home):
    """By batch, in the order in which they came, how many records nothing answers."""
    return [number for (number,) in published(home, "SELECT unanswered FROM import_batch ORDER BY received_at")]


@pytest.mark.long
@pytest.mark.parametrize("name", ["payments-1.csv", "payments-2.csv"])
def test_wrong_amounts_of_a_stopped_file_count_until_a_later_file_has_their_keys(name, home, night):
    """REPORT-24: at first as not sent."""
    assert night("payments-1.csv", row("k1", "1.00"), row("k2", "30.00"), total="4.00")["exit_code"] == 4
    assert payments(home) == [("k1", "1.00", "not sent"), ("k2", "30.00", "not sent")]
    assert difference(home) == "31.00"
    assert night(name, row("k1", "1.00"), row("k2", "3.00"), total="4.00")["exit_code"] == 0
    assert payments(home) == [("k1", "1.00", "created"), ("k2", "3.00", "created")]
    assert difference(home) == "0.00"


def test_a_good_file_of_its_name_hides_no_payment_of_a_stopped_one(home, night, chartferry):
    """REPORT-24: a till that names its file alike each night; what of one night was not loaded stays to be seen."""
    stopped = night("payments.csv", row("k1", "1.00"), row("k2", "30.00"), row("k3", "5.00"), total="4.00")
    assert night("payments.csv", row("k2", "30.00"), row("k4", "2.00"), total="32.00")["exit_code"] == 0
    left = [
        ("k1", "1.00", "not sent"),
        ("k2", "30.00", "created"),
        ("k3", "5.00", "not sent"),
        ("k4", "2.00", "created"),
    ]
    assert payments(home) == left
    assert difference(home) == "6.00"
    assert broken(home) == [stopped["batches"][0]["batch_id"]]
    assert unanswered(home) == [2, None]
    night("payments.csv", row("k1", "1.00"), row("k3", "", patient=""), total="1.00")
    assert broken(home) == []
    assert unanswered(home) == [0, None, None]
    assert payments(home)[0] == ("k1", "1.00", "created")


@pytest.mark.long
def test_a_stopped_file_that_comes_again_is_answered_by_no_file_that_came_in_between(home, night, monkeypatch):
    """REPORT-24: the import refused it whole, and nothing was said to be broken. Lines are staged a few at once."""
    given = Mock(wraps=arrow.table_of_rows)
    monkeypatch.setattr("pipelines.reports.ledger_inputs.LINES_AT_ONCE", 2)
    monkeypatch.setattr("pipelines.reports.ledger_inputs.arrow.table_of_rows", given)
    rows = [row(f"k{number}", f"{number}.00") for number in (1, 2, 3)]
    other = [row(f"k{number}", f"1{number}.00") for number in (1, 2, 3)]
    said = []
    for number, (some, total) in enumerate([(rows, "9.00"), (other, "36.00"), (rows, "9.00"), (other, "36.00")]):
        night(f"payments-{number}.csv", *some, total=total)
        said.append((unanswered(home)[0], len(broken(home))))
    # The last file came before: it is as old as it was then.
    assert said == [(3, 1), (0, 0), (3, 1), (3, 1)]
    staged = [len(call.args[0]) for call in given.call_args_list if call.args[1] is UNANSWERED]
    assert set(staged) == {1, 2}


@pytest.mark.long
def test_a_corrected_file_that_names_a_payment_otherwise_leaves_it_to_a_person(home, night, chartferry):
    """REPORT-24"""
    [stopped] = night("payments.csv", row("k1", "1.00"), row("k2", "30.00"), total="4.00")["batches"]
    night("payments.csv", row("k1", "1.00"), row("k9", "3.00"), total="4.00")
    assert payments(home) == [("k1", "1.00", "created"), ("k2", "30.00", "not sent"), ("k9", "3.00", "created")]
    assert broken(home) == [stopped["batch_id"]]
    assert chartferry("purge", stopped["batch_id"])[0] == 0
    assert payments(home) == [("k1", "1.00", "created"), ("k9", "3.00", "created")]
    assert (broken(home), unanswered(home)) == ([], [0, None])


def test_retention_keeps_a_file_that_was_not_loaded_until_its_payments_are_answered(home, night):
    """REPORT-24"""
    [stopped] = night("payments.csv", row("k1", "1.00"), total="4.00")["batches"]
    for kept in (True, False):
        with closing(Ledger.open(home / "ledger.db")) as ledger:
            [target] = {each["target"] for each in ledger.batches()}
            later = ledger.clock() + timedelta(days=2)
            said = purge_older(home, ledger, target, 1, later)[stopped["batch_id"]]
        assert (said is not None and "it was not loaded" in said) == kept
        if kept:
            night("payments.csv", row("k1", "1.00"), row("k2", "1.00"))


@pytest.mark.long
@pytest.mark.parametrize("at_once", [unanswered_records.OUTCOMES_A_QUERY, 1])
def test_wrong_amounts_of_known_payments_in_a_stopped_file_are_answered_by_the_next_full_export(
    home, night, monkeypatch, at_once
):
    """REPORT-24: there they are unchanged, and stay records of the first file. Its outcomes are read in pages."""
    monkeypatch.setattr(unanswered_records, "OUTCOMES_A_QUERY", at_once)
    night("payments-1.csv", row("k1", "1.00"), row("k2", "2.00"))
    night("payments-2.csv", row("k1", "1.00"), row("k2", "20.00"), total="4.00")
    assert broken(home)
    every = [row(f"k{number}", f"{number}.00") for number in (1, 2, 3)]
    assert night("payments-3.csv", *every, total="6.00")["exit_code"] == 0
    assert payments(home) == [(f"k{number}", f"{number}.00", "created") for number in (1, 2, 3)]
    assert (broken(home), unanswered(home)) == ([], [None, 0, None])


@pytest.mark.long
def test_a_stopped_file_without_a_record_is_answered_by_nothing(home, night):
    """REPORT-24: its control totals say that it should have some."""
    night("payments.csv", total="4.00")
    night("payments.csv", row("k1", "4.00"), total="4.00")
    assert len(broken(home)) == 1
    assert unanswered(home) == [None, None]


def test_rejects_of_a_stopped_file_count_as_other_rejects_do(home, night, chartferry):
    """REPORT-24: until a later file has their keys, or a person is done with them."""
    wrong = (row("", "7.00"), row("k2", "5.00", day="2026-02-31"))
    [stopped] = night("payments-1.csv", row("k1", "1.00"), *wrong, total="99.00")["batches"]
    refused = [("k2", "5.00", "refused"), (None, "7.00", "refused")]
    assert payments(home) == [("k1", "1.00", "not sent"), *refused]
    night("payments-1.csv", row("k1", "1.00"), row("k9", "7.00"), total="8.00")
    assert payments(home) == [("k1", "1.00", "created"), refused[0], ("k9", "7.00", "created"), refused[1]]
    assert unanswered(home) == [2, None]
    night("payments-1.csv", row("k2", "5.00"), total="5.00")
    assert unanswered(home) == [1, None, None]
    [(left,)] = published(home, "SELECT reject_id FROM reject WHERE state = 'open'")
    assert broken(home) == [stopped["batch_id"]]
    assert chartferry("rejects", "discard", left, "--why", "it is k9")[0] == 0
    assert (broken(home), unanswered(home)) == ([], [0, None, None])


@pytest.mark.long
def test_a_payment_of_two_stopped_files_counts_as_the_newer_has_it(home, night):
    """REPORT-24"""
    night("payments-1.csv", row("k1", "1.00"), total="4.00")
    night("payments-2.csv", row("k1", "2.00"), total="4.00")
    assert payments(home) == [("k1", "2.00", "not sent")]


@pytest.mark.long
def test_another_amount_of_a_known_payment_in_a_stopped_file_is_shown_as_not_sent(home, night):
    """REPORT-24: the payment itself stays as it is."""
    night("payments-1.csv", row("k1", "1.00"))
    night("payments-2.csv", row("k1", "2.00"), total="4.00")
    assert payments(home) == [("k1", "1.00", "created"), ("k1", "2.00", "not sent")]


@pytest.mark.long
def test_a_payment_that_is_set_aside_each_night_counts_as_the_newest_file_has_it(home, night):
    """REPORT-18: without a key it is known by what it says, and as many count as one file has alike."""
    keyless = [row("", "7.00"), row("", "7.00"), row("", "8.00")]
    for number in (1, 2, 3, 1):
        aside = [*keyless[: number + 1], row("k2", f"{10 + number}.00", patient=""), row("k2", "1.00", patient="")]
        night(f"payments-{number}.csv", *aside[: -1 if number == 3 else None], row("k3", "5.00"))
    assert payments(home) == [
        ("k2", "13.00", "refused"),
        ("k3", "5.00", "created"),
        (None, "7.00", "refused"),
        (None, "7.00", "refused"),
        (None, "8.00", "refused"),
    ]
    night("payments-4.csv", row("k2", "14.00", patient=""), row("k2", "15.00", patient=""))
    assert payments(home)[:2] == [("k2", "14.00", "refused"), ("k2", "15.00", "refused")]


@pytest.mark.alike
@pytest.mark.parametrize("key", ["k1", ""], ids=["keyed", "keyless"])
def test_a_payment_that_was_set_aside_twice_and_is_corrected_counts_once(home, night, chartferry, key):
    """REPORT-18: its older appearance does not come back."""
    wrong = row(key, "7.00", day="2026-02-30") if key else row(key, "7.00")
    for number in (1, 2):
        said = night(f"payments-{number}.csv", wrong, row(f"d{number}", "1.00"))
    created = [("d1", "1.00", "created"), ("d2", "1.00", "created")]
    assert payments(home) == [*created, (key or None, "7.00", "refused")]
    newest = said["batches"][0]["batch_id"]
    assert chartferry("rejects", "export", "--batch", newest, "--out", home.parent / "out")[0] == 0
    [exported] = (home.parent / "out").glob("*.csv")
    mended = exported.read_text().replace(f",{key},p1," if key else ",,p1,", ",k5,p1,").replace("02-30", "02-03")
    (home / "inbox" / "payments-mended.csv").write_text(mended)
    night("payments-3.csv", row("d3", "1.00"))
    assert payments(home) == [*created, ("d3", "1.00", "created"), ("k5", "7.00", "created")]


@pytest.mark.long
def test_a_reject_of_an_older_version_is_the_same_as_a_later_one(home, night):
    """REPORT-18: older versions kept no time of it, by which one without a key is known."""
    aside = [row("", "7.00"), row("", "7.00"), row("", "8.00")]
    night("payments-1.csv", *aside)
    with closing(sqlite3.connect(home / "ledger.db")) as ledger, ledger:
        [(at,)] = ledger.execute("SELECT DISTINCT source_at FROM reject").fetchall()
        ledger.execute("UPDATE reject SET source_at = NULL")
    night("payments-2.csv", *aside[1:], row("k1", "1.00"))
    refused = [(None, "7.00", "refused"), (None, "7.00", "refused"), (None, "8.00", "refused")]
    assert payments(home) == [("k1", "1.00", "created"), *refused]
    with closing(sqlite3.connect(home / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE reject SET source_at = ?", [at])  # as its journal has it


FEED = """
kind = "answers"
files = ["form*.csv"]
source = "forms"
changed = "supersede"
"""


@pytest.mark.long
def test_a_record_counts_once_by_month_however_often_it_came(home, asked, target, chartferry):
    """REPORT-18: a response that was superseded, taken back and loaded anew is one record."""
    target.stored["q1"] = QUESTIONS
    feed_file(home, "form", FEED, ANSWERS)
    for number, answer in enumerate(("no", "yes", "perhaps"), 1):
        put(home, f"form{number}.csv", f"{ANSWERS}r1,p1,q1,1,{answer}\n")
        [batch] = asked("import")["batches"]
        assert batch["counts"]["rejected"] == 0
        if number == 2:
            assert chartferry("undo", batch["batch_id"])[0] == 0
    by_month = "SELECT state, records FROM record_by_month"
    assert published(home, by_month, "import_row", "record_by_month") == [("created", 1)]
    assert len(published(home, "FROM import_row")) == 3


def test_a_payment_that_is_set_aside_has_its_day_where_it_can_be_read(home, night):
    """REPORT-18"""
    amiss = ["-5.00,{day},", "0.00,{day},", "9.00,{day},no such claim", "99999999.00,{day},"]
    wrong = [f"k{number},p1,{cells.format(day=DAY)}" for number, cells in enumerate(amiss)]
    night("payments-1.csv", *wrong, row("", "1.00"), row("k7", "2.00", "bad id!"), row("k8", "3.00", ""))
    count = "SELECT count(*), count(amount), min(paid_on)::VARCHAR, max(paid_on)::VARCHAR FROM payment"
    assert published(home, f"{count} WHERE paid_on IS NOT NULL") == [(7, 7, DAY, DAY)]
    night("payments-2.csv", row("k9", "4.00", day="2026-13-01"), row("k10", "4.00", day=""))
    assert published(home, f"{count} WHERE paid_on IS NULL") == [(2, 2, None, None)]


def test_a_date_beyond_the_range_of_the_tables_is_published_as_empty(home, asked):
    """REPORT-18"""
    (home / "feeds").mkdir(exist_ok=True)
    (home / "feeds" / "n.toml").write_text('kind = "payments"\nfiles = ["n*.ndjson"]\nresources = true\n')
    about = {"resourceType": "PaymentNotice", "request": {"reference": "Patient/bad id!"}}
    amount = {"value": 1, "currency": "USD"}
    days = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "0500-01-01", f"{DAY}T10:00:00Z"]
    notices = [about | {"id": f"n{n}", "created": day, "amount": amount} for n, day in enumerate(days)]
    (home / "inbox" / "n1.ndjson").write_text("".join(f"{json.dumps(each)}\n" for each in notices))
    assert asked("import")["totals"]["rejected"] == len(days)
    assert published(home, "SELECT count(*), count(paid_on), max(paid_on)::VARCHAR FROM payment") == [(4, 1, DAY)]


@pytest.mark.long
def test_a_created_payment_that_comes_again_with_an_invalid_date_counts_once(home, night):
    """REPORT-24: key, patient and amount show that it is the same; with another amount it is shown beside."""
    night("payments-1.csv", row("k1", "1.00"), row("k2", "2.00"))
    night("payments-2.csv", row("k1", "1.00", day="2026-02-31"), row("k2", "3.00", day="2026-02-31"))
    assert payments(home) == [("k1", "1.00", "created"), ("k2", "2.00", "created"), ("k2", "3.00", "refused")]
    [(received,)] = published(home, "SELECT sum(received)::VARCHAR FROM payment_reconciliation")
    assert (received, difference(home)) == ("6.00", "0.00")


def test_a_created_payment_does_not_carry_the_reject_of_a_later_change(home, night):
    """REPORT-24: it would seem to have been corrected before it was made."""
    night("payments-1.csv", row("k1", "1.00"), row("k2", "two"))
    night("payments-2.csv", row("k1", "3.00"), row("k2", "2.00"))
    found = published(home, "SELECT source_key, amount::VARCHAR, fate, reject_id FROM payment ORDER BY ALL")
    rejects = dict(published(home, "SELECT state, reject_id FROM reject"))
    assert found == [
        ("k1", "1.00", "created", None),
        ("k1", "3.00", "refused", rejects["open"]),
        ("k2", "2.00", "created", rejects["closed"]),
    ]


def test_a_payment_that_the_target_refused_says_when_it_was_sent_and_one_that_a_rule_rejected_does_not(
    night, target, home
):
    """REPORT-24"""
    target.refuse = lambda body: body["amount"]["value"] > 5
    night("payments-1.csv", row("k1", "1.00"), row("k2", "9.00"), row("k3", "-1.00"))
    night("payments-2.csv", row("k1", "2.00"))
    query = (
        "SELECT source_key, amount::VARCHAR, fate, first_sent_at > received_at FROM payment ORDER BY source_key, fate"
    )
    assert published(home, query) == [
        ("k1", "1.00", "created", True),
        ("k1", "2.00", "refused", None),
        ("k2", "9.00", "refused", True),
        ("k3", "-1.00", "refused", None),
    ]


def test_a_batch_with_a_row_in_doubt_is_running_and_has_no_end(night, target, home, asked):
    """REPORT-23: the time at which its last run ended was shown as that at which the batch did."""
    target.additions, target.faults = False, ["lost_before"]
    [batch] = night("payments-1.csv", row("k1", "1.00"))["batches"]
    assert batch["counts"]["in_doubt"] == 1
    ended = "SELECT state, finished_at IS NOT NULL FROM import_batch"
    assert published(home, ended) == [("running", False)]
    asked("doubts", "resend", f"{batch['batch_id']}:2")
    assert asked("import")["totals"]["created"] == 1
    assert published(home, ended) == [("finished", True)]

"""Money, end to end with the commands, at bare targets with clocks of every kind."""

import sqlite3
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta

import duckdb
import pytest

from pipelines.ledger.ledger import Ledger
from tests.support.commands import totals_close
from tests.support.publishing import publish_last_target, publish_only

HEADER = "payment_id,patient_id,amount,paid_on,claim_id\n"


def whole_seconds(moment):
    return moment.replace(microsecond=0).isoformat()


CLOCKS = {
    "keeps microseconds": (timedelta(0), datetime.isoformat),
    "keeps seconds": (timedelta(0), whole_seconds),
    "two minutes ahead": (timedelta(minutes=2), whole_seconds),
    "two minutes behind": (timedelta(minutes=-2), datetime.isoformat),
}
"""How far a target's clock is from ours, and how it keeps times."""
USUAL = "keeps seconds"


def clocks(short):
    """The parameters of `bare`: `make test` takes the clock of this name alone."""
    return [pytest.param(clock, id=name, marks=[pytest.mark.long] * (name != short)) for name, clock in CLOCKS.items()]


def on_clocks(short):
    """For tests of what depends on the clock: `make test` takes another one in each of them."""
    return pytest.mark.parametrize("bare", clocks(short), indirect=True)


@pytest.fixture(params=clocks(USUAL))
def bare(request, target):
    """A bare target, with each of the clocks."""
    off, keeps = request.param
    target.additions, target.keeps, target.now = False, keeps, lambda: datetime.now(UTC) + off
    return target


@pytest.fixture
def drop(home):
    def drop(name, *rows):
        (home / "inbox" / name).write_text(HEADER + "".join(f"{row}\n" for row in rows))

    return drop


def arrives(target, amount):
    """A request that a gateway held arrives after all."""
    about = {"resourceType": "PaymentNotice", "status": "active", "request": {"reference": "Patient/p1"}}
    target.create(about | {"amount": {"value": amount, "currency": "USD"}, "payment": {}, "recipient": {}})


def paid(target):
    return sorted(body["amount"]["value"] for body in target.of("PaymentNotice"))


def published(home, query):
    """Publish, and return the rows of a query."""
    with closing(Ledger.open(home / "ledger.db")) as ledger, pytest.MonkeyPatch.context() as patch:
        publish_only(patch, "payment_reconciliation", "reject", "import_row")
        publish_last_target(home, ledger)
    with duckdb.connect(str(home / "published/reports.duckdb"), read_only=True) as tables:
        return tables.sql(query).fetchall()


def states(home):
    with closing(sqlite3.connect(home / "ledger.db")) as ledger:
        return Counter(state for (state,) in ledger.execute("SELECT state FROM record"))


@on_clocks("two minutes ahead")
def test_a_payment_without_an_answer_is_found_and_never_made_twice(bare, drop, asked, chartferry):
    """LEDGER-05, LEDGER-06, LEDGER-21"""
    bare.faults = ["lost_after"]
    drop("payments.csv", "k1,p1,25.00,2026-03-01,", "k2,p1,30.00,2026-03-02,")
    found = asked("import")
    totals_close(found)
    assert (found["exit_code"], found["totals"]["adopted"], found["totals"]["created"]) == (0, 1, 1)
    assert paid(bare) == [25.0, 30.0]
    verified = asked("verify")
    assert (verified["exit_code"], verified["ledger_cents"], verified["target_cents"]) == (0, 5_500, 5_500)


@on_clocks("keeps seconds")
def test_a_late_request_after_a_resend_is_named_as_a_double(bare, drop, asked, chartferry):
    """LEDGER-21"""
    bare.faults = ["lost_before"]
    drop("payments.csv", "k1,p1,25.00,2026-03-01,")
    batch = asked("import")["batches"][0]["batch_id"]
    assert chartferry("doubts", "resend", f"{batch}:2")[0] == 0
    arrives(bare, 25.0)
    assert asked("import")["totals"]["created"] == 1
    assert paid(bare) == [25.0, 25.0]
    assert asked("verify")["counts"] == {"double": 1}


@on_clocks("two minutes behind")
def test_a_resend_is_refused_while_the_first_request_may_have_arrived(bare, drop, asked, chartferry):
    """LEDGER-21"""
    bare.faults = ["lost_before"]
    drop("payments.csv", "k1,p1,25.00,2026-03-01,")
    batch = asked("import")["batches"][0]["batch_id"]
    arrives(bare, 25.0)
    (late,) = bare.stored
    code, _, err = chartferry("doubts", "resend", f"{batch}:2")
    assert (code, late in err) == (4, True)
    assert asked("import")["totals"]["unchanged"] == 1
    assert paid(bare) == [25.0]
    assert asked("verify")["counts"] == {}


def test_keys_that_look_the_same_are_one_payment(bare, drop, asked):
    """LEDGER-22"""
    drop("payments-1.csv", "AB 17,p1,10.00,2026-03-01,")
    drop("payments-2.csv", "AB\u00a017,p1,10.00,2026-03-01,")
    drop("payments-3.csv", "AB\u200d 17,p1,10.00,2026-03-01,")
    found = asked("import")
    totals = found["totals"]
    assert (totals["created"], totals["unchanged"], totals["rejected"]) == (1, 1, 1)
    assert paid(bare) == [10.0]


@pytest.mark.long
def test_a_later_file_waits_behind_a_doubt_of_an_earlier_one(bare, drop, home, asked):
    """LEDGER-05: with a balance of 95.00 the payment of day 3 would have the one of day 1 refused for good."""
    bare.refuse = lambda body: sum(paid(bare)) + body["amount"]["value"] > 95
    bare.faults = ["lost_before"]
    drop("payments-1.csv", "A,p1,30.00,2026-03-01,")
    assert asked("import")["exit_code"] == 5
    drop("payments-2.csv", "C,p1,70.00,2026-03-03,")
    found = asked("import")
    totals_close(found)
    assert (found["exit_code"], paid(bare)) == (5, [])
    arrives(bare, 30.0)
    found = asked("import")
    totals_close(found)
    assert (found["exit_code"], found["totals"]["refused"], paid(bare)) == (3, 1, [30.0])
    assert published(home, "SELECT sum(created)::varchar, sum(refused)::varchar FROM payment_reconciliation") == [
        ("30.00", "70.00")
    ]


@pytest.mark.long
def test_the_old_content_again_leaves_the_changed_one_open(bare, drop, home, asked):
    """LEDGER-17"""
    for name, amount in (("payments-1", "10.00"), ("payments-2", "12.00"), ("payments-3", "10.00")):
        drop(f"{name}.csv", f"x1,p1,{amount},2026-03-01,")
        asked("import")
    assert published(home, "SELECT state FROM reject") == [("open",)]
    assert published(home, "SELECT fate, amount::varchar FROM payment ORDER BY ALL") == [
        ("created", "10.00"),
        ("refused", "12.00"),
    ]
    assert states(home) == {"created": 1}


def test_a_payment_that_waits_behind_a_doubt_is_open_in_the_tables(bare, drop, home, asked, chartferry, tmp_path):
    """LEDGER-19: a reject whose correction waits, and a payment of a later file: each counts once, as open."""
    drop("payments-1.csv", "A,p1,10.00,never,", "B,p1,20.00,2026-03-01,")
    asked("import")
    bare.faults = ["lost_before"]
    drop("payments-2.csv", "C,p1,30.00,2026-03-02,")
    asked("import")
    chartferry("rejects", "export", "--out", tmp_path / "out")
    (exported,) = (tmp_path / "out").iterdir()
    (home / "inbox/payments-3.csv").write_text(exported.read_text().replace("never", "2026-03-01"))
    drop("payments-4.csv", "B,p1,20.00,2026-03-01,", "D,p1,40.00,2026-03-03,")
    assert asked("import")["exit_code"] == 5
    assert published(home, "SELECT source_key, fate, amount::varchar FROM payment ORDER BY ALL") == [
        ("A", "open", "10.00"),
        ("B", "created", "20.00"),
        ("C", "open", "30.00"),
        ("D", "open", "40.00"),
    ]


@pytest.mark.long
def test_a_payment_that_is_rejected_in_each_export_counts_once(bare, drop, home, asked):
    """LEDGER-19"""
    bare.refuse = lambda body: True
    for name, other in (("payments-1", "B"), ("payments-2", "C")):
        drop(f"{name}.csv", "A,p1,10.00,2026-03-01,", f"{other},p2,5.00,2026-03-01,")
        asked("import")
    assert published(home, "SELECT source_key, fate FROM payment ORDER BY ALL") == [
        ("A", "refused"),
        ("B", "refused"),
        ("C", "refused"),
    ]


@pytest.mark.long
def test_a_file_put_in_again_that_waits_has_no_end_until_its_rejects_were_judged(bare, drop, home, asked, chartferry):
    """LEDGER-19"""
    drop("payments-1.csv", "A,p1,10.00,2026-03-01,")
    drop("payments-2.csv", "A,p1,12.00,2026-03-01,")
    asked("import")
    bare.faults = ["lost_before"]
    drop("payments-3.csv", "B,p1,5.00,2026-03-02,")
    asked("import")
    drop("payments-2.csv", "A,p1,12.00,2026-03-01,")
    assert asked("import")["exit_code"] == 5
    assert published(home, "SELECT state FROM reject") == [("resubmitted",)]
    arrives(bare, 5.0)
    asked("import")
    assert asked("import")["exit_code"] == 3
    assert published(home, "SELECT state FROM reject") == [("open",)]


@pytest.mark.alike
@pytest.mark.parametrize(("rows", "is_named"), [(1_000, False), (1_001, True)])
def test_a_sum_that_no_table_can_hold_is_named_in_the_summary(rows, is_named, home, chartferry):
    """REPORT-18: each amount alone can be read, and none can be paid."""
    text = "".join(f"k{n},p1,9999999999999.99,2026-03-01,\n" for n in range(rows))
    (home / "inbox" / "payments.csv").write_text(HEADER + text)
    code, out, _ = chartferry("import")
    said = "its amount received is more than the tables can hold, and is empty there; check that the feed reads"
    assert (code, said in out) == (3, is_named)

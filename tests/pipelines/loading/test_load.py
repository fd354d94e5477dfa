"""The load stage with a real ledger and a real server on loopback: every fault, both kinds of target."""

import pytest

from pipelines.ledger.lease import LeaseLost
from pipelines.ledger.ledger import Ledger
from pipelines.loading.book import Book
from pipelines.loading.intake import Intake
from pipelines.loading.row import RowResult
from pipelines.loading.sending import BundleSender
from tests.support.fake_target import FakeTarget
from tests.support.ledgers import lose_ledger
from tests.support.work import TARGET, payment, work_at


@pytest.fixture
def work(tmp_path, request):
    with work_at(tmp_path, FakeTarget()) as work:
        yield work


@pytest.fixture
def bare(tmp_path):
    with work_at(tmp_path, FakeTarget(additions=False)) as work:
        yield work


# -- with batch and conditional create


def test_rows_go_in_bundles_in_order_and_are_created_once(work):
    """IMPORT, LEDGER-01, LEDGER-02"""
    rows = [payment(number) for number in range(1201)]
    loaded = work.run(rows)
    assert loaded.counts == {"created": 1201}
    assert loaded.cents["created"] == 120_100
    assert work.target.sizes == [500, 500, 201]
    assert [body["identifier"][0]["value"] for body in work.target.stored.values()] == [row[2] for row in rows]
    work.agree()
    again = work.run(rows, resuming=False)
    assert again.counts == {"unchanged": 1201}
    assert len(work.target.stored) == 1201
    assert work.table("repeat") == []


def test_the_identifier_names_source_resource_and_key(work):
    work.run([payment(1)])
    (stored,) = work.target.stored.values()
    assert stored["identifier"] == [{"system": "urn:chartferry:default:PaymentNotice", "value": "k1"}]


KEYS = ("a|b", "a,b", "50%", "naïve key", 'quo"te', "a&b=c", "back\\slash", "a+b", "$1")


def test_keys_with_any_characters_are_sent_and_found_again_after_a_lost_ledger(work):
    rows = [payment(number, key=key) for number, key in enumerate(KEYS)]
    work.run(rows)
    work.ledger.close()
    lose_ledger(work.home)
    work.ledger = Ledger.open(work.home / "ledger.db")
    loaded = work.run(rows)
    assert loaded.counts == {"adopted": len(KEYS)}
    assert [stored["identifier"][0]["value"] for stored in work.target.stored.values()] == list(KEYS)


@pytest.mark.parametrize(
    "fault", ["lost_before", "lost_after", "truncated", "missing_entries", "gateway", "error", "redirect"]
)
def test_an_unknown_outcome_is_sent_again_and_doubles_nothing(work, fault):
    """LEDGER-01, LEDGER-11"""
    work.target.faults = [fault]
    loaded = work.run([payment(number) for number in range(20)])
    assert loaded.counts == {"created": 20}
    assert loaded.unusable is None
    assert work.pauses
    work.agree()


@pytest.mark.parametrize("fault", ["busy", "throttled", "forbidden"])
def test_a_write_that_was_surely_not_done_is_tried_again_after_a_pause(work, fault):
    """LEDGER-11"""
    work.target.faults = [fault, fault]
    assert work.run([payment(1)]).counts == {"created": 1}
    assert len(work.pauses) == 2
    if fault == "throttled":
        assert work.pauses == [7.0, 7.0]


@pytest.mark.long
def test_a_target_that_stays_away_leaves_rows_planned_and_the_batch_resumable(work):
    work.target.faults = ["busy"] * 6
    rows = [payment(number) for number in range(1100)]
    loaded = work.run(rows)
    assert loaded.unusable == "the target could not be used: HTTP 503, 6 times"
    assert set(work.states().values()) == {"planned"}
    assert work.target.stored == {}
    assert work.run(rows).counts == {"created": 1100}
    work.agree()


def test_a_target_that_never_answers_clearly_leaves_rows_in_doubt_and_they_are_settled_later(work):
    """LEDGER-01, LEDGER-05"""
    work.target.faults = ["lost_after", "lost_before", "gateway", "error"]
    rows = [payment(number) for number in range(600)]
    loaded = work.run(rows)
    assert loaded.unusable
    assert loaded.counts["in_doubt"] == 500
    assert len(work.target.stored) == 500
    again = work.run(rows)
    assert again.counts == {"created": 600}
    work.agree()


def test_a_bundle_that_is_too_large_is_split(work):
    work.target.limit = 70
    assert work.run([payment(number) for number in range(500)]).counts == {"created": 500}
    assert sum(size for size in work.target.sizes if size <= 70) == 500
    work.agree()


def test_refused_rows_are_rejects_of_stage_load_with_the_outcome(work):
    """LEDGER-07"""
    work.target.refuse = lambda body: body["amount"]["value"] == 5
    loaded = work.run([payment(1), payment(2, cents=500), payment(3)])
    assert loaded.counts == {"created": 2, "refused": 1}
    (reject,) = work.table("reject")
    (reason,) = work.table("reject_reason")
    assert (reject["stage"], reject["state"], reject["line"], reject["source_key"]) == ("load", "open", 3, "k2")
    assert (reason["rule_id"], reason["message"], reason["retryable"]) == (
        "business-rule",
        "Unprocessable entity: the balance would be negative",
        1,
    )


def test_a_refused_row_is_tried_again_and_its_reject_closed_when_it_is_accepted(work):
    """LEDGER-07"""
    work.target.refuse = lambda body: True
    work.run([payment(1)])
    work.target.refuse = lambda body: False
    assert work.run([payment(1)], resuming=False).counts == {"created": 1}
    (reject,) = work.table("reject")
    assert (reject["state"], reject["closed_by_batch"]) == ("closed", "payments-1")


def test_a_known_key_with_other_content_is_rejected_and_nothing_is_sent(work):
    """LEDGER-08, LEDGER-09"""
    work.run([payment(1)])
    writes = work.target.writes
    loaded = work.run([payment(7, cents=900, key="k1")], "payments-2")
    assert loaded.counts == {"rejected": 1}
    assert loaded.cents == {"rejected": 900}
    assert work.target.writes == writes
    (reason,) = work.table("reject_reason")
    said = "the key is known with other content, from line 2 of payments-1"
    assert (reason["rule_id"], reason["column_name"], reason["message"]) == ("LEDGER-08", "payment_id", said)


def test_the_same_record_in_another_file_is_unchanged(work):
    """LEDGER-03"""
    work.run([payment(1)])
    loaded = work.run([payment(4, key="k1", content=payment(1)[5])], "payments-2")
    assert loaded.counts == {"unchanged": 1}
    (repeat,) = work.table("repeat")
    assert (repeat["batch_id"], repeat["line"], repeat["state"]) == ("payments-2", 5, "unchanged")
    assert repeat["resource_id"] in work.target.stored


def test_equal_repeats_within_a_file_are_skipped(work):
    """LEDGER-13"""
    skip = {"line": 9, "lines": 1, "key": "k1", "first_line": 2, "patient_id": "p1", "amount_cents": 100}
    loaded = work.run([payment(1)], skipped=[skip])
    assert loaded.counts == {"created": 1, "skipped": 1}
    assert [row["state"] for row in work.table("repeat")] == ["skipped"]


def test_an_existing_resource_with_the_same_content_is_adopted_and_with_other_content_refused(work):
    """LEDGER-15"""
    key = "urn:chartferry:default:PaymentNotice|"
    for name, value in (("k1", 1.0), ("k2", 2.0)):
        body = {"resourceType": "PaymentNotice", "request": {"reference": "Patient/p1"}, "amount": {"value": value}}
        named = {"identifier": [{"system": key.removesuffix("|"), "value": name}]}
        work.target.create(body | named, f"identifier={key}{name}")
    loaded = work.run([payment(1), payment(2)])
    assert loaded.counts == {"adopted": 1, "refused": 1}
    assert work.states() == {"k1": "adopted", "k2": "refused"}
    assert work.table("reject_reason")[0]["rule_id"] == "KEY-TAKEN"


@pytest.mark.alike
@pytest.mark.parametrize("searches", [True, False], ids=["with a search on _id", "without"])
def test_existing_resources_are_read_in_bulk_after_a_lost_ledger(work, searches):
    """LEDGER-15"""
    rows = [payment(number) for number in range(220)]
    work.run(rows)
    work.ledger.close()
    lose_ledger(work.home)
    work.ledger = Ledger.open(work.home / "ledger.db")
    work.target.reads, work.target.known_parameters = 0, {"_id"} if searches else set()
    assert work.run(rows).counts == {"adopted": 220}
    assert (work.target.reads == 3) == searches
    work.agree()


@pytest.mark.parametrize("after", [False, True])
def test_rows_left_sending_by_a_killed_run_are_settled_by_the_next(work, monkeypatch, after):
    """LEDGER-01, LEDGER-10: killed between the intent and the outcome, before or after the target did it."""

    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    rows = [payment(number) for number in range(10)]
    with monkeypatch.context() as patched:
        if after:
            patched.setattr(Ledger, "settle", killed)
        else:
            patched.setattr(BundleSender, "send", killed)
            patched.setattr(Book, "hold_back", lambda *_: None)
        with pytest.raises(Killed):
            work.run(rows)
    assert set(work.states().values()) == {"sending"}
    assert len(work.target.stored) == (10 if after else 0)
    assert work.run(rows).counts == {"created": 10}
    work.agree()


def test_a_loader_that_lost_the_target_writes_only_certain_outcomes(work):
    """LEDGER-10: what is open is for who took over to settle, and may be settled and sent by now."""
    with work.ledger.lease(TARGET) as lease:
        book = work.book(lease, [payment(1), payment(2)])
        made, left = Intake(book).rows_to_send()
        book.write_down([made, left], [])
        with work.ledger.transaction() as connection:
            connection.exec_driver_sql("UPDATE lease SET owner = 'them'")
        with pytest.raises(LeaseLost):
            book.write_down([], [(made, RowResult("created", "r1", 201)), (left, RowResult("planned"))])
        with pytest.raises(LeaseLost):
            book.hold_back([left])
    assert work.states() == {"k1": "created", "k2": "sending"}
    assert book.loaded.counts == {"created": 1}


def test_a_target_that_shows_its_id_no_longer_gets_nothing(home, target, asked, chartferry):
    """LEDGER-01: under another name everything would go there again."""
    path = home / "inbox" / "payments.csv"
    path.write_text("payment_id,patient_id,amount,paid_on,claim_id\nk1,p1,1.00,2026-03-01,\n")
    batch = asked("import")["batches"][0]["batch_id"]
    target.additions = False
    code, out, err = chartferry("import", str(next((home / "batches" / batch / "source").iterdir())))
    assert (code, out) == (6, "")
    assert f"{target.url} was urn:uuid:fake before and shows no id now" in err
    assert len(target.stored) == 1


# -- the bare interface


def test_the_bare_interface_gets_one_post_a_row_without_identifier(bare):
    rows = [payment(number, patient=f"p{number % 5}") for number in range(60)]
    assert bare.run(rows).counts == {"created": 60}
    assert not any("identifier" in body for body in bare.target.stored.values())
    bare.agree()
    assert bare.run(rows).counts == {"unchanged": 60}
    assert len(bare.target.stored) == 60


def test_lanes_run_side_by_side_and_in_order_within(bare):
    bare.target.hold = 0.01
    rows = [payment(number, patient=f"p{number % 10}", cents=number + 1) for number in range(80)]
    bare.run(rows)
    assert 1 < bare.target.most_at_work <= 8
    assert bare.target.lanes_doubled == 0
    for lane in range(10):
        sent = [
            b["amount"]["value"] for b in bare.target.stored.values() if b["request"]["reference"] == f"Patient/p{lane}"
        ]
        assert sent == sorted(sent)


@pytest.mark.parametrize("fault", ["lost_before", "gateway", "error", "redirect"])
def test_an_unknown_outcome_is_in_doubt_stops_its_lane_and_is_never_sent_again(bare, fault):
    """LEDGER-05, LEDGER-11"""
    bare.target.faults = [fault]
    rows = [payment(1), payment(2), payment(3, patient="p2")]
    loaded = bare.run([rows[0]])
    assert loaded.counts == {"in_doubt": 1}
    loaded = bare.run(rows)
    assert loaded.counts == {"in_doubt": 1, "created": 1}
    assert bare.states() == {"k1": "in_doubt", "k3": "created"}
    assert bare.target.writes == 2


def test_the_bare_interface_tries_again_only_what_was_surely_not_done(bare):
    """LEDGER-11"""
    bare.target.faults = ["busy", "throttled"]
    assert bare.run([payment(1)]).counts == {"created": 1}
    assert bare.pauses[1] == 7.0


def test_a_refusal_of_the_bare_interface_is_a_reject_and_its_lane_goes_on(bare):
    bare.target.refuse = lambda body: body["amount"]["value"] == 5
    loaded = bare.run([payment(1), payment(2, cents=500), payment(3)])
    assert loaded.counts == {"created": 2, "refused": 1}


@pytest.mark.long
def test_a_bare_target_that_stays_away_ends_the_load(bare):
    bare.target.faults = ["busy"] * 200
    rows = [payment(number, patient=f"p{number}") for number in range(30)]
    loaded = bare.run(rows)
    assert loaded.unusable == "the target could not be used: HTTP 503, 6 times"
    assert set(bare.states().values()) == {"planned"}
    bare.target.faults = []
    assert bare.run(rows).counts == {"created": 30}

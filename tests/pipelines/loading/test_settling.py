"""Rows in doubt at a target with the bare interface: what is adopted, sent again, or left to a person."""

import json
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from pipelines.client.steps import BARE
from pipelines.ledger.doubts import doubtful
from pipelines.ledger.rows import Outcome
from pipelines.ledger.tables import sighting
from pipelines.loading.book import Book
from pipelines.loading.settling import NOT_BY_ITSELF, settle_doubts
from tests.support.fake_target import FakeTarget, serving
from tests.support.work import TARGET, Work, payment, response, task, work_at


@pytest.fixture
def bare(tmp_path):
    with work_at(tmp_path, FakeTarget(additions=False)) as work:
        yield work


@pytest.mark.parametrize("fault", ["lost_after", "truncated"])
def test_a_payment_without_an_answer_that_is_found_alone_is_adopted_and_its_lane_goes_on(bare, fault):
    """LEDGER-05, LEDGER-06"""
    bare.target.faults = ["", fault]
    loaded = bare.run([payment(number, cents=100 * number) for number in range(1, 6)])
    assert loaded.counts == {"created": 4, "adopted": 1}
    assert loaded.cents["adopted"] + loaded.cents["created"] == 1500
    sent = [body["amount"]["value"] for body in bare.target.stored.values()]
    assert sent == [1, 2, 3, 4, 5]
    bare.agree()
    assert bare.table("sighting") == []


def test_a_payment_that_is_not_found_is_never_sent_again_by_itself(bare):
    """LEDGER-05, EXTRA-05"""
    bare.target.faults = ["lost_before"]
    rows = [payment(1), payment(2)]
    for _ in range(3):
        assert bare.run(rows, settling=0).counts == {"in_doubt": 1}
    assert bare.target.writes == 1
    assert bare.states() == {"k1": "in_doubt"}


@pytest.mark.parametrize("later", [False, True])
def test_a_payment_that_arrives_late_is_adopted_by_the_next_run(bare, later):
    """LEDGER-05: a request that a gateway held."""
    bare.target.faults = ["lost_before"]
    rows = [payment(1), payment(2)]
    bare.run(rows)
    if later:
        bare.target.create(json.loads(rows[0][-1]))
    loaded = bare.run(rows)
    assert loaded.counts == ({"unchanged": 1, "created": 1} if later else {"in_doubt": 1})
    if later:
        assert bare.states() == {"k1": "adopted", "k2": "created"}
        bare.agree()


def to_seconds(at):
    return at.isoformat(timespec="seconds")


CLOCKS = {
    "microseconds": (timedelta(), datetime.isoformat),
    "seconds, a moment behind": (timedelta(seconds=-1), to_seconds),
    "two minutes behind": (timedelta(minutes=-2), datetime.isoformat),
    "two minutes ahead": (timedelta(minutes=2), to_seconds),
}


@pytest.mark.crossed
@pytest.mark.parametrize(("off", "keeps"), CLOCKS.values(), ids=CLOCKS)
@pytest.mark.parametrize("date_too", [False, True], ids=["clock of the database", "clock of the target"])
def test_a_payment_is_found_whatever_clock_the_target_dates_it_with(bare, off, keeps, date_too):
    """LEDGER-05, LEDGER-06: it was not there before; its time is a second witness only."""
    target = bare.target
    target.create(json.loads(payment(1)[-1]))
    target.keeps, target.now = keeps, lambda: datetime.now(UTC) + off
    target.date_header = target.now if date_too else None
    target.faults = ["lost_after", "", "truncated"]
    assert bare.run([payment(number) for number in range(1, 5)]).counts == {"adopted": 2, "created": 2}
    assert bare.run([payment(5)], "payments-2").counts == {"created": 1}
    assert len(target.stored) == 6


def test_two_candidates_that_were_not_there_before_are_named_with_their_ids(bare):
    """LEDGER-06: one of them is older than the attempt, by less than clocks may be off."""
    made = [made_meanwhile(bare, 1, timedelta(minutes=-1)), made_meanwhile(bare, 2, timedelta())]
    found = ", ".join(sorted(made))
    assert why_left(bare) == f"2 at the target and 1 in doubt have the same content: {found}"


@pytest.mark.by_hand
@pytest.mark.parametrize(("off", "is_read"), [(timedelta(minutes=-6), True), (timedelta(minutes=-4), False)])
def test_a_row_with_a_candidate_that_may_be_older_is_never_absent(bare, off, is_read):
    """LEDGER-06: not there before, or not known to be, and dated before the attempt."""
    made = made_meanwhile(bare, 1, off, is_read)
    assert why_left(bare) == f"a resource with its content may be older than the row: {made}"


@pytest.mark.by_hand
def test_a_candidate_older_than_clocks_can_differ_is_no_candidate_even_without_a_sighting(bare):
    """LEDGER-06: it is not known which resources were there before."""
    made_meanwhile(bare, 1, timedelta(minutes=-6), is_read=False)
    assert why_left(bare) == NOT_BY_ITSELF


def made_meanwhile(bare, number, off, is_read=True):
    """An equal payment of somebody else, after what was there was noted, dated by another clock; its name."""
    if number == 1:
        bare.target.faults = ["lost_before"]
        bare.run([payment(1)])
        if not is_read:
            with bare.ledger.transaction() as connection:
                connection.execute(update(sighting).values(ids=None))
    bare.target.now = lambda: datetime.now(UTC) + off
    return "PaymentNotice/" + bare.target.create(json.loads(payment(1)[-1]))[1].rpartition("/")[2]


def why_left(bare):
    of = ("default", "PaymentNotice", "payments-1")
    settled = settle_doubts(
        bare.ledger,
        bare.client,
        TARGET,
        of,
        [bare.home / "run-1" / "accepted.parquet"],
        step=BARE,
        settling_seconds=0,
    )
    [(_, why)] = settled.left
    return why


def test_an_equal_payment_that_was_there_before_is_not_adopted(bare):
    """LEDGER-06"""
    bare.target.create(json.loads(payment(1)[-1]))
    bare.target.faults = ["lost_before"]
    assert bare.run([payment(1)]).counts == {"in_doubt": 1}
    assert bare.run([payment(1)], settling=0).counts == {"in_doubt": 1}


def test_an_equal_payment_that_the_ledger_knows_is_not_adopted(bare):
    """LEDGER-06"""
    bare.target.faults = ["", "lost_before"]
    assert bare.run([payment(1), payment(2)]).counts == {"created": 1, "in_doubt": 1}


@pytest.mark.crossed
@pytest.mark.parametrize("additions", [False, True], ids=["bare", "with additions"])
@pytest.mark.parametrize(("make", "feed"), [(payment, "payments"), (response, "answers")])
def test_a_row_in_doubt_whose_resource_id_is_known_is_looked_up_and_not_updated(tmp_path, additions, make, feed):
    """LEDGER-05, LEDGER-06: its answer was recorded, and the state lost since. Only tasks are ever updated."""
    with serving(FakeTarget(additions=additions)) as target, closing(Work(tmp_path, target)) as work:
        work.follow(feed)
        target.faults = [] if additions else ["", "lost_before"]
        rows = [make(1), make(2, **({"cents": 200} if make is payment else {"text": "no"}))]
        assert work.run(rows).counts["created"] == 1 + additions
        resource, [made] = work.feed.resource, [each for each in work.table("record") if each["key"] == "k1"]
        work.ledger.settle(TARGET, work.feed.source, resource, [Outcome("k1", 1, "in_doubt")])
        [doubt] = [each for each in doubtful(work.ledger, TARGET) if each.key == "k1"]
        assert (doubt.resource_id, doubt.is_change) == (made["resource_id"], False)
        assert work.run(rows).unusable is None
        [settled] = [each for each in work.table("record") if each["key"] == "k1"]
        assert (settled["state"], settled["resource_id"]) == (
            "created" if additions else "adopted",  # by the same create once more, or by its content
            made["resource_id"],
        )
        work.agree()


def test_an_equal_payment_of_somebody_else_made_meanwhile_leaves_it_to_a_person(bare):
    """LEDGER-06: two match, so neither is taken."""
    bare.target.faults = ["lost_after"]
    bare.target.refuse = lambda body: False
    original = bare.target.create

    def twice(body, condition=None):
        original(body, condition)
        return original(body, condition)

    bare.target.create = twice
    assert bare.run([payment(1)]).counts == {"in_doubt": 1}
    assert bare.states() == {"k1": "in_doubt"}


def test_one_payment_settles_one_of_two_equal_rows_in_doubt(bare):
    """LEDGER-06: the rows are alike to the cent, so the sums are right whichever it was."""
    rows = [payment(1), payment(2)]
    for number, each in enumerate(rows):
        bare.target.faults = ["lost_before"]
        bare.run([each], f"payments-{number}")
    bare.target.create(json.loads(rows[0][-1]))
    for number, each in enumerate(rows):
        bare.run([each], f"payments-{number}")
    assert sorted(bare.states().values()) == ["adopted", "in_doubt"]
    bare.agree()


@pytest.mark.alike
@pytest.mark.parametrize(("make", "feed"), [(task, "tasks"), (response, "answers")])
def test_tasks_and_responses_are_sent_again_after_the_settling_time(bare, make, feed):
    """LEDGER-05"""
    bare.follow(feed)
    bare.target.faults = ["lost_before"]
    assert bare.run([make(1), make(2)]).counts == {"in_doubt": 1}
    assert bare.run([make(1), make(2)]).counts == {"in_doubt": 1}
    assert bare.run([make(1), make(2)], settling=0).counts == {"created": 2}
    bare.agree()
    assert {record["attempts"] for record in bare.table("record") if record["key"] == "k1"} == {2}


@pytest.mark.crossed
@pytest.mark.parametrize(("make", "feed"), [(task, "tasks"), (response, "answers")])
@pytest.mark.parametrize("authored", [None, "2026-01-02T03:04:05+01:00"])
def test_tasks_and_responses_that_arrived_are_adopted(bare, make, feed, authored):
    """LEDGER-06"""
    bare.follow(feed)
    bare.target.create(json.loads(make(1, authored="2026-01-02T02:04:05Z")[-1]))
    theirs = set(bare.target.stored)
    bare.target.faults = ["lost_after"]
    loaded = bare.run([make(1, authored=authored), make(2)])
    assert loaded.counts == {"adopted": 1, "created": 1}
    known = {record["resource_id"] for record in bare.table("record")}
    assert known == set(bare.target.stored) - theirs


def to_the_second(target, body):
    return body | {name: body[name][:19] + "Z" for name in ("authored", "authoredOn") if name in body}


def with_addresses(target, body):
    return body | {name: {"reference": f"{target.url}/{body[name]['reference']}"} for name in SUBJECTS if name in body}


def with_versions(target, body):
    return body | {name: {"reference": f"{body[name]['reference']}/_history/2"} for name in SUBJECTS if name in body}


SUBJECTS = ("request", "subject", "for")


def to_the_next_second(target, body):
    named = [name for name in ("authored", "authoredOn") if name in body]
    at = {name: datetime.fromisoformat(body[name]).replace(microsecond=0) + timedelta(seconds=1) for name in named}
    return body | {name: when.isoformat() for name, when in at.items()}


def without_its_time(target, body):
    return {name: value for name, value in body.items() if name not in ("authored", "authoredOn")}


@pytest.mark.crossed
@pytest.mark.parametrize("kept", [to_the_second, to_the_next_second, without_its_time, with_addresses, with_versions])
@pytest.mark.parametrize(("make", "feed"), [(task, "tasks"), (response, "answers"), (payment, "payments")])
def test_a_lost_row_is_recognised_although_the_target_stores_it_in_another_form(bare, make, feed, kept):
    """LEDGER-05, LEDGER-06: otherwise it would be sent a second time after the settling time."""
    target, create = bare.target, bare.target.create
    target.create = lambda body, condition=None: create(kept(target, body), condition)
    target.found = lambda kind, query: target.of(kind)
    target.faults = ["lost_after"]
    bare.follow(feed)
    loaded = bare.run([make(1), make(2, "p2")], settling=0)
    assert loaded.counts == {"adopted": 1, "created": 1}
    bare.agree()


def test_the_existing_resources_of_each_patient_are_noted_once_before_the_first_request(bare):
    """LEDGER-06"""
    theirs = [bare.target.create(json.loads(payment(0, f"p{n}")[-1]))[1].rpartition("/")[2] for n in range(3)]
    bare.target.faults = ["lost_before"] * 3
    bare.run([payment(number, f"p{number % 3}") for number in range(9)])
    noted = {row["patient_id"]: row["ids"] for row in bare.table("sighting")}
    assert noted == {f"p{n}": theirs[n] for n in range(3)}


def test_a_target_that_gives_no_clear_answers_stops_the_run_before_every_row_is_in_doubt(bare):
    bare.target.faults = ["error"] * 500
    rows = [payment(number, f"p{number}") for number in range(80)]
    loaded = bare.run(rows)
    assert loaded.unusable == "the target could not be used: no clear answer, again and again"
    assert loaded.counts["in_doubt"] < 20
    bare.target.faults = []
    assert bare.run(rows).counts["created"] > 60


@pytest.mark.long
def test_a_target_that_comes_back_is_used_again_in_the_same_run(bare):
    bare.target.faults = ["error"] * 6
    loaded = bare.run([payment(number, f"p{number}") for number in range(60)])
    assert loaded.unusable is None
    assert loaded.counts["in_doubt"] == 6
    assert loaded.counts["created"] == 54


def test_a_killed_run_leaves_its_requests_in_doubt_and_the_next_run_settles_them(bare, monkeypatch):
    """LEDGER-01, LEDGER-10"""

    class Killed(BaseException):
        pass

    write_down, intended = Book.write_down, list[int]()

    def killed(book, rows, results, sightings=()):
        if results:
            until = time.monotonic() + 60
            while len(bare.target.stored) < sum(intended):
                assert time.monotonic() < until
            raise Killed
        write_down(book, rows, results, sightings)
        intended.append(len(rows))

    rows = [payment(number, f"p{number % 4}", 100 + number) for number in range(40)]
    with monkeypatch.context() as patched:
        patched.setattr(Book, "write_down", killed)
        with pytest.raises(Killed):
            bare.run(rows)
    there = len(bare.target.stored)
    assert 1 <= there <= 4
    loaded = bare.run(rows)
    assert loaded.counts == {"unchanged": there, "created": 40 - there}
    assert list(bare.states().values()).count("adopted") == there
    bare.agree()

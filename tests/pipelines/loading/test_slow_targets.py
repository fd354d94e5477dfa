"""Targets that do not answer a full bundle in time: smaller ones follow, and grow again, and nothing is made twice."""

import pytest

from pipelines.loading import sending_loop
from tests.support.fake_answers import Said
from tests.support.fake_target import FakeTarget, Handler, serving
from tests.support.work import Work, payment

HTML = b"<html>Gateway Time-out</html>"
WAYS = {
    "ours": {},
    "batch": {"says": ["batch", "conditional"]},
    "transaction": {"says": ["transaction", "conditional"]},
}


def of_others(first: str, then: str) -> pytest.MarkDecorator:
    """Targets of another make. One of them is used by `make test-all` only."""
    both = [pytest.param(WAYS[first], id=first), pytest.param(WAYS[then], id=then, marks=pytest.mark.long)]
    return pytest.mark.parametrize("at", both, indirect=True)


BY_BATCH, BY_TRANSACTION = of_others("batch", "transaction"), of_others("transaction", "batch")
"""Bundles are made smaller and larger by one code, so that each test has one way and the next the other."""


@pytest.fixture
def at(tmp_path, request, monkeypatch):
    """Work at a target that takes two seconds a row, one bundle of at most a hundred after another."""
    monkeypatch.setattr(sending_loop, "BUNDLES_AT_ONCE", 1)
    monkeypatch.setattr("pipelines.client.profiles.ROWS_A_BUNDLE", 100)
    with serving(FakeTarget(**request.param)) as target:
        work = Work(tmp_path, target)
        target.seconds_a_row = 2
        work.client.clock, work.client.timeout = lambda: target.seconds, 60
        yield work
        work.close()


def rows(number):
    return [payment(n, patient=f"p{n}") for n in range(number)]


def keys(work):
    return sorted(body["identifier"][0]["value"] for body in work.target.stored.values())


@pytest.mark.parametrize("at", [WAYS["ours"]], ids=["ours"], indirect=True)
@pytest.mark.parametrize("done", [True, False])
def test_rows_of_a_late_bundle_are_sent_to_the_bundled_service_again_in_parts(at, done):
    """LEDGER-01"""
    at.target.late_is_done = done
    assert at.run(rows(240)).counts == {"created": 240}
    assert at.target.late == [100]
    assert max(at.target.sizes[done:]) <= 30, "what is taken without haste is followed by as much, not by more"
    at.agree()


@BY_BATCH
def test_rows_of_a_late_bundle_that_are_there_are_adopted_and_smaller_bundles_follow(at):
    """LEDGER-01, TARGET-03"""
    loaded = at.run(rows(240))
    assert (loaded.unusable, loaded.counts) == (None, {"created": 140, "adopted": 100})
    assert at.target.late == [100]
    at.agree()


@BY_TRANSACTION
def test_rows_of_a_late_bundle_that_are_missing_are_sent_in_a_small_one_after_the_settling_time(at):
    """LEDGER-01, TARGET-03: a large one would be late again."""
    at.target.late_is_done = False
    some = rows(160)
    loaded = at.run(some)
    assert (loaded.unusable, loaded.counts) == (None, {"created": 60, "in_doubt": 100})
    assert at.run(some).counts["in_doubt"] == 100
    assert not at.run(some, settling=0).counts["in_doubt"]
    assert at.target.late == [100]
    assert keys(at) == sorted(row[2] for row in some)
    at.agree()


@BY_BATCH
def test_bundles_grow_again_once_answers_come_quickly(at):
    at.target.sizes = Growing(at.target)
    assert not at.run(rows(1000)).counts["in_doubt"]
    assert at.target.late == [100]
    assert max(at.target.sizes) == 100
    at.agree()


@BY_TRANSACTION
def test_waiting_for_the_request_limit_does_not_keep_bundles_small(at, monkeypatch):
    def wait():
        at.target.seconds += 20

    at.target.sizes = Growing(at.target)
    monkeypatch.setattr(at.client, "_before_each", wait)
    assert not at.run(rows(1000)).counts["in_doubt"]
    assert max(at.target.sizes) == 100
    at.agree()


@BY_BATCH
def test_bundles_do_not_grow_again_to_a_size_that_was_late(at, monkeypatch):
    """TARGET-03: half of them are quick, and whole ones never are."""

    def is_late(handler, entries):
        seconds = 70 * (len(entries) / 100) ** 3
        handler.target.seconds += min(seconds, 60)
        handler.target.late += [len(entries)] * (seconds > 60)
        return seconds > 60

    monkeypatch.setattr(Handler, "is_late", is_late)
    assert at.run(rows(600)).unusable is None
    assert at.target.late == [100]
    at.agree()


class Growing(list[int]):
    """The sizes of bundles. After six of them the target is quick."""

    def __init__(self, target):
        super().__init__()
        self.target = target

    def append(self, size):
        super().append(size)
        self.target.seconds_a_row = 2 if len(self) < 6 else 0.05


@BY_TRANSACTION
def test_a_target_that_never_answers_a_write_in_time_is_left_alone(at):
    at.run(rows(2))
    at.target.seconds_a_row, at.target.late_is_done = 90, False
    loaded = at.run([payment(n, patient=f"p{n}") for n in range(2, 600)], "payments-2")
    assert "no clear answer, again and again" in loaded.unusable
    assert len(at.target.late) < 20


@pytest.mark.parametrize("at", [WAYS["batch"]], ids=["batch"], indirect=True)
def test_a_row_with_several_outcomes_in_one_load_counts_once(at):
    """LEDGER-04: rows of a lane are in doubt from before, and their first bundle is late but done."""
    some = [payment(number, patient="p0") for number in range(40)]
    at.target.seconds_a_row = 0
    at.target.faults = ["", "", "", Said(504, HTML)]
    assert at.run(some).counts == {"created": 2, "in_doubt": 25}
    at.target.faulty, at.target.faults = (lambda body: len(body.get("entry", ())) > 1), [Said(504, HTML, done=True)]
    assert at.run(some, settling=0).counts == {"unchanged": 2, "created": 36, "adopted": 2}
    at.agree()


@BY_BATCH
def test_a_gateway_timeout_that_comes_at_once_does_not_make_bundles_smaller(at):
    """TARGET-03: a gateway whose server is away."""
    at.target.seconds_a_row = 0
    at.target.faulty, at.target.faults = (lambda body: len(body.get("entry", ())) > 1), [Said(504, HTML)]
    first = at.run(rows(160))
    assert (first.unusable, first.counts) == (None, {"created": 135, "in_doubt": 25})
    assert [size for size in at.target.sizes if size > 1] == [100, 33]
    assert at.run(rows(160), settling=0).counts == {"unchanged": 135, "created": 25}
    at.agree()

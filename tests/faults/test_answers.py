"""Every answer that a target can give to a write, as data: what it makes of a row, in bundles and one by one.

LEDGER-11 is proved by each: what is surely not done is tried again, what is unknown is never taken for either.
"""

import pytest

from tests.support.fake_answers import Said, outcome
from tests.support.fake_target import FakeTarget, serving
from tests.support.work import Work, payment

OUTCOME = outcome("exception")
ELSEWHERE = [("location", "http://127.0.0.1:9/elsewhere")]
PAGE = b"<html><body>Bad gateway</body></html>"

UNKNOWN = {
    "408": (408, OUTCOME),
    "408 without an outcome": (408, PAGE),
    "409": (409, OUTCOME),
    "500": (500, OUTCOME),
    "502": (502, PAGE),
    "503 of a gateway": (503, PAGE),
    "504": (504, PAGE),
    "400 without an outcome": (400, PAGE),
    "422 without an outcome": (422, b""),
    "a redirect": (302, None, ELSEWHERE),
    "a redirect that keeps the method": (307, None, ELSEWHERE),
    "a permanent redirect": (308, OUTCOME, ELSEWHERE),
    "accepted, no more": (202, None, ELSEWHERE),
    "no content": (204, b""),
    "a page for an answer": (200, PAGE),
    "null, and no location": (201, None),
    "a location without an id": (201, None, [("location", "/")]),
    "a search for an answer": (200, {"resourceType": "Bundle", "type": "searchset"}),
    "entries that are none": (200, {"resourceType": "Bundle", "type": "batch-response", "entry": [None]}),
    "an entry with an odd status": (
        200,
        {"resourceType": "Bundle", "type": "batch-response", "entry": [{"response": {"status": "²01"}}]},
    ),
    "too many entries": (200, {"resourceType": "Bundle", "type": "batch-response", "entry": [{}, {}]}),
    "text that is no UTF-8": (200, b'{"resourceType": "Bundle\xff'),
}
"""Answers that tell nothing for sure: status, body, headers."""

NOT_DONE = {
    "401": (401, outcome("unknown", "Authentication failed")),
    "403": (403, outcome("forbidden", "Authorization failed")),
    "429": (429, outcome("throttled"), [("retry-after", "3")]),
    "429 with an odd pause": (429, b"", [("retry-after", "\xb2")]),
    "429 until a date": (429, b"", [("retry-after", "Thu, 01 Jan 2026 00:00:00 GMT")]),
    "503 with an outcome": (503, outcome("transient")),
}
"""Answers that say that nothing was done, now."""


@pytest.fixture(scope="module", params=[True, False], ids=["with additions", "bare"])
def shared(request, tmp_path_factory):
    """A load's surroundings at either kind of target, for cases that take a payment of their own each."""
    with serving(FakeTarget(additions=request.param)) as target:
        work = Work(tmp_path_factory.mktemp("home"), target)
        yield work
        work.close()


@pytest.fixture
def at(tmp_path):
    """Gives a load's surroundings at either kind of target."""
    with serving(FakeTarget()) as target:
        work = Work(tmp_path, target)

        def at(additions):
            target.additions = additions
            return work

        yield at
        work.close()


def own_payment(work):
    """A payment of a patient that no case before had."""
    return payment(work.runs, f"p{work.runs}")


@pytest.mark.crossed
@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("answer", UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_outcome_makes_no_second_one_and_is_never_taken_for_known(shared, answer, done):
    """LEDGER-01, LEDGER-05, LEDGER-06, LEDGER-11: a bundle goes again, a payment alone is looked up and never does."""
    work, before, writes = shared, len(shared.target.stored), shared.target.writes
    work.target.faults = [Said(*answer)._replace(done=done)]
    counts = work.run([own_payment(work)], f"payments-{work.runs}", settling=0).counts
    if work.target.additions:
        assert (counts, work.target.writes - writes) == ({"created": 1}, 2)
        assert len(work.target.stored) - before == 1
    else:
        assert (counts, work.target.writes - writes) == ({"adopted" if done else "in_doubt": 1}, 1)
        assert len(work.target.stored) - before == done


@pytest.mark.crossed
@pytest.mark.parametrize("answer", NOT_DONE.values(), ids=NOT_DONE)
def test_a_write_that_was_surely_not_done_is_sent_again(shared, answer):
    """LEDGER-11"""
    work, before = shared, len(shared.target.stored)
    work.target.faults = [Said(*answer)] * 2
    assert work.run([own_payment(work)], f"payments-{work.runs}").counts == {"created": 1}
    assert len(work.target.stored) - before == 1


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_bundle_that_is_refused_as_a_whole_goes_in_parts(at, status):
    """LEDGER-07: until the one row answers for itself."""
    work = at(True)
    work.target.faults = [Said(status, OUTCOME)] * 2
    assert work.run([payment(1), payment(2)]).counts == {"created": 1, "refused": 1}
    work.agree()


@pytest.mark.parametrize("status", [404, 405, 412])
def test_a_target_that_refuses_bundles_ends_the_load_with_a_message_and_refuses_no_row(at, status):
    work = at(True)
    work.target.faults = [Said(status, OUTCOME)]
    loaded = work.run([payment(1)])
    assert (loaded.counts, loaded.unusable) == (
        {"planned": 1},
        f"the target does not take batch bundles (HTTP {status})",
    )


@pytest.mark.parametrize("status", [400, 404, 405, 412, 413, 422])
def test_a_row_that_is_refused_by_the_bare_interface_is_a_reject(at, status):
    """LEDGER-07"""
    work = at(False)
    work.target.faults = [Said(status, OUTCOME)]
    assert work.run([payment(1), payment(2)]).counts == {"created": 1, "refused": 1}


@pytest.mark.long
def test_a_size_that_was_too_large_is_remembered_for_the_rest_of_the_load(at):
    work = at(True)
    work.target.limit = 70
    assert work.run([payment(number) for number in range(2500)]).counts == {"created": 2500}
    too_large = [size for size in work.target.sizes if size > 70]
    assert len(too_large) <= 2 * 4, "a bundle under way on each line may learn it, and none after them"
    work.agree()


@pytest.mark.long
def test_one_row_that_is_too_large_does_not_keep_the_bundles_of_the_others_small(at):
    work = at(True)
    work.target.heaviest = 400_000
    rows = [payment(number) for number in range(2000)]
    rows[3] = (*rows[3][:-1], rows[3][-1].replace('"payment":{}', f'"payment":{{"display":"{"x" * 500_000}"}}'))
    assert work.run(rows).counts == {"created": 1999, "refused": 1}
    assert work.target.sizes[-2:] == [500, 500]


# -- the token, and what a target says of itself


@pytest.mark.alike
@pytest.mark.parametrize("additions", [True, False], ids=["with additions", "bare"])
@pytest.mark.parametrize(
    "answer",
    [
        (400, PAGE),
        (401, PAGE),
        (413, None),
        (500, PAGE),
        (302, None, ELSEWHERE),
        (200, PAGE),
        (200, {"access_token": 7}),
        (200, {"access_token": "two\nlines"}),
    ],
)
def test_no_row_is_refused_because_no_token_can_be_had(at, answer, additions):
    """LEDGER-11: without a token nothing was sent."""
    work = at(additions)
    assert work.run([payment(1)]).counts == {"created": 1}
    work.target.valid_tokens.clear()
    work.target.token_faults = [Said(*answer)] * 50
    loaded = work.run([payment(2), payment(3)], "payments-2")
    assert loaded.counts["planned"] == sum(loaded.counts.values()) > 0
    assert "no access token" in loaded.unusable
    work.target.token_faults = [Said(*answer)]
    assert work.run([payment(2), payment(3)], "payments-2").counts == {"created": 2}
    work.agree()


@pytest.mark.parametrize("additions", [True, False], ids=["with additions", "bare"])
def test_a_client_that_is_refused_a_token_ends_the_run_at_once_and_a_later_one_goes_on(at, additions):
    """LEDGER-11: nothing was sent, and one sentence says what to look at."""
    work = at(additions)
    assert work.run([payment(1)]).counts == {"created": 1}
    work.target.valid_tokens.clear()
    work.target.token_faults = [Said(401, {"error": "invalid_client"})] * 50
    loaded = work.run([payment(2), payment(3)], "payments-2")
    assert loaded.counts["planned"] == sum(loaded.counts.values()) > 0
    assert loaded.unusable == (
        "the target could not be used: no access token: the target refuses one to this client "
        "(HTTP 401, invalid_client): is its id or secret wrong, or was it revoked?"
    )
    assert len(work.target.token_faults) >= 48
    work.target.token_faults = []
    assert work.run([payment(2), payment(3)], "payments-2").counts == {"created": 2}
    work.agree()

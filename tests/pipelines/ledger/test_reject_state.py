"""The rule by which a reject is open or closed, step by step. On both databases."""

from collections.abc import Callable

import pytest

from pipelines.ledger.former_versions import earlier_versions, intend_change, intend_withdrawal, plan_anew, undone
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.reject_state import changes, close_answered
from pipelines.ledger.rejects import discard, found_there, resubmit, settle_resubmitted
from pipelines.ledger.rows import Outcome, Reject, Repeat
from tests.pipelines.conftest import Clock
from tests.support.ledgers import OF, TARGET, intent, start

LONG_AGO = "2020-01-01T00:00:00.000000Z"
Step = Callable[[Ledger], object]


def the_reject(ledger: Ledger) -> str:
    """The id of the first reject."""
    return str(ledger.tables()["reject"].to_pylist()[0]["reject_id"])


def set_aside(batch: str, line: int, key: str | None, content: str | None = None, answers: bool = False) -> Step:
    def act(ledger: Ledger) -> None:
        names = [the_reject(ledger)] if answers else []
        reject = Reject(line, 1, key, "rule", None, None, None, [], names, content)
        ledger.reject(TARGET, *OF, batch, [reject])

    return act


def put_in(batch: str, line: int) -> Step:
    """A row is on its way for the reject."""
    return lambda ledger: resubmit(ledger, TARGET, *OF, batch, {line: [the_reject(ledger)]})


def stays(batch: str, line: int) -> Step:
    """Try a row for the reject whose record is known with this content."""
    return lambda ledger: found_there(ledger, TARGET, batch, {line: [the_reject(ledger)]})


def comes_to(batch: str, line: int, key: str, state: str = "created", content: str = "h1") -> Step:
    """A load of a row that the ledger did not have."""

    def act(ledger: Ledger) -> None:
        with ledger.lease(TARGET) as lease:
            ledger.intend(lease, *OF, [intent(key, line, batch, content)])
            ledger.settle(TARGET, *OF, [Outcome(key, 1, state, f"id-{key}" if state == "created" else None)])
        close_answered(ledger, (TARGET, *OF), batch)

    return act


def repeats(batch: str, line: int, key: str, state: str = "unchanged") -> Step:
    """Meet a row from another file or line whose record is there with this content."""

    def act(ledger: Ledger) -> None:
        ledger.note_repeats(TARGET, *OF, batch, [Repeat(line, key, state, f"id-{key}", None, None, None)])
        close_answered(ledger, (TARGET, *OF), batch)

    return act


def taken_back(key: str) -> Step:
    def act(ledger: Ledger) -> None:
        with ledger.lease(TARGET) as lease:
            intend_withdrawal(ledger, lease, [(*OF, key, 1)])
        undone(ledger, TARGET, earlier_versions(ledger, TARGET, *OF, [key]))

    return act


def changes_to(batch: str, line: int, key: str, generation: int = 1, fate: str = "standing") -> Step:
    """Send a change of a record from another line; no answer comes. generation: 1 for an update, 2 to supersede."""

    def act(ledger: Ledger) -> None:
        with ledger.lease(TARGET) as lease:
            intend_change(ledger, lease, *OF, [(1, intent(key, line, batch, "h2", generation))], fate)
            ledger.settle(TARGET, *OF, [Outcome(key, generation, "in_doubt", None)])
        close_answered(ledger, (TARGET, *OF), batch)

    return act


def is_made_anew(key: str, state: str) -> Step:
    """Send a record again whose resource is gone from the target."""

    def act(ledger: Ledger) -> None:
        with ledger.lease(TARGET) as lease:
            plan_anew(ledger, lease, [(*OF, key, 1)], "gone")
            ledger.settle(TARGET, *OF, [Outcome(key, 1, state, f"new-{key}" if state == "created" else None)])

    return act


def discarded(ledger: Ledger) -> None:
    discard(ledger, [the_reject(ledger)], "ann", "double")


def read_anew(batch: str) -> Step:
    return lambda ledger: ledger.start_run(TARGET, batch, feed_hash="f1")


WRONG = set_aside("b", 2, "k1")
READ_OTHERWISE = [comes_to("b", 2, "k1"), WRONG, read_anew("b"), put_in("b", 2)]
"""A row is loaded, then wrong, then tried anew."""
PUT_IN_OTHERWISE = [WRONG, comes_to("c", 7, "k9"), set_aside("c", 7, "k9", answers=True), put_in("c", 7)]
BESIDE_WRONG = [WRONG, set_aside("c", 8, "k8", answers=True), put_in("c", 7)]
CASES: dict[str, tuple[list[Step], str]] = {
    "nothing came": ([WRONG], "open"),
    "its key, of a later file": ([WRONG, comes_to("c", 5, "k1")], "closed"),
    "its key, of an earlier file": ([WRONG, comes_to("a", 5, "k1")], "open"),
    "its key, of its own file": ([WRONG, read_anew("b"), comes_to("b", 3, "k1")], "closed"),
    "its key, of its own file, and set aside since": ([WRONG, read_anew("b"), comes_to("b", 3, "k1"), WRONG], "open"),
    "its key, before it was set aside": ([comes_to("c", 5, "k1"), WRONG], "open"),
    "its key, refused": ([WRONG, comes_to("c", 5, "k1", "refused")], "open"),
    "its key, in doubt": ([WRONG, comes_to("c", 5, "k1", "in_doubt")], "open"),
    "its key, in doubt of a later change": ([WRONG, comes_to("c", 5, "k1"), changes_to("d", 6, "k1")], "closed"),
    "its key, in doubt of what supersedes it": ([WRONG, comes_to("c", 5, "k1"), changes_to("d", 6, "k1", 2)], "closed"),
    "its key, in doubt since it was taken back": (
        [WRONG, comes_to("c", 5, "k1"), taken_back("k1"), changes_to("d", 6, "k1", 2, "withdrawn")],
        "open",
    ),
    "its key, gone, and in doubt": ([WRONG, comes_to("c", 5, "k1"), is_made_anew("k1", "in_doubt")], "closed"),
    "its key, gone, and made anew": ([WRONG, comes_to("c", 5, "k1"), is_made_anew("k1", "created")], "closed"),
    "its key, gone, and refused": ([WRONG, comes_to("c", 5, "k1"), is_made_anew("k1", "refused")], "closed"),
    "its key, taken back": ([WRONG, comes_to("c", 5, "k1"), taken_back("k1")], "open"),
    "another key": ([WRONG, comes_to("c", 5, "k2")], "open"),
    "its content, of an earlier file": ([set_aside("b", 2, "k1", "h1"), comes_to("a", 5, "k1")], "closed"),
    "its content, of an earlier file, refused": (
        [set_aside("b", 2, "k1", "h1"), comes_to("a", 5, "k1", "refused")],
        "open",
    ),
    "its content, of an earlier file, taken back": (
        [set_aside("b", 2, "k1", "h1"), comes_to("a", 5, "k1"), taken_back("k1")],
        "open",
    ),
    "its content, before it was set aside": ([comes_to("a", 5, "k1"), set_aside("b", 2, "k1", "h1")], "open"),
    "other content, of an earlier file": ([set_aside("b", 2, "k1", "h2"), comes_to("a", 5, "k1")], "open"),
    "its own line, tried anew": ([set_aside("b", 2, None), read_anew("b"), comes_to("b", 2, "k1")], "closed"),
    "another line of its file": ([set_aside("b", 2, None), read_anew("b"), comes_to("b", 3, "k1")], "open"),
    "its own line, and set aside since": (
        [set_aside("b", 2, None), read_anew("b"), comes_to("b", 2, "k1"), set_aside("b", 2, None), read_anew("b")],
        "open",
    ),
    "its own line, in doubt": (
        [set_aside("b", 2, None), read_anew("b"), put_in("b", 2), comes_to("b", 2, "k1", "in_doubt")],
        "resubmitted",
    ),
    "its own line, tried anew beside its older record": (READ_OTHERWISE, "resubmitted"),
    "its own line, known as it is": ([*READ_OTHERWISE, stays("b", 2)], "closed"),
    "its own line, known as it is, and set aside since": ([*READ_OTHERWISE, stays("b", 2), WRONG], "open"),
    "its own line, known as it is, taken back": ([*READ_OTHERWISE, stays("b", 2), taken_back("k1")], "open"),
    "its own line, tried anew, wrong": ([WRONG, read_anew("b"), put_in("b", 2), WRONG], "open"),
    "its own line, as another file had it": (
        [comes_to("a", 2, "k1"), set_aside("b", 3, None), read_anew("b"), repeats("b", 3, "k1")],
        "closed",
    ),
    "its own line, as another file had it, taken back": (
        [comes_to("a", 2, "k1"), set_aside("b", 3, None), read_anew("b"), repeats("b", 3, "k1"), taken_back("k1")],
        "open",
    ),
    "a row that was put in, as another file had it": (
        [comes_to("a", 2, "k9"), WRONG, put_in("c", 7), repeats("c", 7, "k9")],
        "closed",
    ),
    "a row that was put in, as another line had it": (
        [comes_to("a", 2, "k9"), WRONG, put_in("c", 7), repeats("c", 7, "k9", "skipped")],
        "closed",
    ),
    "a row that was put in, as another file had it, taken back": (
        [comes_to("a", 2, "k9"), WRONG, put_in("c", 7), repeats("c", 7, "k9"), taken_back("k9")],
        "open",
    ),
    "a row that was put in": ([WRONG, put_in("c", 7), comes_to("c", 7, "k9")], "closed"),
    "a row that was put in, taken back": ([WRONG, put_in("c", 7), comes_to("c", 7, "k9"), taken_back("k9")], "open"),
    "a row that was put in, in doubt of a later change": (
        [WRONG, put_in("c", 7), comes_to("c", 7, "k9"), changes_to("d", 6, "k9")],
        "closed",
    ),
    "a row that was put in, in doubt of what supersedes it": (
        [WRONG, put_in("c", 7), comes_to("c", 7, "k9"), changes_to("d", 6, "k9", 2)],
        "closed",
    ),
    "a row that was put in, as another file had it, in doubt of a later change": (
        [comes_to("a", 2, "k9"), WRONG, put_in("c", 7), repeats("c", 7, "k9"), changes_to("d", 6, "k9")],
        "closed",
    ),
    "a row that was put in, in doubt since it was taken back": (
        [WRONG, put_in("c", 7), comes_to("c", 7, "k9"), taken_back("k9"), changes_to("d", 6, "k9", 2, "withdrawn")],
        "open",
    ),
    "a row that is on its way": ([WRONG, put_in("c", 7)], "resubmitted"),
    "a row that was put in, in doubt": ([WRONG, put_in("c", 7), comes_to("c", 7, "k9", "in_doubt")], "resubmitted"),
    "one of two rows that were put in": (
        [WRONG, put_in("c", 7), put_in("c", 8), comes_to("c", 7, "k9")],
        "resubmitted",
    ),
    "a row that was put in, tried anew beside its older record": (PUT_IN_OTHERWISE, "resubmitted"),
    "a row that was put in, known as it is": ([*PUT_IN_OTHERWISE, stays("c", 7)], "closed"),
    "a row that was put in, read once more": (
        [WRONG, put_in("c", 7), comes_to("c", 7, "k9"), put_in("c", 7)],
        "closed",
    ),
    "a row that was put in beside a wrong one": (BESIDE_WRONG, "open"),
    "a row that was put in beside a wrong one, in doubt": (
        [*BESIDE_WRONG, comes_to("c", 7, "k9", "in_doubt")],
        "resubmitted",
    ),
    "a row that was put in before a wrong one": (
        [WRONG, put_in("c", 7), set_aside("d", 2, "k8", answers=True)],
        "open",
    ),
    "a row that was put in, wrong": ([WRONG, set_aside("c", 7, "k9", answers=True)], "open"),
    "a row that was put in, wrong once it was sent": (
        [WRONG, put_in("c", 7), set_aside("c", 7, "k9", answers=True)],
        "open",
    ),
    "the key of a row that was wrong": (
        [WRONG, set_aside("c", 7, "k9", answers=True), comes_to("d", 2, "k9")],
        "closed",
    ),
    "the key of a row that was wrong, before it was": (
        [WRONG, comes_to("d", 2, "k9"), set_aside("c", 7, "k9", answers=True)],
        "open",
    ),
    "the first key, where a row has another": (
        [WRONG, set_aside("c", 7, "k9", answers=True), comes_to("d", 2, "k1")],
        "open",
    ),
    "a person": ([WRONG, discarded, comes_to("c", 5, "k1")], "discarded"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_sequence_of_events_leaves_a_reject_open_or_closed_as_the_case_says(
    case: str, ledger: Ledger, clock: Clock
) -> None:
    """LEDGER-07, LEDGER-18"""
    steps, state = CASES[case]
    for batch in "abcd":
        start(ledger, batch)
        clock.pass_seconds(1)
    for step in steps:
        step(ledger)
        clock.pass_seconds(1)
    settle_resubmitted(ledger, TARGET)
    [reject, *_] = ledger.tables()["reject"].to_pylist()
    assert (reject["state"], reject["closed_by_batch"] is not None) == (state, state == "closed")
    ledger.date_rejects_back(LONG_AGO)
    assert changes(ledger, TARGET, [reject["reject_id"]]) == []


def test_a_row_that_is_wrong_again_is_a_reject_of_its_own_while_another_file_answers_its_first(
    ledger: Ledger, clock: Clock
) -> None:
    """LEDGER-18: the record under way decides the fate of the first."""
    wrong_again = set_aside("c", 7, "k9", answers=True)
    for batch in "bcd":
        start(ledger, batch)
        clock.pass_seconds(1)
    for step in (WRONG, wrong_again, put_in("d", 5), comes_to("d", 5, "k5", "in_doubt"), wrong_again):
        step(ledger)
        clock.pass_seconds(1)
    rejects = {(row["batch_id"], row["state"]) for row in ledger.tables()["reject"].to_pylist()}
    assert rejects == {("b", "resubmitted"), ("c", "open")}

"""Rejects in the ledger: which rows answer them, which line they belong to, how they are settled. On both databases."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from pipelines.ledger.former_versions import earlier_versions, intend_withdrawal, undone
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rejects import (
    RejectPlace,
    discard,
    feeds_answered,
    open_by_batch,
    open_in_batch,
    reasons_of,
    reject_places,
    resubmit,
    settle_resubmitted,
    targets_with_rejects,
)
from pipelines.ledger.rows import Intent, Outcome, Reason, Reject, Repeat
from tests.support.ledgers import close_rejects

TARGET = "urn:uuid:t"
OF = ("default", "PaymentNotice")
WRONG = Reason("PAY-1", None, "amount", "wrong", False)


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request, tmp_path) -> Iterator[Ledger]:
    if request.param == "sqlite":
        with closing(Ledger.open(tmp_path / "ledger.db")) as opened:
            yield opened
        return
    with request.getfixturevalue("postgres").database() as url, closing(Ledger.open(url)) as opened:
        yield opened


def reject(line, key, *answers, reasons=(WRONG,)):
    return Reject(line, 1, key, "rule", None, None, None, reasons, answers)


def states(ledger):
    rows = ledger.tables()["reject"].to_pylist()
    return {row["source_key"]: (row["state"], row["attempts"], row["closed_by_batch"]) for row in rows}


def test_a_reject_belongs_to_the_line_that_had_it_last_and_collects_the_reasons_of_that_file(ledger):
    """LEDGER-07, CLI-CMD-05"""
    for batch in "ab":
        ledger.start_batch(TARGET, batch, feed="payments")
    one, two = ledger.reject(TARGET, *OF, "a", [reject(2, "k1"), reject(3, None)])
    other = WRONG._replace(rule_id="PAY-2")
    again = [reject(2, "k1", one, two), reject(5, "k5", one, reasons=[other]), reject(6, "k6", "f" * 16)]
    assert ledger.reject(TARGET, *OF, "b", again)[:2] == [one, two]
    assert states(ledger) == {"k1": ("open", 2, None), None: ("open", 2, None), "k6": ("open", 1, None)}
    found = {(each.reject_id, each.batch_id, each.line) for each in reject_places(ledger, TARGET, "a")}
    assert found == {(one, "b", 2), (two, "b", 2), (one, "b", 5)}
    assert [reason.rule_id for reason in reasons_of(ledger, [one])[one]] == ["PAY-1", "PAY-2"]
    assert feeds_answered(ledger, [one, "0" * 16]) == {("payments", *OF)}
    assert open_by_batch(ledger) == {(TARGET, "a"): 2, (TARGET, "b"): 1}
    opened = [(row.reject_id, row.line, row.source_key) for row in open_in_batch(ledger, TARGET, "a")]
    assert opened == [(one, 2, "k1"), (two, 3, None)]
    assert targets_with_rejects(ledger) == [TARGET]


def test_a_row_answers_only_an_open_reject_of_its_own_source(ledger):
    """CLI-CMD-05: a closed reject stays closed, and a wrong row gets a reject of its own."""
    [name] = ledger.reject(TARGET, *OF, "a", [reject(2, "k1")])
    close_rejects(ledger, TARGET, ["k1"], "a")
    [own] = ledger.reject(TARGET, *OF, "b", [reject(2, "k2", name)])
    assert own != name
    [elsewhere] = ledger.reject(TARGET, "other", "PaymentNotice", "c", [reject(2, "k3", own)])
    assert elsewhere not in (own, name)
    resubmit(ledger, TARGET, "other", "PaymentNotice", "c", {2: [own]})
    assert states(ledger) == {"k1": ("closed", 1, "a"), "k2": ("open", 1, None), "k3": ("open", 1, None)}


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        ("created", ("closed", 1, "b")),
        ("refused", ("open", 1, None)),
        ("in_doubt", ("resubmitted", 1, None)),
        ("planned", ("resubmitted", 1, None)),
    ],
)
def test_a_resubmitted_reject_is_settled_by_the_outcome_of_its_record(ledger, outcome, state):
    """LEDGER-07"""
    [name] = ledger.reject(TARGET, *OF, "a", [reject(2, "k1")])
    for _ in range(2):
        resubmit(ledger, TARGET, *OF, "b", {7: [name]})
    assert reject_places(ledger, TARGET) == []
    assert reject_places(ledger, TARGET, None, ["resubmitted"]) == [RejectPlace(name, "b", 7, "a", *OF)]
    settle_resubmitted(ledger, TARGET)
    assert states(ledger)["k1"] == ("resubmitted", 1, None)
    ledger.start_batch(TARGET, "b")
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [Intent("k9", 1, "b", 7, "h", "f")])
    ledger.settle(TARGET, *OF, [Outcome("k9", 1, outcome)])
    settle_resubmitted(ledger, TARGET)
    assert states(ledger)["k1"] == state


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        ("adopted", ("closed", 1, "b")),
        ("refused", ("open", 1, None)),
        ("in_doubt", ("resubmitted", 1, None)),
    ],
)
def test_two_rows_of_one_file_answer_a_reject_together(ledger, outcome, state):
    """LEDGER-07: one of them was taken back, which says nothing of the other."""
    [name] = ledger.reject(TARGET, *OF, "a", [reject(2, "k1")])
    resubmit(ledger, TARGET, *OF, "b", {2: [name], 3: [name]})
    ledger.start_batch(TARGET, "b")
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [Intent("k8", 1, "b", 2, "h8", "f"), Intent("k9", 1, "b", 3, "h9", "f")])
        ledger.settle(TARGET, *OF, [Outcome("k8", 1, "created", "id8"), Outcome("k9", 1, "in_doubt")])
        intend_withdrawal(ledger, lease, [(*OF, "k8", 1)])
    undone(ledger, TARGET, earlier_versions(ledger, TARGET, *OF, ["k8"]))
    ledger.settle(TARGET, *OF, [Outcome("k9", 1, outcome)])
    settle_resubmitted(ledger, TARGET)
    assert states(ledger)["k1"] == state


def test_a_reject_is_open_again_where_its_answer_repeated_a_record_that_was_taken_back(ledger):
    """LEDGER-17, LEDGER-18"""
    for batch in "abc":
        ledger.start_batch(TARGET, batch)
    [name] = ledger.reject(TARGET, *OF, "a", [reject(2, "k1")])
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [Intent("k2", 1, "b", 2, "h", "f")])
        ledger.settle(TARGET, *OF, [Outcome("k2", 1, "created", "id2")])
        resubmit(ledger, TARGET, *OF, "c", {7: [name]})
        ledger.note_repeats(TARGET, *OF, "c", [Repeat(7, "k2", "unchanged", "id2", None, None, None)])
        settle_resubmitted(ledger, TARGET)
        assert states(ledger)["k1"] == ("closed", 1, "c")
        intend_withdrawal(ledger, lease, [(*OF, "k2", 1)])
    undone(ledger, TARGET, earlier_versions(ledger, TARGET, *OF, ["k2"]))
    assert states(ledger)["k1"] == ("open", 1, None)


def test_discards_are_all_or_none_and_recorded_once(ledger):
    """CLI-CMD-07, CLI-CMD-19"""
    names = ledger.reject(TARGET, *OF, "a", [reject(2, "k1"), reject(3, "k2")])
    assert discard(ledger, [*names, "nobody"], "ann", "why") == {"nobody": "unknown"}
    assert ledger.decisions() == []
    for _ in range(2):
        assert discard(ledger, names, "ann", "why") == {}
    assert states(ledger) == {"k1": ("discarded", 1, None), "k2": ("discarded", 1, None)}
    told = {(row["user"], row["command"], row["subject"], row["why"]) for row in ledger.decisions(TARGET)}
    assert told == {("ann", "rejects discard", name, "why") for name in names}
    assert len(ledger.decisions()) == 2


@pytest.mark.parametrize(("rows", "state"), [({2: "k1-b"}, "open"), ({2: "k1-b", 3: "k1-d"}, "closed")])
def test_a_reject_of_two_wrong_rows_is_settled_by_two(ledger, rows, state):
    """LEDGER-07: they came from doubt. One of two said nothing of the other."""
    [name] = ledger.reject(TARGET, *OF, "a", [reject(2, "k1")])
    ledger.reject(
        TARGET, *OF, "b", [reject(line, key)._replace(answers=[name]) for line, key in ((2, "k1-b"), (3, "k1-c"))]
    )
    resubmit(ledger, TARGET, *OF, "c", {line: [name] for line in rows})
    ledger.start_batch(TARGET, "c")
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [Intent(key, 1, "c", line, f"h{line}", "f") for line, key in rows.items()])
        ledger.settle(TARGET, *OF, [Outcome(key, 1, "created", f"id{line}") for line, key in rows.items()])
    settle_resubmitted(ledger, TARGET)
    assert states(ledger)["k1"][0] == state

"""A reject may say that its record was loaded from elsewhere. Only a row exported after that may be loaded besides."""

import pytest

from tests.pipelines.corrections.test_ended import ROWS, amounts
from tests.support.giving_back import HEADER

pytestmark = pytest.mark.usefixtures("additions")

WRONG = ROWS["k2"].replace("2.00", "two")


def keyed(export, key):
    return export.replace(b",two,", b",2.00,").replace(b",k2,", f",{key},".encode())


def exported_of(practice, name, text):
    """Take a file, and give its rejects as they are exported."""
    (batch,) = practice.take(HEADER + text, name)[1]["batches"]
    (export,) = practice.export("--batch", batch["batch_id"]).values()
    return export


@pytest.fixture
def two(practice):
    """k2 was rejected in two files; gives the rejects of both."""
    return exported_of(practice, "payments-1.csv", WRONG), exported_of(practice, "payments-2.csv", ROWS["k1"] + WRONG)


@pytest.fixture
def set_aside(practice, two):
    """The one was loaded as `k2-b`, and the other set aside as `k2-c`; gives the file of the other."""
    practice.take(keyed(two[0], "k2-b"), "one.csv")
    other = keyed(two[1], "k2-c")
    assert practice.take(other, "other.csv")[1]["totals"]["rejected"] == 1
    return other


@pytest.mark.long
def test_a_row_set_aside_because_its_record_was_loaded_from_another_file_is_not_loaded_by_a_retry(practice, set_aside):
    """LEDGER-07: nor by the same file again. A person who exports and imports it anew means it."""
    assert practice.run("rejects", "retry")[0] == 3
    assert practice.take(set_aside, "other.csv")[0] == 3
    assert amounts(practice) == [1, 2]
    (export,) = practice.export().values()
    assert b"another record was loaded for the reject that the row names" in export
    assert practice.take(export, "meant.csv")[0] == 0
    assert amounts(practice) == [1, 2, 2]
    assert {state for state, _ in practice.rejects().values()} == {"closed"}


def test_a_row_for_two_rejects_is_not_loaded_if_one_of_them_was_answered_already(practice, two):
    """LEDGER-07: somebody joined both files after one of the rejects had been corrected."""
    one, other = (keyed(each, "k2-c") for each in two)
    both = one + b"".join(other.splitlines(keepends=True)[1:])
    practice.take(keyed(two[0], "k2-b"), "one.csv")
    assert practice.take(both, "both.csv")[1]["totals"]["created"] == 0
    assert amounts(practice) == [1, 2]


@pytest.mark.long
def test_equal_rows_for_two_rejects_of_a_record_load_it_once_and_close_both(practice, two):
    one, other = (keyed(each, "k2-c") for each in two)
    assert practice.take(one + b"".join(other.splitlines(keepends=True)[1:]), "both.csv")[0] == 0
    assert amounts(practice) == [1, 2]
    assert {state for state, _ in practice.rejects().values()} == {"closed"}


@pytest.mark.long
@pytest.mark.parametrize("corrected_between", [True, False])
def test_a_reject_for_a_known_key_is_set_aside_if_its_record_was_loaded_from_another_file(practice, corrected_between):
    """LEDGER-07, LEDGER-08: its reason said only that the key is known. Exported and imported anew, it is loaded."""
    changed = ROWS["k2"].replace("2.00", "7.00")
    practice.take(HEADER + ROWS["k2"], "payments-1.csv")
    first = keyed(exported_of(practice, "payments-2.csv", changed), "k2-b")
    if corrected_between:
        practice.take(first, "first.csv")
    second = keyed(exported_of(practice, "payments-3.csv", ROWS["k1"] + changed), "k2-c")
    practice.take(first, "first.csv")
    assert practice.take(second, "second.csv")[1]["totals"]["rejected"] == 1
    assert amounts(practice) == [1, 2, 7]
    (export,) = practice.export().values()
    assert practice.take(export, "meant.csv")[0] == 0
    assert amounts(practice) == [1, 2, 7, 7]


@pytest.mark.long
def test_a_correction_that_is_still_wrong_stays_its_reject_where_an_earlier_file_has_loaded_its_key(practice):
    """CLI-CMD-05: that record came before the reject, and is no answer to it."""
    practice.take(HEADER + ROWS["k2"], "payments-1.csv")
    export = exported_of(practice, "payments-2.csv", ROWS["k1"] + WRONG)
    practice.take(export.replace(b",two,", b",three,"), "fixed.csv")
    assert practice.rows("SELECT source_key, state, attempts FROM reject") == [("k2", "open", 2)]
    practice.take(export.replace(b",two,", b",3.00,"), "fixed-too.csv")
    assert practice.rows("SELECT source_key, state, attempts FROM reject") == [("k2", "open", 3)]
    (export,) = practice.export().values()
    assert b"known with other content" in export
    assert practice.take(export.replace(b",k2,", b",k2-b,"), "meant.csv")[0] == 0
    assert amounts(practice) == [1, 2, 3]


@pytest.mark.long
@pytest.mark.parametrize("in_one_file", [True, False])
def test_a_row_exported_as_discarded_is_set_aside_if_its_record_was_loaded_meanwhile(practice, in_one_file):
    """LEDGER-07: two exports said that it was discarded, and a person imports both."""
    exported_of(practice, "payments-1.csv", WRONG)
    practice.run("rejects", "discard", practice.ids()["k2"], "--why", "entered twice")
    first = keyed(exported_of(practice, "payments-2.csv", ROWS["k2"]), "k2-b")
    second = keyed(exported_of(practice, "payments-3.csv", ROWS["k1"] + ROWS["k2"]), "k2-c")
    if in_one_file:
        second = first + b"".join(second.splitlines(keepends=True)[1:])
    else:
        practice.take(first, "first.csv")
    assert practice.take(second, "second.csv")[1]["totals"]["rejected"] == 1
    assert amounts(practice) == [1, 2]
    practice.run("rejects", "retry")
    assert amounts(practice) == [1, 2]
    (export,) = practice.export().values()
    assert practice.take(export, "meant.csv")[0] == 0
    assert amounts(practice) == [1, 2, 2]


@pytest.mark.long
def test_a_file_that_answers_two_rejects_of_a_record_loads_one_and_a_retry_not_the_other(practice, two):
    """LEDGER-07: each answer has a key of its own."""
    first, second = keyed(two[0], "k2-b"), keyed(two[1], "k2-c")
    both = first + b"".join(second.splitlines(keepends=True)[1:])
    assert practice.take(both, "both.csv")[1]["totals"]["rejected"] == 1
    assert practice.run("rejects", "retry")[0] == 3
    assert practice.take(both, "both.csv")[0] == 3
    assert amounts(practice) == [1, 2]


@pytest.mark.long
def test_a_row_exported_before_its_reject_named_the_loaded_record_is_set_aside(practice):
    """LEDGER-07: only a later retry found the record loaded from another file. Exported then, the row is loaded."""
    one = exported_of(practice, "payments-1.csv", WRONG)
    practice.target.refuse = lambda body: True
    before = exported_of(practice, "payments-2.csv", ROWS["k2"])
    practice.target.refuse = lambda body: False
    practice.take(keyed(one, "k2-b"), "one.csv")
    practice.run("rejects", "retry")
    for key in (b"k2-c", b"k2-d"):
        assert practice.take(before.replace(b",k2,", b"," + key + b","), "before.csv")[0] == 3
    assert amounts(practice) == [2]
    (export,) = practice.export().values()
    assert practice.take(export, "meant.csv")[0] == 0
    assert amounts(practice) == [2, 2]


def test_a_row_is_set_aside_if_somebody_loaded_it_under_another_key_after_its_export(practice, two):
    """LEDGER-07: two people import the same exported row."""
    practice.take(keyed(two[0], "k2-b"), "one.csv")
    practice.take(keyed(two[1], "k2-c"), "other.csv")
    (export,) = practice.export().values()
    practice.take(export.replace(b",k2-c,", b",k2-d,"), "meant.csv")
    assert practice.take(export.replace(b",k2-c,", b",k2-e,"), "meant-too.csv")[0] == 3
    assert amounts(practice) == [1, 2, 2]


@pytest.mark.long
def test_a_row_whose_record_was_discarded_and_loaded_elsewhere_says_that_it_was_loaded(practice, two):
    """LEDGER-07: of two rejects one was discarded, and the other corrected."""
    (first, _), *_ = practice.rows("SELECT reject_id, state FROM reject ORDER BY first_seen_at")
    assert practice.run("rejects", "discard", first, "--why", "entered twice")[0] == 0
    practice.take(keyed(two[1], "k2-b"), "other.csv")
    export = exported_of(practice, "payments-3.csv", ROWS["k2"] + ROWS["k3"])
    assert b"was loaded under another key" in export
    assert amounts(practice) == [1, 2, 3]


@pytest.mark.long
def test_a_record_with_two_rejects_is_loaded_once_beside_a_third_row_that_is_still_wrong(practice, two):
    """LEDGER-07: two rows answer the one reject, of which one is wrong; a third row answers the other."""
    wrong = two[0].replace(b",k2,", b",k2-c,").splitlines(keepends=True)[1]
    for lines in ([keyed(two[0], "k2-b"), keyed(two[1], "k2")], [keyed(two[1], "k2-b"), keyed(two[0], "k2")]):
        rows = [each for text in lines for each in text.splitlines(keepends=True)[1:]]
        practice.take(two[0].splitlines(keepends=True)[0] + b"".join([*rows, wrong]), "both.csv")
        assert amounts(practice) == [1, 2]


def test_a_second_row_for_a_reject_is_set_aside_once_the_first_was_loaded(practice, two):
    """LEDGER-07: it may be a second payment, or the same one. A person says which."""
    head, row = two[0].splitlines(keepends=True)
    good, wrong = (row.replace(b",k2,", key) for key in (b",k2-b,", b",k2-c,"))
    practice.take(head + good.replace(b",two,", b",2.00,") + wrong, "split.csv")
    assert practice.take(head + wrong.replace(b",two,", b",2.00,"), "second.csv")[1]["totals"]["rejected"] == 1
    assert amounts(practice) == [1, 2]


@pytest.mark.long
def test_the_source_row_of_a_partly_loaded_correction_is_set_aside(practice, two):
    """LEDGER-07: two rows answer its reject: one was loaded, and one is still wrong."""
    head, row = two[0].splitlines(keepends=True)
    good, wrong = (row.replace(b",k2,", key) for key in (b",k2-b,", b",k2-c,"))
    practice.take(head + good.replace(b",two,", b",2.00,") + wrong, "split.csv")
    assert practice.take(HEADER + ROWS["k2"] + ROWS["k3"], "payments-3.csv")[1]["totals"]["rejected"] == 1
    assert amounts(practice) == [1, 2, 3]

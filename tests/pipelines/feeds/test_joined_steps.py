"""Steps of a column and crosswalks that choose, also where two files are joined."""

import pytest

from pipelines.feeds.files.catalog import FeedError, load_feed
from tests.pipelines.feeds.test_joined import PAYMENTS, PEOPLE, TILL, read
from tests.support.validating import rejected, rows, validated

# --- Steps and crosswalks ---------------------------------------------------------------------------

STEPS = """
kind = "payments"
files = ["t*.csv"]
[columns]
payment_id = "id"
patient_id = {value}
amount = "amount"
paid_on = "day"
"""
WALK = 'crosswalk = { file = "w.csv", from = "a", to = "b" }'
VALUES = 'values = { "x" = "y", "p2" = "p9" }'


@pytest.mark.parametrize(
    ("value", "patient"),
    [
        (f'{{ column = "who", {VALUES}, {WALK} }}', "p1"),
        (f'{{ column = "who", {WALK}, {VALUES} }}', "p9"),
        (f'{{ {WALK}, {VALUES}, column = "who" }}', "p9"),
        (f'{{ join = ["who", "more"], with = "", {VALUES}, before = "-" }}', "-xz"),
        (f'{{ {VALUES}, join = ["who", "more"], with = "", before = "-" }}', "-yz"),
    ],
)
def test_steps_run_in_the_order_in_which_they_are_written(value, patient, tmp_path):
    """FEED-FILE-06"""
    (tmp_path / "w.csv").write_text("a,b\nx,p2\ny,p1\n")
    found = validated(
        "id,who,more,amount,day\nk,x,z,1.00,2026-03-01\n", tmp_path, "t.csv", STEPS.replace("{value}", value)
    )
    assert [row["patient_id"] for row in rows(found, "accepted")] == [patient]


def test_another_order_of_the_steps_is_another_feed(tmp_path):
    """LEDGER-15: what it would read otherwise is noticed."""
    (tmp_path / "w.csv").write_text("a,b\nx,p2\n")
    hashes = []
    for value in (f'{{ column = "who", {VALUES}, {WALK} }}', f'{{ column = "who", {WALK}, {VALUES} }}'):
        (tmp_path / "t.toml").write_text(STEPS.replace("{value}", value))
        hashes.append(load_feed(tmp_path / "t.toml").hash)
    assert hashes[0] != hashes[1]


def test_a_crosswalk_may_choose_its_rows(tmp_path):
    walk = (
        'crosswalk = { file = "w.csv", from = "a", to = "b", where = { field = "Patient", old = { present = false } } }'
    )
    (tmp_path / "w.csv").write_text("field,a,b,old\nStatus,x,open,\nPatient,x,p1,\nPatient,x,p3,yes\n")
    feed = STEPS.replace("{value}", f'{{ column = "who", {walk} }}')
    found = validated("id,who,amount,day\nk,x,1.00,2026-03-01\n", tmp_path, "t.csv", feed)
    assert [row["patient_id"] for row in rows(found, "accepted")] == ["p1"]
    (tmp_path / "t.toml").write_text(feed.replace("field =", "kind ="))
    with pytest.raises(FeedError, match=r"crosswalk w\.csv: where: it has no column kind"):
        load_feed(tmp_path / "t.toml")


def test_a_title_that_skip_leaves_out_begins_no_other_table_in_either_file(tmp_path):
    """LEDGER-25: [skip] comes first, as in a file by itself."""
    files = {
        "till.csv": PAYMENTS.replace("b,7", "Downtown,,,\nb,7"),
        "people.csv": PEOPLE.replace("8,p2", "Guests,\n9,p2"),
    }
    assert [row["line"] for row in rows(read(files, tmp_path, TILL, name="till.zip"), "accepted")] == [6]
    skip = '\n[skip]\nreceipt = "Downtown"\n"people.number" = "Guests"\n'
    found = read(files, tmp_path, TILL + skip, name="till.zip")
    assert [row["patient_id"] for row in rows(found, "accepted")] == ["p1", "p1", "p2"]
    assert (found.rejected, found.warnings.get("TEXT-BETWEEN")) == (0, None)


def test_a_text_among_the_people_beside_payments_is_no_title_and_a_header_there_is_named_with_its_file(tmp_path):
    """LEDGER-25: people are no payments."""
    files = {"till.csv": PAYMENTS.replace("c,9", "c,8"), "people.csv": PEOPLE.replace("8,p2", "Guests,\n8,p2")}
    whole = rows(read({**files, "people.csv": PEOPLE}, tmp_path, TILL, name="till.zip"), "accepted")
    found = rows(read(files, tmp_path, TILL, name="till.zip"), "accepted")
    assert [row["content_hash"] for row in found] == [row["content_hash"] for row in whole] != []
    files["people.csv"] = PEOPLE.replace("8,p2", "Guests,\n" + PEOPLE.splitlines()[0] + "\n8,p2")
    assert "people.csv, line 3 is a title" in str(rejected(read(files, tmp_path, TILL, name="till.zip")))


@pytest.mark.parametrize("cells", ["1.2E+14,p1", "7,8.0"])
def test_a_crosswalk_whose_ids_became_numbers_is_refused(cells, tmp_path):
    (tmp_path / "w.csv").write_text(f"a,b\nx,p1\n{cells}\n")
    (tmp_path / "t.toml").write_text(STEPS.replace("{value}", f'{{ column = "who", {WALK} }}'))
    with pytest.raises(FeedError, match="line 3: an id was turned into a number, as spreadsheets do; enter it as text"):
        load_feed(tmp_path / "t.toml")

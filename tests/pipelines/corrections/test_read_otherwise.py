"""A file that a mended feed reads otherwise: its batch is of what was loaded, and its counts add up."""

import pytest

FEED = """
kind = "payments"
files = ["till*.csv"]
{more}
[columns]
payment_id = "id"
patient_id = "patient"
amount = {amount}
paid_on = "day"
"""
FILE = (
    "id,patient,amount,day,type\na,p1,11.00,2026-03-01,SALE\nb,p1,12.00,2026-03-01,SALE\nc,p1,13.00,2026-03-01,VOID\n"
)
SALES, VOIDS, NONE = '[take]\ntype = "SALE"', '[take]\ntype = "VOID"', '[take]\ntype = "Sale"'
AMOUNT, NO_AMOUNT = '"amount"', '{ column = "amount", before = "x" }'
COUNTED = "SELECT lines, header, not_taken, records, accepted, rejected, amount_received, amount_accepted FROM batch"


@pytest.mark.parametrize(
    ("first", "then", "counts"),
    [
        ((NONE, AMOUNT), (SALES, AMOUNT), (4, 1, 1, 2, 2, 0, 2300, 2300)),
        (("", NO_AMOUNT), ("", AMOUNT), (4, 1, 0, 3, 3, 0, 3600, 3600)),
        ((VOIDS, AMOUNT), (SALES, AMOUNT), (4, 1, 0, 3, 3, 0, 3600, 3600)),
        (("", AMOUNT), (SALES, AMOUNT), (4, 1, 0, 3, 3, 0, 3600, 3600)),
    ],
    ids=["rows that were not taken", "amounts that were none", "other rows", "fewer rows"],
)
@pytest.mark.then_published
def test_the_counts_of_a_batch_add_up_after_its_feed_was_changed(first, then, counts, home, practice):
    """LEDGER-10: otherwise there were more accepted rows than records."""
    (home / "feeds").mkdir()
    for more, amount in (first, then):
        (home / "feeds" / "till.toml").write_text(FEED.replace("{more}", more).replace("{amount}", amount))
        practice.take(FILE, "till.csv")
    assert practice.rows(COUNTED) == [counts]


TASKS = """
source = "{source}"
kind = "tasks"
files = ["till*.csv"]
[columns]
task_id = "id"
patient_id = "patient"
description = "type"
status = {{ constant = "{status}" }}
requester_id = {{ constant = "d1" }}
"""


@pytest.mark.parametrize(
    "first",
    [
        FEED.replace("{more}", "").replace("{amount}", NO_AMOUNT),
        TASKS.format(source="other", status="unheard of"),
    ],
    ids=["another kind", "another source"],
)
@pytest.mark.then_published
def test_a_batch_without_sent_rows_takes_source_and_type_from_its_corrected_feed(
    first, home, target, chartferry, asked, practice
):
    """LEDGER-10: a batch of which rows were sent keeps them."""
    feed = home / "feeds" / "till.toml"
    feed.parent.mkdir()
    feed.write_text(first)
    assert practice.take(FILE, "till.csv")[0] == 3
    feed.write_text(TASKS.format(source="right", status="requested"))
    assert practice.take(FILE, "till.csv")[0] == 0
    assert practice.rows("SELECT source, resource_type, created FROM batch") == [("right", "Task", 3)]
    code, said, _ = chartferry("verify")
    assert (code, "no source here" in said) == (0, False)
    found = asked("evidence")
    assert [found["feeds"][0][side]["records"] for side in ("export", "ledger", "target")] == [3, 3, 3]
    feed.write_text(TASKS.format(source="third", status="requested"))
    practice.take(FILE, "till.csv")
    assert practice.rows("SELECT source FROM batch") == [("right",)]


def test_an_undo_takes_back_what_a_batch_made_under_each_source_and_kind(home, target, asked, practice):
    """CLI-CMD-10: it took back the rows of one, and said nothing of the others."""
    feed, paid = home / "feeds" / "till.toml", FEED.format(more='[take]\ntype = "GIFT"', amount=AMOUNT)
    feed.parent.mkdir()
    first, second = (TASKS.format(source=source, status="requested") for source in ("one", "two"))
    for text in (first + SALES, second + VOIDS, paid):
        feed.write_text(text)
        assert practice.take(FILE + "d,p1,14.00,2026-03-01,GIFT\n", "till.csv")[0] == 0
    [(batch,)] = practice.rows("SELECT batch_id FROM batch")
    for more in (["--dry-run"], []):
        found = asked("undo", batch, *more)
        assert (found["taken"], found["not_taken"]) == (3, 1)
    assert [task["status"] for task in target.of("Task")] == ["cancelled"] * 3
    assert asked("verify")["differences"] == []

"""A header that is not the feed's: the sentence says what was found in the place of its columns, no value of a row."""

from pathlib import Path

import pytest

from pipelines.feeds.files.catalog import load_feeds
from pipelines.feeds.mapping.mapping import Mapper
from pipelines.home.batch import UnreadableFile
from tests.support.validating import validated

OURS = ["payment_id", "patient_id", "amount", "paid_on", "claim_id"]
ROW = ["P-1", "Ada Lovelace", "12.50", "2026-01-02", ""]


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (
            ["Payment ID", "PATIENT_ID", "amount", "paid_on", "claim_id"],
            "has 'Payment ID', but the feed names 'payment_id'; 'PATIENT_ID', but the feed names 'patient_id'; check",
        ),
        (
            ["pay\nment_id", "patient\x1b_id", "amount", "paid_on"],
            r"has 'pay\nment_id', but the feed names 'payment_id'; 'patient\x1b_id', but the feed names 'patient_id'",
        ),
        ([";".join(OURS)], "reads; the file seems to be delimited by ';', but the feed says ','; check"),
        ([";".join(OURS).upper()], "reads; the file seems to be delimited by ';', but the feed says ','; check"),
        (["\t".join(OURS)], "reads; the file seems to be delimited by tabs, but the feed says ','; check"),
        (
            ROW,
            "no column that the feed names, so it may not be a header (if the file has none, set header = 0 and name",
        ),
        ([";".join(ROW)], "reads; that line has 1 field, and no column that the feed names"),
        (
            ["payment_id", "amount", "paid_on", "person"],
            "lacks patient_id, which the feed payments reads; check",
        ),
    ],
)
def test_a_file_that_lacks_columns_says_what_it_has_in_their_place(header: list[str], said: str) -> None:
    """Names of columns may be told; a row that stands where the header should be may not."""
    feed = load_feeds().named("payments")
    assert feed
    with pytest.raises(UnreadableFile) as refused:
        Mapper(feed, header, "payments.csv")
    assert said in str(refused.value)
    assert "Lovelace" not in str(refused.value)
    assert "person" not in str(refused.value)


def test_a_column_whose_name_is_the_position_of_another_fails_the_file(tmp_path: Path) -> None:
    """FEED-FILE-08: its cells were taken in place of those of the column in that place."""
    toml = 'kind = "payments"\nfiles = ["till*"]\n[columns]\npayment_id = 1\npatient_id = 2\namount = 3\npaid_on = 4\n'
    for header, fits in (("id,who,sum,on,#1", False), ("#1,who,#3,on,#9", True)):
        rows = f"{header}\na,p1,1.00,2026-03-01,zz\n"
        (folder := tmp_path / header).mkdir()
        if fits:
            assert validated(rows, folder, "till.csv", toml).accepted == 1
        else:
            with pytest.raises(UnreadableFile, match="the feed names column #1 by its position, but another column"):
                validated(rows, folder, "till.csv", toml)

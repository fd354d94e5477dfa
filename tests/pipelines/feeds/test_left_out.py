"""`[skip]`: totals among the rows and lines below a table are no records, and the draft proposes to leave them out."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fhir_service.interface.site import Site
from pipelines.cli import run
from pipelines.feeds.drafting.draft import draft
from pipelines.feeds.files.catalog import FeedError, load_feed
from pipelines.receiving.stage import receive
from pipelines.session.questionnaires import Snapshot
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.stage import validate

NOW = datetime(2024, 6, 1, tzinfo=UTC)
HEAD = "Receipt,Patient,Amount,Date,Clerk\n"
PAGE = "1,p1,1.50,2024-05-01,ab\n2,p2,2.50,2024-05-02,ab\n"
REPORT = (
    f"{HEAD}{PAGE}Subtotal,,4.00,,\n3,p1,3.50,2024-05-03,ab\n4,p2,4.50,2024-05-04,ab\nSubtotal,,8.00,,\nPage 1 of 1\n"
)
Validate = Callable[[str, str], ValidationResult]


@pytest.fixture
def validated(tmp_path: Path) -> Validate:
    """Validate an export by a feed file."""

    def run_it(feed: str, export: str) -> ValidationResult:
        (tmp_path / "till.toml").write_text(feed)
        (tmp_path / "till.csv").write_text(export)
        loaded = load_feed(tmp_path / "till.toml")
        received = receive(tmp_path / "till.csv", loaded, tmp_path / "home", NOW)
        return validate(received, loaded, Snapshot(), Site(), tmp_path / "run")

    return run_it


def drafted(folder: Path, export: str) -> str:
    path = folder / "till.csv"
    path.write_text(export)
    return draft(path)


def test_the_draft_leaves_out_totals_and_what_stands_below_the_table(tmp_path: Path, validated: Validate) -> None:
    """FEED-FILE-08: the last line is shorter than a row."""
    text = drafted(tmp_path, REPORT)
    asked = "lines 4, 7, 8 begin with this word, like a total or the end of a table"
    assert f'[skip]\n"Receipt" = {{ starts = ["Subtotal", "Page"] }}  # DECIDE: {asked}\n' in text
    found = validated(text, REPORT)
    assert (found.accepted, found.rejected, found.not_taken, found.rows) == (4, 0, 3, 4)
    assert found.amount_received == 1200


def test_a_row_that_a_quote_broke_is_not_left_out(tmp_path: Path, validated: Validate) -> None:
    """FEED-FILE-02: there may be records in it."""
    export = REPORT.replace("Subtotal,,4.00,,\n3,p1", 'Subtotal,,"4.00,,\n3,p1')
    found = validated(drafted(tmp_path, REPORT), export)
    assert (found.accepted, found.rejected, found.not_taken) == (4, 1, 2)


def test_a_sample_shows_what_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """FEED-FILE-08."""
    (tmp_path / "till.toml").write_text(drafted(tmp_path, REPORT))
    command = ["feeds", "check", str(tmp_path / "till.toml"), "--sample", str(tmp_path / "till.csv"), "--rows", "9"]
    assert run(command) == 0
    shown = capsys.readouterr().out
    assert "  leaves out rows with Receipt starts with Subtotal or Page\n" in shown
    assert "till.csv: line 4: left out\n" in shown
    assert "till.csv: line 8: left out\n" in shown
    assert "till.csv: of the first 7 rows 4 taken, 3 left out\n" in shown


def test_a_row_that_meets_one_of_several_skip_conditions_is_left_out_and_a_placeholder_is_refused(
    tmp_path: Path, validated: Validate
) -> None:
    """FEED-FILE-08."""
    feed = drafted(tmp_path, HEAD + PAGE).replace("[columns]", '[skip]\nReceipt = "1"\nClerk = "zz"\n\n[columns]')
    assert validated(feed, HEAD + PAGE).not_taken == 1
    with pytest.raises(FeedError, match=r'skip.Receipt: "..." is a placeholder'):
        validated(feed.replace('Receipt = "1"', 'Receipt = "..."'), HEAD + PAGE)


def test_a_second_table_below_the_first_is_named(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    below = "Date,Amount,Receipt,Clerk,Patient\n" + "2024-05-01,2.50,7,ab,p1\n"
    text = drafted(tmp_path, HEAD + PAGE * 3 + below)
    assert (
        "# DECIDE: line 8: the names of the columns come again in another order; does a second table begin there?"
    ) in text


def test_a_file_of_which_take_takes_no_row_says_so(home, target, asked) -> None:
    """FEED-FILE-08: an export that names its payments otherwise was loaded as if it were empty, without a word."""
    (home / "feeds").mkdir()
    (home / "feeds" / "till.toml").write_text(
        'kind = "payments"\nfiles = ["till*"]\n[take]\nType = "SALE"\n[columns]\n'
        'payment_id = "Receipt"\npatient_id = "Patient"\namount = "Amount"\npaid_on = "Date"\n'
    )
    for number, kind in enumerate(("SALE", "Sale"), 1):
        rows = "".join(f"{number}{row},p1,1.50,2024-05-01,{kind}\n" for row in "ab")
        export = HEAD.replace("Clerk", "Type") + rows
        (home / "inbox" / f"till-{number}.csv").write_text(export)
    taken, none = sorted(asked("import")["batches"], key=lambda batch: -batch["counts"]["created"])
    assert (taken["counts"]["created"], taken["message"]) == (2, None)
    assert (none["counts"]["created"], none["counts"]["not_taken"]) == (0, 2)
    assert none["message"] == (
        f"{none['batch_id']}: [take] of the feed took none of its 2 rows; if some of them are records, correct [take],"
        " since the export writes other texts in Type than the feed expects"
    )

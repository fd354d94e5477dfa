"""Exports made by somebody who had not seen the code, with the meaning of each: nothing of them is misread unsaid."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.feeds.files.catalog import load_feed
from tests.pipelines.feeds.test_polluted import ASKED, REFUSED, REJECTED, RIGHT, WARNED, drafted, outcome
from tests.support.crossing import every_second
from tests.support.polluted_tables import Paid, Polluted
from tests.support.polluted_unseen import WAYS, polluted_by, unseen_files

UNSEEN = Path(__file__).parent / "unseen"
CASES: list[dict[str, Any]] = json.loads((UNSEEN / "polluted.json").read_text(encoding="ascii"))
SAID = (RIGHT, REJECTED, REFUSED, WARNED)
FEED = """
kind = "payments"
files = ["till*"]
format = "csv"
[columns]
payment_id = "receipt"
patient_id = "patient_id"
amount = "amount"
paid_on = "paid_on"
"""


def polluted(case: dict[str, Any]) -> Polluted:
    """A case, its records each on the first line that has its key."""
    lines, truth = case["content"].splitlines(), {}
    for record in case["records"]:
        on = next((number for number, line in enumerate(lines, 1) if record["key"] in line), 0)
        truth[record["key"]] = Paid(record["patient"], record["cents"], record["day"], (on, on))
    return Polluted(case["name"], case["content"].encode(case["encoding"]), truth)


@pytest.mark.parametrize("case", every_second(CASES), ids=[case["name"] for case in CASES])
def test_no_unseen_export_is_misread_unsaid(case: dict[str, Any], tmp_path: Path) -> None:
    """FEED-FILE-02, FEED-FILE-09, LEDGER-25."""
    (tmp_path / "till.toml").write_text(FEED)
    assert outcome(polluted(case), load_feed(tmp_path / "till.toml"), tmp_path)[0] in SAID


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_no_unseen_export_is_misread_unsaid_by_its_draft(case: dict[str, Any], tmp_path: Path) -> None:
    """FEED-FILE-02, FEED-FILE-08."""
    assert drafted(polluted(case), tmp_path)[0] in (*SAID, ASKED)


@pytest.mark.parametrize("way", every_second(WAYS))
def test_no_further_way_of_pollution_is_misread_unsaid(way: str, tmp_path: Path) -> None:
    """FEED-FILE-02, FEED-FILE-09, LEDGER-25."""
    (tmp_path / "till.toml").write_text(FEED)
    assert outcome(polluted_by(way, 0), load_feed(tmp_path / "till.toml"), tmp_path)[0] in SAID


@pytest.mark.long
def test_no_file_of_further_ways_is_misread_unsaid(tmp_path: Path) -> None:
    """FEED-FILE-02, FEED-FILE-08, FEED-FILE-09, LEDGER-25: by a plain feed and by the export's own draft."""
    (tmp_path / "till.toml").write_text(FEED)
    feed, wrong = load_feed(tmp_path / "till.toml"), []
    for number, (way, file) in enumerate(unseen_files()):
        folder = tmp_path / str(number)
        folder.mkdir()
        if outcome(file, feed, folder)[0] not in SAID or drafted(file, folder)[0] not in (*SAID, ASKED):
            wrong.append((way, file.kind))
    assert wrong == []

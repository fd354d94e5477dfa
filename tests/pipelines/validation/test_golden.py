"""Golden folders: what a feed makes of a file, byte for byte. `GOLDEN_UPDATE=1` writes the outputs anew."""

import json
import os
from collections import defaultdict
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest

from pipelines.ledger.notes import Group
from pipelines.loading.accepted import accepted_rows
from pipelines.loading.shared_notes import group_of
from pipelines.validation.outcome import ValidationResult
from tests.support.golden import CASES, GOLDEN, NOW, file_and_feed, validated


@pytest.mark.parametrize("case", CASES)
def test_a_feed_makes_of_a_file_what_the_golden_folder_shows(case: str, tmp_path: Path) -> None:
    """FEED-FILE-01, FEED-FILE-02, FEED-FILE-03, FEED-FILE-04, FEED-FILE-05, FEED-FILE-06, FEED-FILE-07, FEED-FILE-08,
    FEED-FILE-09, FEED-PAY-01, FEED-PAY-02, FEED-PAY-03, FEED-PAY-04, FEED-PAY-05, FEED-ANS-01, FEED-ANS-02, FEED-
    ANS-03, FEED-ANS-04, FEED-ANS-05, FEED-ANS-06, FEED-ANS-07, FEED-ANS-08, FEED-ANS-09, FEED-ANS-10, FEED-TASK-01,
    FEED-TASK-02, FEED-TASK-03, FEED-TASK-04, FEED-TASK-05, FEED-TASK-06, LEDGER-13.
    """
    found = validated(GOLDEN / case / "input", tmp_path)
    output = GOLDEN / case / "output"
    shown = {"counts.json": counts(found)} | {
        f"{name}.ndjson": table(found.folder / f"{name}.parquet") for name in ("accepted", "rejects", "skipped")
    }
    _, feed = file_and_feed(GOLDEN / case / "input")
    if feed.file.notes == "patient-day":
        shown["notes.ndjson"] = notes(found.folder / "accepted.parquet", ZoneInfo(feed.file.timezone))
    if os.environ.get("GOLDEN_UPDATE"):
        for name, text in shown.items():
            (output / name).write_text(text)
    assert shown == {path.name: path.read_text() for path in output.iterdir()}
    assert_all_is_accounted_for(found)


def counts(found: ValidationResult) -> str:
    elsewhere = ("folder", "known_elsewhere", "unconfirmed", "noticed", "places", "found_in")
    shown = {field.name: getattr(found, field.name) for field in fields(found) if field.name not in elsewhere}
    return json.dumps(shown, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def table(path: Path) -> str:
    """One row a line, the body as JSON, absent values left out."""
    lines = [json.dumps(readable(row), ensure_ascii=False) for row in pq.read_table(path).to_pylist()]
    return "".join(line + "\n" for line in lines)


def notes(path: Path, zone: ZoneInfo) -> str:
    """The keys of the responses that share a note, a note a line."""
    shared: dict[Group, list[str]] = defaultdict(list)
    for rows in accepted_rows(path, NOW.astimezone(UTC).isoformat()):
        for row in rows:
            if group := group_of(row, zone):
                shared[group].append(row.key)
    return "".join(json.dumps({**group._asdict(), "keys": keys}) + "\n" for group, keys in shared.items())


def readable(row: dict) -> dict:
    shown = {name: value for name, value in row.items() if value is not None}
    if "body" in shown:
        shown["body"] = json.loads(shown["body"], parse_float=str)
    for name, value in shown.items():
        if isinstance(value, datetime):
            shown[name] = value.astimezone(UTC).isoformat()
    return shown


def assert_all_is_accounted_for(found: ValidationResult) -> None:
    """FEED-FILE-09: lines = header + not taken + the lines of all records; records = accepted + rejected."""
    tables = [pq.read_table(found.folder / f"{name}.parquet") for name in ("accepted", "rejects", "skipped")]
    assert found.lines == found.header + found.not_taken + sum(sum(table["lines"].to_pylist()) for table in tables)
    assert [len(table) for table in tables] == [found.accepted - found.skipped, found.rejected, found.skipped]
    assert found.records == found.accepted + found.rejected

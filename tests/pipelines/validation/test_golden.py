"""Golden folders: what a feed makes of a file, byte for byte. `GOLDEN_UPDATE=1` writes the outputs anew."""

import json
import os
import sqlite3
from collections import defaultdict
from contextlib import closing
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from unittest.mock import patch
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest

from fhir_service.interface.resources.questionnaire import Questionnaire
from fhir_service.interface.site import Site
from pipelines.feeds.files.catalog import Feed, load_feeds
from pipelines.home.batch import Received
from pipelines.ledger.notes import Group
from pipelines.loading.accepted import accepted_rows
from pipelines.loading.shared_notes import group_of
from pipelines.session.questionnaires import Snapshot
from pipelines.validation.outcome import Validated
from pipelines.validation.stage import validate

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = sorted(folder.name for folder in GOLDEN.iterdir() if (folder / "input").is_dir())
NOW = datetime(2024, 6, 1, 12, 0, tzinfo=timezone(timedelta(hours=9)))
SITE = Site("http://chart.test", "acme", "clinic")


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


def validated(folder: Path, tmp_path: Path) -> Validated:
    file, feed = file_and_feed(folder)
    received = Received(f"{feed.name}-0", "0" * 64, file, file.name, file.stat().st_size, NOW)
    with patch.dict(os.environ, databases(folder, tmp_path)):
        return validate(received, feed, questionnaires(), SITE, tmp_path / "run-1")


def file_and_feed(folder: Path) -> tuple[Path, Feed]:
    feeds = load_feeds([folder])
    found = ((path, feeds.match(path.name)) for path in sorted(folder.iterdir()) if path.suffix != ".toml")
    return next((path, feed) for path, feed in found if feed)


def databases(folder: Path, tmp_path: Path) -> dict[str, str]:
    """The URLs of databases made by the scripts beside the feed file: of `cards.sql` as `CARDS_URL`."""
    urls = {}
    for script in folder.glob("*.sql"):
        path = tmp_path / f"{script.stem}.db"
        with closing(sqlite3.connect(path)) as database:
            database.executescript(script.read_text())
        urls[f"{script.stem.upper()}_URL"] = f"sqlite:///{path}"
    return urls


def questionnaires() -> Snapshot:
    stored = json.loads((GOLDEN / "questionnaires.json").read_text())
    return Snapshot.of(Questionnaire.model_validate(questionnaire) for questionnaire in stored)


def counts(found: Validated) -> str:
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
    shown = {name: value for name, value in row.items() if value is not None and not name.endswith("_hash")}
    if "body" in shown:
        shown["body"] = json.loads(shown["body"], parse_float=str)
    for name, value in shown.items():
        if isinstance(value, datetime):
            shown[name] = value.astimezone(UTC).isoformat()
    return shown


def assert_all_is_accounted_for(found: Validated) -> None:
    """FEED-FILE-09: lines = header + not taken + the lines of all records; records = accepted + rejected."""
    tables = [pq.read_table(found.folder / f"{name}.parquet") for name in ("accepted", "rejects", "skipped")]
    assert found.lines == found.header + found.not_taken + sum(sum(table["lines"].to_pylist()) for table in tables)
    assert [len(table) for table in tables] == [found.accepted - found.skipped, found.rejected, found.skipped]
    assert found.records == found.accepted + found.rejected

"""The golden folders, and the output of the validate stage for them."""

import json
import os
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from unittest.mock import patch

from fhir_service.interface.resources.questionnaire import Questionnaire
from fhir_service.interface.site import Site
from pipelines.feeds.files.catalog import Feed, load_feeds
from pipelines.home.batch import ReceivedFile
from pipelines.session.questionnaires import Snapshot
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.stage import validate

GOLDEN = Path(__file__).parents[1] / "pipelines" / "golden"
CASES = sorted(folder.name for folder in GOLDEN.iterdir() if (folder / "input").is_dir())
NOW = datetime(2024, 6, 1, 12, 0, tzinfo=timezone(timedelta(hours=9)))
SITE = Site("http://chart.test", "acme", "clinic")


def validated(folder: Path, tmp_path: Path) -> ValidationResult:
    file, feed = file_and_feed(folder)
    received = ReceivedFile(f"{feed.name}-0", "0" * 64, file, file.name, file.stat().st_size, NOW)
    with patch.dict(os.environ, databases(folder, tmp_path)):
        return validate(received, feed, questionnaires(), SITE, tmp_path / "run-1")


def file_and_feed(folder: Path) -> tuple[Path, Feed]:
    feeds = load_feeds([folder])
    found = ((path, feeds.match(path.name)) for path in sorted(folder.iterdir()) if path.suffix != ".toml")
    return next((path, feed) for path, feed in found if feed)


def databases(folder: Path, tmp_path: Path) -> dict[str, str]:
    """Make the databases of the scripts beside the feed file. Return their URLs: that of `cards.sql` as `CARDS_URL`."""
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

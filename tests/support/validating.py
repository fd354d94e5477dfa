"""Validate a single file, and read the results."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from fhir_service.interface.site import Site
from pipelines.feeds.files.catalog import Feed, load_feed, load_feeds
from pipelines.home.batch import ReceivedFile
from pipelines.session.questionnaires import Snapshot
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.stage import validate

NOW = datetime(2024, 6, 1, tzinfo=UTC)
PAYMENTS = "payment_id,patient_id,amount,paid_on,claim_id\n"


def validated(
    content: bytes | str,
    folder: Path,
    name: str = "payments.csv",
    toml: str | Feed = "",
    snapshot: Snapshot | None = None,
    site: Site | None = None,
    **options: Any,
) -> ValidationResult:
    """Validate a file with this content. toml: a feed file or a feed; else the name selects a built-in feed."""
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    feed: Feed | None
    if isinstance(toml, str) and toml:
        (folder / "feed.toml").write_text(toml)
        feed = load_feed(folder / "feed.toml")
    else:
        feed = toml or load_feeds().match(name)
    assert feed
    received = ReceivedFile("b", "0" * 64, file, name, 0, NOW)
    return validate(received, feed, snapshot or Snapshot(), site or Site(), folder / "run-1", **options)


def rows(found: ValidationResult, name: str) -> list[dict]:
    read: list[dict] = pq.read_table(found.folder / f"{name}.parquet").to_pylist()
    return read


def keys(found: ValidationResult, name: str = "accepted") -> list[str]:
    return [row["key"] for row in rows(found, name)]


def accepted(found: ValidationResult) -> list[tuple[int, str]]:
    """Return the lines and keys of the accepted records."""
    return [(row["line"], row["key"]) for row in rows(found, "accepted")]


def rejected(found: ValidationResult) -> list[tuple[int, int, str]]:
    """Return the first line, the number of lines and the reasons of each reject."""
    return [(row["line"], row["lines"], row["reasons"][0]["message"]) for row in rows(found, "rejects")]

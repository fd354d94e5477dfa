"""The folder of a bulk publication: whole resources, a manifest, and what another home imports of it."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipelines.reports.bulk import publish_bulk
from pipelines.reports.changes import sweep_changes
from tests.support.publishing import REPORTS, TARGET, Target, World

ADDRESS = "https://data.example/bulk/"


def bulk(world: World, day: int) -> dict[str, Any]:
    manifest = publish_bulk(world.home, TARGET, ADDRESS, datetime(2026, 3, day, tzinfo=UTC))
    return dict(json.loads(manifest.read_text()))


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.publish()
    made.ledger.close()
    return made


def lines(world: World, url: str) -> list[dict[str, Any]]:
    file = world.home / "bulk-publish" / url.removeprefix(ADDRESS)
    assert file.stat().st_mode & 0o777 == 0o600
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_what_the_target_has_is_published_whole_with_a_manifest(world: World) -> None:
    """REPORT-31"""
    tasks = [{"resourceType": "Task", "id": name, "description": "café\nnext"} for name in "ab"]
    sweep_changes(Target(tasks), world.home, TARGET, "Task", clock=world.clock)
    said = bulk(world, 2)
    reports, of_tasks = said.pop("output")
    assert said == {
        "transactionTime": "2026-03-02T00:00:00+00:00",
        "request": "https://data.example/bulk/$bulk-publish",
        "requiresAccessToken": True,
        "error": [],
    }
    assert (reports["type"], reports["count"], of_tasks["type"], of_tasks["count"]) == (
        "DiagnosticReport",
        6,
        "Task",
        2,
    )
    assert lines(world, of_tasks["url"]) == tasks
    assert [each["id"] for each in lines(world, reports["url"])] == [each["id"] for each in REPORTS]


def test_files_of_the_publication_before_are_still_there_and_older_ones_are_not(world: World) -> None:
    """REPORT-31: whoever has read the manifest finds its files."""
    first, second, third = (bulk(world, day)["output"][0]["url"] for day in (2, 3, 4))
    left = {path.name for path in (world.home / "bulk-publish").glob("*.ndjson")}
    assert left == {url.removeprefix(ADDRESS) for url in (second, third)}
    assert first not in left


@pytest.mark.publishes
def test_the_command_publishes_in_bulk_alone(home: Path, chartferry: Any) -> None:
    """REPORT-31"""
    code, out, _ = chartferry("reports", "--bulk", "https://data.example/bulk")
    assert (code, out) == (0, f"published: {home / 'bulk-publish' / 'manifest.json'}\n")
    assert not (home / "published" / "reports.duckdb").exists()
    code, _, err = chartferry("reports", "--bulk", "here", "--pseudonymous")
    assert code == 2
    assert "--bulk and --pseudonymous are two publications: name one" in err
    assert chartferry("reports", "--bulk", "here")[0] == 2

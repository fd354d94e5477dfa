"""The folder of a bulk publication: whole resources, a manifest, and what another home imports of it."""

import errno
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.client.capabilities import Capabilities
from pipelines.client.replies import TargetUnusable
from pipelines.reports.bulk import publish_bulk
from pipelines.reports.changed_resources import sweep_changes
from pipelines.reports.pages import SweepIncomplete
from pipelines.reports.publication import PublicationError
from pipelines.reports.sweep import kept_sweep
from pipelines.session.sweeping import IN_BULK, sweep_for_bulk
from tests.support.publishing import REPORTS, TARGET, Target, World

ADDRESS = "https://data.example/bulk/"


def bulk(world: World, day: int, *others: str) -> dict[str, Any]:
    types = ["DiagnosticReport", *others]
    manifest = publish_bulk(world.home, TARGET, ADDRESS, datetime(2026, 3, day, tzinfo=UTC), types)
    return dict(json.loads(manifest.read_text()))


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.read()
    made.ledger.close()
    return made


def lines(world: World, url: str) -> list[dict[str, Any]]:
    file = world.home / "bulk-publish" / url.removeprefix(ADDRESS)
    assert file.stat().st_mode & 0o777 == 0o600
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_all_resources_of_the_target_are_published_with_a_manifest(world: World) -> None:
    """REPORT-31"""
    tasks = [{"resourceType": "Task", "id": name, "description": "café\nnext"} for name in "ab"]
    sweep_changes(Target(tasks), world.home, TARGET, "Task", clock=world.clock)
    said = bulk(world, 2, "Task")
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


def test_parts_that_were_left_behind_are_removed_and_nothing_is_left_in_scratch(world: World) -> None:
    """REPORT-31: a publication that was killed leaves patient data, which no other would replace."""
    bulk(world, 2)
    for name in ("Task-20260301T000000000000.part", "manifest.json.part"):
        (world.home / "bulk-publish" / name).write_text("SECRET")
    bulk(world, 3)
    assert not list((world.home / "bulk-publish").glob("*.part"))
    assert not list(world.home.glob("scratch/*"))


def test_publications_that_fail_leave_no_files_that_pile_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """REPORT-31: on a full disk each try would leave one more, and none would ever have room."""
    first = bulk(world, 2)["output"][0]["url"].removeprefix(ADDRESS)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def files() -> set[str]:
        return {path.name for path in (world.home / "bulk-publish").glob("*-*")}

    with monkeypatch.context() as patch:
        patch.setattr("pipelines.reports.bulk.write_whole", full)
        for day in (3, 4, 5):
            with pytest.raises(OSError, match="No space left"):
                bulk(world, day)
    assert first in files()
    assert len(files()) == 2
    last = bulk(world, 6)["output"][0]["url"].removeprefix(ADDRESS)
    assert files() == {first, last}


def test_a_type_that_was_not_read_is_left_out(world: World) -> None:
    """REPORT-31: its resources as read long ago would pass for present ones."""
    tasks = [{"resourceType": "Task", "id": "a"}]
    sweep_changes(Target(tasks), world.home, TARGET, "Task", clock=world.clock)
    assert [each["type"] for each in bulk(world, 2)["output"]] == ["DiagnosticReport"]


def test_unusable_files_end_a_bulk_publication_without_showing_their_content(world: World) -> None:
    """REPORT-31"""
    kept_sweep(world.home, TARGET).path.write_bytes(b"SECRET" * 100)
    with pytest.raises(PublicationError, match=r"^the tables could not be built \(\w+\)$"):
        bulk(world, 2)
    assert not (world.home / "bulk-publish" / "manifest.json").exists()


class Failing(Target):
    """A target of which one type cannot be read."""

    def __init__(self, failing: str) -> None:
        super().__init__(REPORTS)
        self.failing = failing

    def pages(self, resource_type: str, params: dict[str, str] | None = None, *_: object) -> Iterator[dict[str, Any]]:
        if resource_type == self.failing:
            raise SweepIncomplete("HTTP 500")
        return super().pages(resource_type, params)


@pytest.mark.parametrize("failing", ["Observation", "Questionnaire", "QuestionnaireResponse", "Task", ""])
def test_a_resource_that_cannot_be_read_ends_the_publication(tmp_path: Path, failing: str) -> None:
    """REPORT-31: the files of the publication before stay as they are."""
    able = Capabilities(searched=frozenset({"DiagnosticReport", *sorted(IN_BULK - {"PaymentNotice"}), "Claim"}))
    connection: Any = SimpleNamespace(client=Failing(failing), capabilities=able)
    session: Any = SimpleNamespace(home=tmp_path, target=TARGET, connection=connection)
    if failing:
        with pytest.raises(TargetUnusable, match=f"^{failing} could not be read from the target"):
            sweep_for_bulk(session)
    else:
        assert sweep_for_bulk(session)[1] == [
            *("DiagnosticReport", "Observation", "Questionnaire", "QuestionnaireResponse", "Task")
        ]


@pytest.mark.publishes
def test_the_command_publishes_in_bulk_alone(home: Path, chartferry: Any) -> None:
    """REPORT-31"""
    code, out, _ = chartferry("reports", "--bulk", "https://data.example/bulk")
    assert (code, out) == (0, f"published: {home / 'bulk-publish' / 'manifest.json'}\n")
    assert not (home / "published" / "reports.duckdb").exists()
    code, _, err = chartferry("reports", "--bulk", "here", "--pseudonymous")
    assert code == 2
    assert "--bulk and --pseudonymous exclude each other: give one of them" in err
    assert chartferry("reports", "--bulk", "here")[0] == 2

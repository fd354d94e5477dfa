"""Resources of the import that a later full sweep does not find: tables and page report them."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipelines.client.replies import NoResult
from pipelines.ledger.former_versions import earlier_versions, intend_change, intend_withdrawal, undone
from pipelines.ledger.rows import Intent, Outcome
from pipelines.reports.changed_resources import read_whole_next, sweep_changes
from pipelines.reports.pages import SweepIncomplete
from pipelines.reports.sweep import FILES, OVERLAP, folder_of
from tests.support.publishing import (
    START,
    TARGET,
    Target,
    World,
    carry_over,
    import_payments,
    publish_only,
    unpublished,
)

RESPONSES = "QuestionnaireResponse"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    publish_only(monkeypatch, "payment", "payment_reconciliation", "task", "questionnaire_response", "answer")
    with unpublished(tmp_path) as made:
        made.reports = []
        yield made


def read(world: World, resource_type: str, *ids: str, is_dated: bool = False) -> None:
    there = [{"resourceType": resource_type, "id": each, "status": "completed"} for each in ids]
    sweep_changes(Target(there), world.home, TARGET, resource_type, is_dated, is_asked_for=True, clock=world.clock)


def test_a_change_that_is_dated_ahead_of_time_hides_no_later_one(world: World) -> None:
    """REPORT-01: as of a target whose clock was wrong for a while."""
    ahead, told = START + timedelta(days=30), {"resourceType": "Task", "status": "requested"}
    there = Target([told | {"id": "ahead", "meta": {"lastUpdated": f"{ahead:%Y-%m-%dT%H:%M:%SZ}"}}])
    for name in ("t1", "t2"):
        sweep_changes(there, world.home, TARGET, "Task", True, is_asked_for=True, clock=world.clock)
        there.resources.append(told | {"id": name, "meta": {"lastUpdated": f"{world.clock():%Y-%m-%dT%H:%M:%SZ}"}})
    sweep_changes(there, world.home, TARGET, "Task", True, is_asked_for=True, clock=world.clock)
    kept = folder_of(world.home, TARGET) / FILES["Task"][0]
    assert {each["report_id"] for each in pq.read_table(kept).to_pylist()} == {"ahead", "t1", "t2"}
    assert [bool(params) for _, params in there.asked] == [False, True, True]


def answered(world: World, *keys: str) -> None:
    body: dict[str, Any] = {"item": [{"linkId": "low", "answer": [{"valueBoolean": True}]}]}
    carry_over(world, RESPONSES, dict.fromkeys(keys, (START, body)))


def responses(world: World) -> list[str]:
    world.publish()
    return [name for (name,) in world.rows("SELECT resource_id FROM questionnaire_response")]


@pytest.mark.long
def test_a_response_that_vanished_before_the_first_sweep_is_left_out_with_a_remark(world: World) -> None:
    read(world, RESPONSES)
    answered(world, "r1", "r2")
    assert responses(world) == ["id-r1", "id-r2"]
    assert not world.published.remarks
    read(world, RESPONSES, "id-r2")  # within the hour in which a search may not show what is new
    assert responses(world) == ["id-r1", "id-r2"]
    assert not world.published.remarks
    world.time += OVERLAP
    read(world, RESPONSES, "id-r2")
    assert responses(world) == ["id-r2"]
    assert world.rows("SELECT response_id FROM answer") == [("id-r2",)]
    [said] = world.published.remarks
    assert "responses that the import made or adopted, 1 was not at the target" in said
    assert "and are left out" in said


def test_a_reading_that_broke_off_says_nothing(world: World) -> None:
    class Broken(Target):
        def pages(self, resource_type: str, params: dict[str, str] | None = None) -> Iterator[dict[str, Any]]:
            yield from super().pages(resource_type, params)
            raise NoResult("it is away")

    answered(world, "r1")
    with pytest.raises(SweepIncomplete):
        sweep_changes(Broken([]), world.home, TARGET, RESPONSES, clock=world.clock)
    assert responses(world) == ["id-r1"]
    assert not world.published.remarks


def test_payments_and_tasks_that_are_gone_are_counted_with_their_sum(world: World) -> None:
    import_payments(world)
    carry_over(world, "Task", {"t1": (START, {"status": "requested"}), "t2": (START, {"status": "requested"})})
    world.time += OVERLAP
    read(world, "Task", "id-t1")
    read(world, "PaymentNotice", "id-3", "id-4", "id-8")
    world.publish()
    said = {each.partition(":")[0]: each for each in world.published.remarks}
    assert "the import made or adopted, 2 (20.08 US dollars) were not" in said["payment"]
    assert said["payment"].partition(":")[2] == said["payment_reconciliation"].partition(":")[2]
    assert "the import made or adopted, 1 was not" in said["task"]
    [(comment,)] = world.rows("SELECT comment FROM duckdb_tables() WHERE table_name = 'payment_reconciliation'")
    assert "20.08 US dollars" in comment


def test_tasks_that_an_undo_may_have_taken_back_are_counted(world: World) -> None:
    """An undo that was cut off; a later file that updates one of them puts it right."""
    carry_over(world, "Task", {f"t{number}": (START, {"status": "requested"}) for number in (1, 2, 3)})
    of = ("default", "Task")
    with world.ledger.lease(TARGET) as lease:
        intend_withdrawal(world.ledger, lease, [(*of, key, 1) for key in ("t1", "t2")])
    world.publish()
    [said] = world.published.remarks
    assert "task: Of the tasks that the import made or adopted, 2 may have been taken back by an undo" in said
    world.begin("later-fedcba987654", of=of)
    with world.ledger.lease(TARGET) as lease:
        change = (1, Intent("t1", 1, "later-fedcba987654", 2, "h-later", "f1", "p1"))
        intend_change(world.ledger, lease, *of, [change])
        world.ledger.settle(TARGET, *of, [Outcome("t1", 1, "updated", "id-t1", None)])
    world.publish()
    assert "1 may have been taken back" in world.published.remarks[0]
    undone(world.ledger, TARGET, earlier_versions(world.ledger, TARGET, *of, ["t2"]))
    world.publish()
    assert not world.published.remarks


def test_where_verify_found_one_gone_the_next_reading_is_whole(world: World) -> None:
    """Changes alone would not show it for a day."""
    answered(world, "r1")
    world.time += timedelta(hours=1)
    there = {"resourceType": RESPONSES, "id": "a", "meta": {"lastUpdated": "2026-03-01T12:30:00Z"}}
    for is_found, asked in ((False, False), (False, True), (True, False), (False, True)):
        if is_found:
            read_whole_next(world.home, TARGET, RESPONSES)
        target = Target([there])
        sweep_changes(target, world.home, TARGET, RESPONSES, is_dated=True, clock=world.clock)
        assert [params is not None for _, params in target.asked] == [asked]

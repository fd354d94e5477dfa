"""Reports with malformed or missing elements: their cells are empty, and other reports are published."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.publishing import World, publish_only, report, unpublished


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    publish_only(monkeypatch)
    with unpublished(tmp_path) as made:
        yield made


def test_a_report_of_another_shape_leaves_its_cells_empty(world: World) -> None:
    odd = {"category": "LAB", "code": {"coding": {}}, "effectiveDateTime": "yesterday", "issued": 7, "result": [{}]}
    world.reports = [report("odd", **odd), report("year", effectiveDateTime="2026", subject={"reference": "Group/g"})]
    world.publish()
    cells = "SELECT category_code, code, effective_at, issued_at, result_count, patient_id FROM diagnostic_report"
    assert world.rows(cells) == [
        (None, None, None, None, 0, "p1"),
        ("LAB", "58410-2", datetime(2026, 1, 1, tzinfo=UTC), None, 0, None),
    ]


ODD_REPORTS: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "empty lists": ({"category": [], "code": {}, "performer": [], "result": []}, (None, None, "final", 0)),
    "nothing at all": ({"category": None, "code": None, "status": None, "result": [None]}, (None, None, None, 0)),
    "nothing within": (
        {"category": [None, {"coding": [None]}], "code": {"coding": [None, {}]}},
        (None, None, "final", 0),
    ),
    "empty texts": ({"category": [{"coding": [{"code": "", "display": ""}]}]}, ("", "58410-2", "final", 0)),
    "numbers for texts": ({"status": 7, "category": [{"coding": [{"code": 5}]}]}, ("5", "58410-2", "7", 0)),
    "texts for numbers": ({"result": "3", "performer": {"reference": 1}}, ("LAB", "58410-2", "final", 0)),
    "another status": ({"status": "preliminary"}, ("LAB", "58410-2", "preliminary", 0)),
    "many results": (
        {"result": [{"reference": f"Observation/{n}"} for n in range(999)]},
        ("LAB", "58410-2", "final", 999),
    ),
    "a huge text": ({"conclusion": "x" * 3_000_000}, ("LAB", "58410-2", "final", 0)),
    "a null character": ({"code": {"coding": [{"code": "a\0b"}]}}, ("LAB", "a\0b", "final", 0)),
    "names in another case": ({"ID": "other", "STATUS": "other"}, ("LAB", "58410-2", "final", 0)),
}


ODD_TIMES: dict[Any, datetime | None] = {
    "2024": datetime(2024, 1, 1, tzinfo=UTC),
    "2024-05": datetime(2024, 5, 1, tzinfo=UTC),
    "2024-02-29": datetime(2024, 2, 29, tzinfo=UTC),
    "2024-03-31T02:30:00+01:00": datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
    **dict.fromkeys(("2024-02-30", "2016-12-31T23:59:60Z", "0000-00-00", "-0044-03-15", "290000-01-01", "", "T", 5)),
    "9999-12-31T23:59:59-10:00": None,
    **dict.fromkeys(("infinity", "-infinity", "epoch", "now", "today", "yesterday")),
}


def test_a_report_with_odd_elements_leaves_its_cells_empty_and_holds_up_no_other(world: World) -> None:
    """REPORT-06, REPORT-20"""
    odd = {name.replace(" ", "-"): found for name, found in ODD_REPORTS.items()}
    times = {f"time-{number}": said for number, said in enumerate(ODD_TIMES)}
    world.reports = [report(name, **body) for name, (body, _) in odd.items()]
    world.reports += [report(name, effectiveDateTime=said, issued=said) for name, said in times.items()]
    world.publish()
    cells = "SELECT report_id, category_code, code, status, result_count FROM diagnostic_report"
    assert {row[0]: row[1:] for row in world.rows(f"{cells} WHERE report_id NOT LIKE 'time-%'")} == {
        name: expected for name, (_, expected) in odd.items()
    }
    found = dict(world.rows("SELECT report_id, effective_at FROM diagnostic_report WHERE report_id LIKE 'time-%'"))
    assert {said: found[name] for name, said in times.items()} == ODD_TIMES


def test_a_day_without_a_time_at_either_end_gives_no_turnaround(world: World) -> None:
    """REPORT-20: an issued date alone counted as issued before the effective time of that day."""
    times = [("2026-01-05T10:00:00Z", "2026-01-05"), ("2026-01-05", "2026-01-06T10:00:00Z"), ("2026", "2026-01")]
    world.reports = [report(f"r{n}", effectiveDateTime=at, issued=issued) for n, (at, issued) in enumerate(times)]
    world.publish()
    assert world.rows("SELECT turnaround_hours FROM diagnostic_report") == [(None,)] * 3

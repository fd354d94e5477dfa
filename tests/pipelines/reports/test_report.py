"""The sweep: all pages, distinct ids, no signed URLs, and what it remembers from sweep to sweep."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.reports.pages import SweepIncomplete
from pipelines.reports.sweep import Sweep, kept_sweep, sweep

TARGET = "urn:uuid:5f0c7c5e-0000-4000-8000-000000000001"
SIGNED = "http://127.0.0.1:8400/files/1?signature=secret-"


class Target:
    """A target that answers searches from a list, two reports a page."""

    def __init__(self, *reports: dict[str, Any]) -> None:
        self.reports = list(reports)
        self.total: int | None = None
        self.sweeps = 0

    def pages(self, resource_type: str) -> Iterator[dict[str, Any]]:
        assert resource_type == "DiagnosticReport"
        self.sweeps += 1
        total = len(self.reports) if self.total is None else self.total
        if not self.reports:
            yield {"resourceType": "Bundle", "type": "searchset", "total": total}
        for at in range(0, len(self.reports), 2):
            entry = [{"resource": report} for report in self.reports[at : at + 2]]
            yield {"resourceType": "Bundle", "type": "searchset", "total": total, "entry": entry}


def report(name: str, *, signature: str = "1", port: int = 8400, **changes: Any) -> dict[str, Any]:
    return {
        "resourceType": "DiagnosticReport",
        "id": name,
        "status": "final",
        "presentedForm": [
            {
                "contentType": "text/plain",
                "url": f"http://127.0.0.1:{port}/DiagnosticReport/{name}/files/presentedForm/0",
                "extension": [
                    {"url": "http://schemas.example.com/fhir/extensions/deprecated-url", "valueUri": SIGNED + signature}
                ],
            }
        ],
        **changes,
    }


@pytest.fixture
def clock() -> Callable[[], datetime]:
    times = (datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=n) for n in range(100))
    return lambda: next(times)


def rows(done: Sweep) -> list[dict[str, Any]]:
    with duckdb.connect() as db:
        found = db.read_parquet(str(done.path)).order("report_id").arrow()
        return found.read_all().to_pylist()  # type: ignore[no-any-return]


def test_a_sweep_keeps_every_report_once(tmp_path: Path, clock: Callable[[], datetime]) -> None:
    """REPORT-06: all pages, distinct ids equal to the total."""
    done = sweep(Target(*(report(f"r{n}") for n in range(5))), tmp_path, TARGET, clock)
    assert (done.total, done.new, done.changed, done.gone) == (5, 5, 0, 0)
    assert [row["report_id"] for row in rows(done)] == ["r0", "r1", "r2", "r3", "r4"]
    assert kept_sweep(tmp_path, TARGET) == done
    assert sorted(path.name for path in done.path.parent.iterdir()) == [
        *(".kept.lock", ".lock", "reports.parquet", "sweep.json")
    ]


def test_a_target_without_reports_gives_an_empty_sweep(tmp_path: Path) -> None:
    done = sweep(Target(), tmp_path, TARGET)
    assert (done.total, rows(done)) == (0, [])
    assert kept_sweep(tmp_path, "another").total == 0


def test_signed_urls_and_the_servers_address_are_neither_kept_nor_content(
    tmp_path: Path, clock: Callable[[], datetime]
) -> None:
    """REPORT-21: a report is not corrected because it was signed anew or served from another port."""
    sweep(Target(report("r1", signature="1")), tmp_path, TARGET, clock)
    done = sweep(Target(report("r1", signature="2", port=9000)), tmp_path, TARGET, clock)
    assert done.changed == 0
    [row] = rows(done)
    assert json.loads(row["body"])["presentedForm"] == [
        {"contentType": "text/plain", "url": "DiagnosticReport/r1/files/presentedForm/0"}
    ]
    assert b"secret-" not in b"".join(path.read_bytes() for path in done.path.parent.iterdir())


def test_a_sweep_remembers_which_reports_changed_and_which_are_gone(
    tmp_path: Path, clock: Callable[[], datetime]
) -> None:
    """REPORT-21"""
    first = sweep(Target(report("a"), report("b"), report("c")), tmp_path, TARGET, clock)
    second = sweep(Target(report("a", status="entered-in-error"), report("b"), report("d")), tmp_path, TARGET, clock)
    assert (second.new, second.changed, second.gone) == (1, 1, 1)
    third = sweep(Target(report("a", status="entered-in-error"), report("b"), report("c")), tmp_path, TARGET, clock)
    assert (third.new, third.changed, third.gone) == (0, 0, 1)
    found = {row["report_id"]: (row["changes"], row["changed_at"], row["gone_at"]) for row in rows(third)}
    assert found == {
        "a": (1, second.started_at, None),
        "b": (0, None, None),
        "c": (0, None, None),
        "d": (0, None, third.started_at),
    }
    assert {row["first_seen_at"] for row in rows(third) if row["report_id"] in "abc"} == {first.started_at}


def test_nothing_is_rewritten_when_nothing_changed(tmp_path: Path, clock: Callable[[], datetime]) -> None:
    target = Target(report("a"), report("b"))
    inode = sweep(target, tmp_path, TARGET, clock).path.stat().st_ino
    assert sweep(target, tmp_path, TARGET, clock).path.stat().st_ino == inode


def test_pages_that_disagree_with_the_total_are_read_again_and_then_fail(
    tmp_path: Path, clock: Callable[[], datetime]
) -> None:
    done = sweep(Target(report("a")), tmp_path, TARGET, clock)
    twice = Target(report("a"), report("b"), report("b"))
    with pytest.raises(SweepIncomplete, match="counts 3 reports and its 2 pages held 2"):
        sweep(twice, tmp_path, TARGET, clock)
    assert twice.sweeps == 3
    assert kept_sweep(tmp_path, TARGET) == done
    assert [row["report_id"] for row in rows(done)] == ["a"]


def test_a_sweep_that_is_stopped_leaves_the_kept_reports_as_they_were(
    tmp_path: Path, clock: Callable[[], datetime]
) -> None:
    done = sweep(Target(report("a")), tmp_path, TARGET, clock)

    class Lost(Target):
        def pages(self, resource_type: str) -> Iterator[dict[str, Any]]:
            yield next(super().pages(resource_type))
            raise ConnectionError

    with pytest.raises(ConnectionError):
        sweep(Lost(report("a", status="x"), report("b"), report("c")), tmp_path, TARGET, clock)
    assert (kept_sweep(tmp_path, TARGET), len(rows(done))) == (done, 1)
    again = sweep(Target(report("a", status="x"), report("b")), tmp_path, TARGET, clock)
    assert (again.new, again.changed) == (1, 1)


def test_targets_are_kept_apart(tmp_path: Path, clock: Callable[[], datetime]) -> None:
    one = sweep(Target(report("a")), tmp_path, TARGET, clock)
    two = sweep(Target(report("a", status="x")), tmp_path, "http://other", clock)
    assert (two.new, two.changed) == (1, 0)
    assert one.path != two.path

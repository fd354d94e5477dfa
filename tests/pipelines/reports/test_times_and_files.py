"""Times, rejects, labels and files beside payments, tasks and batches; the calendar that shows empty months as zero."""

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from pipelines.ledger.former_versions import intend_change
from pipelines.ledger.rows import Intent, Outcome
from tests.support.publishing import START, TARGET, World, carry_over, import_payments, publish_only, write_accepted

TASKS = ("default", "Task")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    publish_only(monkeypatch, "task", "payment", "calendar_day", "calendar_month")
    made = World(tmp_path)
    yield made
    made.ledger.close()


@pytest.fixture(scope="module")
def paid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Reports and payments, published once for tests that only read the tables."""
    made = World(tmp_path_factory.mktemp("paid"))
    import_payments(made)
    with pytest.MonkeyPatch.context() as patch:
        publish_only(patch, "payment", "import_row", "import_run", "reject", "rule")
        made.publish()
    yield made
    made.ledger.close()


def test_a_payment_shows_its_file_its_times_and_the_reject_that_it_is_or_was(paid: World) -> None:
    stages = dict(paid.rows("SELECT source_key, reject_id FROM reject"))
    assert stages.keys() == {"k4", "k7", "k8"}
    shown = """SELECT source_key, file_name, feed, reject_id, first_sent_at IS NOT NULL, finished_at > received_at
        FROM payment WHERE source_key IN ('k2', 'k4', 'k5', 'k7', 'k8') ORDER BY source_key"""
    assert paid.rows(shown) == [
        ("k2", "payments.csv", "payments", None, True, True),
        ("k4", "payments.csv", "payments", stages["k4"], True, True),
        ("k5", "payments.csv", "payments", None, True, True),
        ("k7", "payments.csv", "payments", stages["k7"], True, True),
        ("k8", "payments.csv", "payments", stages["k8"], True, True),
    ]


@pytest.mark.parametrize("table", ["import_row", "import_run", "reject", "payment"])
def test_every_row_with_a_batch_names_its_file_and_feed(paid: World, table: str) -> None:
    assert paid.rows(f"SELECT DISTINCT feed, file_name FROM {table}") == [("payments", "payments.csv")]


def task(status: str, **more: Any) -> dict[str, Any]:
    return {"status": status, "requester": {"reference": "Practitioner/d9"}, **more}


def change(world: World, key: str, number: int, status: str) -> None:
    """A later file that changes a task in place."""
    batch = f"tasks-{key[1:]}{number:011d}"
    world.begin(batch, of=TASKS)
    with world.ledger.lease(TARGET) as lease:
        intend_change(
            world.ledger, lease, *TASKS, [(1, Intent(key, 1, batch, 2, f"h{key}{number}", "f1", "p1"))], "kept"
        )
        world.ledger.settle(TARGET, *TASKS, [Outcome(key, 1, "updated", f"id-{key}", 200)])
    world.run(batch, {"lines": 1, "records": 1, "accepted": 1, "updated": 1}, of=TASKS)
    folder = world.home / "batches" / batch / "run-1"
    folder.mkdir(parents=True)
    body = orjson.dumps({"resourceType": "Task", **task(status)}).decode()
    write_accepted(folder, {2: (key, f"h{key}{number}", body)})


STATUSES: list[tuple[list[str], int | None]] = [
    (["completed"], None),
    (["requested", "completed"], 1),
    (["requested", "completed", "completed"], 1),
    (["completed", "requested", "completed"], 2),
    (["requested", "completed", "requested"], None),
]
"""What a task is in one file after another, and which of them completed it."""


def test_a_task_shows_when_the_import_completed_and_last_changed_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_only(monkeypatch, "task")
    carry_over(world, "Task", {f"k{n}": (None, task(statuses[0])) for n, (statuses, _) in enumerate(STATUSES)})
    times = [world.time]
    for number in (1, 2):
        world.time += timedelta(days=1)
        for n, (statuses, _) in enumerate(STATUSES):
            if number < len(statuses):
                change(world, f"k{n}", number, statuses[number])
        times.append(world.time)
    world.publish()
    found = world.rows("SELECT completed_at, last_changed_at FROM task ORDER BY source_key")
    for (completed, last), (statuses, completed_by) in zip(found, STATUSES, strict=True):
        assert timedelta() <= times[len(statuses) - 1] - last < timedelta(hours=1), statuses
        assert (completed is None) == (completed_by is None), statuses
        if completed_by is not None:
            assert timedelta() <= times[completed_by] - completed < timedelta(hours=1), statuses


def test_a_task_shows_its_labels_and_whose_time_it_has(world: World) -> None:
    label = {"type": {"text": "label"}}
    labels = [{**label, "valueString": "urgent"}, {**label, "valueString": "billing"}, {"valueString": "no label"}]
    records = {"k1": (START, task("requested", input=labels)), "k2": (None, task("requested"))}
    carry_over(world, "Task", records)
    world.publish()
    assert world.rows("SELECT source_key, labels, authored_is_own FROM task") == [
        ("k1", ["billing", "urgent"], True),
        ("k2", [], False),
    ]


def test_the_calendar_has_every_day_from_the_first_date_in_the_tables_to_the_publication(world: World) -> None:
    import_payments(world)
    world.time += timedelta(days=70)
    world.publish()
    assert world.rows("SELECT min(day), max(day), count(*) FROM calendar_day") == [
        (date(2026, 1, 1), date(2026, 5, 10), 130)
    ]
    by_month = """SELECT calendar_month.month, days, count(payment.amount) FROM calendar_month
        LEFT JOIN payment ON date_trunc('month', paid_on) = calendar_month.month GROUP BY ALL ORDER BY 1"""
    assert world.rows(by_month) == [
        (date(2026, 1, 1), 31, 0),
        (date(2026, 2, 1), 28, 7),
        (date(2026, 3, 1), 31, 0),
        (date(2026, 4, 1), 30, 0),
        (date(2026, 5, 1), 10, 0),
    ]


def test_absurd_dates_do_not_stretch_the_calendar(world: World) -> None:
    day = START.replace(year=1)
    carry_over(world, "Task", {"k1": (day, task("requested")), "k2": (START.replace(year=9999), task("requested"))})
    world.publish()
    assert world.rows("SELECT min(year), max(year) FROM calendar_day") == [(2026, 2026)]


def test_the_table_of_rules_has_basis_sentence_and_advice(paid: World) -> None:
    assert paid.rows("SELECT rule_id, basis FROM rule WHERE rule_id IN ('PAY-25', 'FEED-PAY-01', 'QR-CREATE-03')") == [
        ("FEED-PAY-01", "importer"),
        ("PAY-25", "decision"),
        ("QR-CREATE-03", "interface"),
    ]
    assert paid.rows("SELECT count(*) FROM rule WHERE sentence IS NULL OR advice IS NULL") == [(0,)]

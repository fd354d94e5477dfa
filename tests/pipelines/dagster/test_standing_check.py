"""The check of what is broken now, which reads the ledger."""

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from pipelines.dagster import alerts
from pipelines.dagster.names import ONE_HOME
from pipelines.dagster.standing.sensor import note_verdicts
from pipelines.dagster.standing.verdicts import INBOX_CHECK, WAITING_CHECK
from pipelines.feeds.files.catalog import load_feeds
from pipelines.importing.current_problems import broken_now, loaded_last
from pipelines.ledger.rejects import discard
from pipelines.ledger.rows import Outcome, Reject, reject_id
from tests.support.broken_home import NOW, Home
from tests.support.ledgers import close_rejects
from tests.support.practice import repository_of, standing, verdicts


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_problems_are_named_feed_by_feed(home: Home) -> None:
    with closing(home.ledger()) as ledger:
        found = broken_now(ledger, home.path, NOW)
    assert found["payments"].failed == {"payments-bad": "bad.csv: it is not UTF-8"}
    assert found["payments"].unfinished == []
    assert found["payments"].rejects == {"1 to 7 days": 1}
    assert found["payments"].open_rejects() == "1 reject is open: 1 to 7 days (1)"
    assert found["tasks"].open_rejects() is None
    assert found["tasks"].doubts == {"tasks-doubt": 3}
    assert found["tasks"].unfinished == ["tasks-left"]
    assert found["tasks"].sentences() == [
        "tasks-doubt: 3 rows are in doubt",
        "tasks-left: it was not finished",
    ]


def test_the_check_covers_the_target_that_was_loaded_last(home: Home) -> None:
    with closing(home.ledger()) as ledger:
        ledger.start_batch("s", "tasks-good", feed="tasks")
        for target in ("s", "t"):
            home.now += timedelta(hours=1)
            ledger.start_run(target, "tasks-good" if target == "s" else "payments-bad")
            assert loaded_last(ledger) == target
        ledger.start_batch("s", "payments-good", feed="payments")
        ledger.reject("s", "default", "Task", "payments-good", [Reject(2, 1, "A1", "rule", None, None, None, [])])
        found = broken_now(ledger, home.path, NOW)["payments"]
        assert found.failed == {"payments-bad": "failed"}  # its new run has recorded nothing yet
        assert found.rejects == {"1 to 7 days": 1}
        discard(ledger, [reject_id("t", "payments-good", 2, "A1")], "user", "it is wrong")
        assert not broken_now(ledger, home.path, NOW)["payments"].rejects


def test_rejects_grow_old_and_a_batch_is_left_once_nobody_has_worked_on_it_for_an_hour(home: Home) -> None:
    """A batch that a kill left without a run is as old as its file."""
    begun, moment = home.now, timedelta(microseconds=1)
    with closing(home.ledger()) as ledger:
        ledger.start_batch("t", "tasks-begun", feed="tasks")
        for age, first, end in (
            ("under a day", 0, 1),
            ("1 to 7 days", 1, 7),
            ("7 to 30 days", 7, 30),
            ("over 30 days", 30, 99),
        ):
            for after in (timedelta(days=first), timedelta(days=end) - moment):
                assert broken_now(ledger, home.path, begun + after)["payments"].rejects == {age: 1}
        assert broken_now(ledger, home.path, begun + timedelta(hours=1))["tasks"].unfinished == []
        left = broken_now(ledger, home.path, begun + timedelta(hours=1) + moment)["tasks"].unfinished
        assert left == ["tasks-begun", "tasks-left"]


def test_rows_of_a_killed_loader_are_in_doubt_at_once_and_those_of_one_at_work_are_not(home: Home) -> None:
    with closing(home.ledger()) as ledger:
        home.send(ledger, "tasks-left", 3)
        ledger.settle("t", "default", "Task", [Outcome("tasks-left4", 1, "planned")])
        assert broken_now(ledger, home.path, NOW)["tasks"].doubts == {"tasks-doubt": 3, "tasks-left": 2}
        assert broken_now(ledger, home.path, NOW)["tasks"].unfinished == ["tasks-left"]
        with ledger.lease("t"):  # the takeover makes its rows in doubt
            home.add(ledger, "tasks-next", "running")
        assert broken_now(ledger, home.path, NOW)["tasks"].doubts == {"tasks-doubt": 3, "tasks-left": 2}


def test_a_failed_batch_is_done_with_when_its_rows_were_purged_and_not_when_another_of_its_name_went_well(
    home: Home,
) -> None:
    home.now = NOW
    with closing(home.ledger()) as ledger:
        home.add(ledger, "payments-worse", "stopped", message="too many rejects")
        home.add(ledger, "payments-next", "finished", file="payments-bad.csv", records=1, created=1)
        assert list(broken_now(ledger, home.path, NOW)["payments"].failed) == ["payments-bad", "payments-worse"]
        for name in ("bad", "worse"):
            (home.path / "batches" / f"payments-{name}" / "source").rmdir()
        assert not broken_now(ledger, home.path, NOW)["payments"].failed


@pytest.mark.by_hand
def test_a_file_of_which_no_record_was_taken_is_broken_until_it_is_mended(home: Home) -> None:
    home.now = NOW
    with closing(home.ledger()) as ledger:
        for name in ("answers-none", "answers-doubt", "answers-some", "answers-empty", "answers-purged"):
            counts = {"records": 2, "rejected": 2} if name != "answers-empty" else {}
            counts |= {"in_doubt": 1} if name == "answers-doubt" else {}
            counts |= {"skipped": 1} if name == "answers-some" else {}
            home.add(ledger, name, "finished", "", None, **counts)
            ledger.reject("t", "default", "PaymentNotice", name, [Reject(2, 1, name, "rule", None, None, None, [])])
        (home.path / "batches" / "answers-purged" / "source").rmdir()
        home.add(ledger, "answers-discarded", "finished", "", None, records=2, rejected=2)
        found = broken_now(ledger, home.path, NOW)["answers"]
        assert found.nothing_taken == {"answers-none": 2}
        assert "answers-none: all of its 2 records were set aside" in found.sentences()
        [event] = [each for each in alerts.of_batches(home.path, {}) if each.kind == "nothing_taken"]
        assert (event.about["batches"], "answers-none" in event.text) == (["answers-none"], True)
        home.add(ledger, "answers-later", "finished", "", None, records=2, refused=2)
        set_aside = [Reject(line, 1, f"later{line}", "load", None, None, None, []) for line in (2, 3)]
        ledger.reject("t", "default", "PaymentNotice", "answers-later", set_aside)
        assert "answers-later" in broken_now(ledger, home.path, NOW)["answers"].nothing_taken
        close_rejects(ledger, "t", ["later2"], "answers-later")
        assert "answers-later" not in broken_now(ledger, home.path, NOW)["answers"].nothing_taken
        home.now += timedelta(minutes=1)
        home.add(ledger, "answers-next", "finished", file="answers-none.csv", records=2, created=2)
        assert "answers-none" in broken_now(ledger, home.path, NOW)["answers"].nothing_taken
        close_rejects(ledger, "t", ["answers-none"], "answers-next")
        assert broken_now(ledger, home.path, NOW)["answers"].nothing_taken == {}


def test_the_check_is_made_by_hand_and_noted_when_it_has_changed_and_beside_a_publication(home: Home) -> None:
    repository = repository_of({"CHARTFERRY_HOME": str(home.path)})
    assert verdicts(standing(repository)) == {
        "nothing_of_answers_is_broken": (True, "ERROR"),
        "nothing_of_payments_is_broken": (False, "ERROR"),
        "nothing_of_tasks_is_broken": (False, "ERROR"),
        "no_reject_of_answers_is_open": (True, "WARN"),
        "no_reject_of_payments_is_open": (False, "WARN"),
        "no_reject_of_tasks_is_open": (True, "WARN"),
        INBOX_CHECK: (True, "ERROR"),
        WAITING_CHECK: (True, "ERROR"),
    }
    with dg.DagsterInstance.ephemeral() as instance:
        sensor, noted, cursor = repository.get_sensor_def("standing_check_after_imports"), [], None
        for published in (False, False, True, False):
            if published:
                instance.report_runless_asset_event(dg.AssetMaterialization(ONE_HOME.published))
            looked = sensor(dg.build_sensor_context(instance, cursor=cursor, repository_def=repository))
            assert isinstance(looked, dg.SensorResult)
            noted.append([event.check_name for event in looked.asset_events])  # type: ignore[union-attr]
            cursor = looked.cursor
    assert [len(each) for each in noted] == [8, 0, 8, 0]


def test_no_check_stays_green_over_a_ledger_that_cannot_be_read(home: Home) -> None:
    repository = repository_of({"CHARTFERRY_HOME": str(home.path)})
    ledger, noted, cursor = home.path / "ledger.db", [], None
    whole = ledger.read_bytes()
    with dg.DagsterInstance.ephemeral() as instance:
        sensor = repository.get_sensor_def("standing_check_after_imports")
        for content in (whole, b"no database, surely", b"no database, surely", whole):
            ledger.write_bytes(content)
            looked = sensor(dg.build_sensor_context(instance, cursor=cursor, repository_def=repository))
            assert isinstance(looked, dg.SensorResult)
            found = [event for event in looked.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
            noted.append({event.check_name: (event.passed, event.description) for event in found})
            cursor = looked.cursor
        ledger.write_bytes(b"no database, surely")
        note_verdicts(instance, home.path, {"CHARTFERRY_HOME": str(home.path)}, load_feeds().feeds)
    assert [len(each) for each in noted] == [8, 8, 0, 8]
    assert (noted[1].keys(), noted[3]) == (noted[0].keys(), noted[0])
    [(passed, said)] = set(noted[1].values())
    assert not passed
    assert str(said).startswith("What is broken could not be read: ")
    assert "file is not a database" in str(said)


def test_the_check_of_one_feed_can_run_alone(home: Home) -> None:
    repository = repository_of({"CHARTFERRY_HOME": str(home.path)})
    name = "nothing_of_tasks_is_broken"
    assert verdicts(standing(repository, name)) == {name: (False, "ERROR")}

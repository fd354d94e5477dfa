"""The check of what is broken now: it reads the ledger, and an alert is sent once for each problem."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.freshness import FreshnessState
from sqlalchemy.exc import DataError, OperationalError

from pipelines.dagster import alerts
from pipelines.dagster.alerts import COMMAND, WEBHOOK, AlertEvent, AlertMemory, give, of_runs, tell_new
from pipelines.dagster.names import ONE_HOME
from pipelines.dagster.stages.outcome import StageOutcome, failure
from pipelines.dagster.standing.sensor import note_verdicts
from pipelines.dagster.standing.verdicts import INBOX_CHECK, WAITING_CHECK
from pipelines.dagster.waiting import PATIENCE, waiting_now
from pipelines.feeds.files.catalog import builtin_feeds, load_feeds
from pipelines.home.dagster_folder import BATCH_TAG, TOLD_TAG
from pipelines.home.stores import StoreUnusable
from pipelines.importing.current_problems import broken_now, loaded_last
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rejects import discard
from pipelines.ledger.rows import Intent, Outcome, Reject, reject_id
from tests.support.ledgers import close_rejects
from tests.support.listening import listener
from tests.support.practice import repository_of, standing, verdicts

NOW = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


class Home:
    """A home whose ledger has a good batch, a failed one, one in doubt and an unfinished one."""

    def __init__(self, path: Path) -> None:
        self.path, self.now = path, NOW - timedelta(days=2)
        path.mkdir()
        with closing(self.ledger()) as ledger:
            self.add(ledger, "payments-good", "finished")
            self.add(ledger, "payments-bad", "failed", message="bad.csv: it is not UTF-8")
            self.add(ledger, "tasks-doubt", "running", in_doubt=3)
            self.send(ledger, "tasks-doubt", 3)
            ledger.doubt_sending("t")
            self.add(ledger, "tasks-left", "running")
            reject = Reject(2, 1, "A1", "rule", None, None, None, [])
            ledger.reject("t", "default", "PaymentNotice", "payments-good", [reject])

    def ledger(self) -> Ledger:
        return Ledger.open(self.path / "ledger.db", lambda: self.now)

    def send(self, ledger: Ledger, name: str, rows: int) -> None:
        with ledger.lease("t") as lease:
            intents = [Intent(f"{name}{line}", 1, name, line, "h", "f", "p1") for line in range(2, 2 + rows)]
            ledger.intend(lease, "default", "Task", intents)

    def add(
        self, ledger: Ledger, name: str, state: str, file: str = "", message: str | None = None, **counts: int
    ) -> None:
        (self.path / "batches" / name / "source").mkdir(parents=True)
        ledger.start_batch("t", name, feed=name.partition("-")[0], file_name=file or f"{name}.csv")
        number = ledger.start_run("t", name)
        ledger.finish_run("t", name, number, state=state, counts=counts, message=message)
        ledger.finish_batch("t", name, state, counts)


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


def test_a_file_that_stays_in_the_inbox_fails_its_check_and_gives_one_alert(
    home: Home, noting: tuple[dict[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home.path / "inbox").mkdir()
    (home.path / "inbox" / "payments-stuck.csv").write_text("")
    for name in ("alerts", "standing.verdicts"):
        monkeypatch.setattr(f"pipelines.dagster.{name}.LAIN_TOO_LONG", timedelta(0))
    environ, told = noting
    repository = repository_of({"CHARTFERRY_HOME": str(home.path)})
    with dg.DagsterInstance.ephemeral() as instance:
        result = standing(repository)
        assert verdicts(result)[INBOX_CHECK] == (False, "ERROR")
        [said] = [each.description for each in result.get_asset_check_evaluations() if each.check_name == INBOX_CHECK]
        assert said
        assert said.startswith("payments-stuck.csv has lain in the inbox since ")
        look(home, instance, environ, look(home, instance, environ, None))
    [event] = [each for each in map(json.loads, told.read_text().splitlines()) if each["event"] == "file_not_received"]
    assert event["file"] == "payments-stuck.csv"


def test_imports_that_wait_for_reference_data_are_one_alert_and_a_check(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("alerts", "standing.verdicts"):
        monkeypatch.setattr(f"pipelines.dagster.{name}.LAIN_TOO_LONG", timedelta(0))
    for folder, name in (("inbox", "payments-1.csv"), ("inbox", "payments-2.csv"), ("reference", "patient.ndjson")):
        (home.path / folder).mkdir(exist_ok=True)
        (home.path / folder / name).write_text("")
    now, says = (
        datetime.now(UTC),
        "Imports wait, because reference data is not loaded (patient.ndjson): payments-1.csv, ",
    )
    assert waiting_now(home.path, {}, builtin_feeds(), now) is None
    held = waiting_now(home.path, {}, builtin_feeds(), now + PATIENCE + timedelta(seconds=1))
    assert held
    [event] = [*alerts.of_waiting(held), *alerts.of_inbox(home.path, now, held)]
    assert (event.kind, event.text, event.about["files"]) == (
        "imports_wait",
        f"{says}payments-2.csv.",
        ["payments-1.csv", "payments-2.csv"],
    )
    assert len(list(alerts.of_inbox(home.path, now))) == 2


def test_imports_that_wait_for_the_target_say_so_once_something_waits(tmp_path: Path) -> None:
    home = tmp_path / "other"
    (home / "inbox").mkdir(parents=True)
    later = datetime.now(UTC) + PATIENCE + timedelta(seconds=1)
    away = {"FHIR_BASE_URL": "http://127.0.0.1:9"}
    (home / "inbox" / "notes.txt").write_text("")
    assert waiting_now(home, away, builtin_feeds(), later) is None
    (home / "inbox" / "payments-1.csv").write_text("")
    held = waiting_now(home, away, builtin_feeds(), later)
    assert held
    assert held.sentence == "Imports wait, because the target does not answer: payments-1.csv."
    assert waiting_now(home, away, builtin_feeds(), datetime.now(UTC)) is None


def test_the_check_of_one_feed_can_run_alone(home: Home) -> None:
    repository = repository_of({"CHARTFERRY_HOME": str(home.path)})
    name = "nothing_of_tasks_is_broken"
    assert verdicts(standing(repository, name)) == {name: (False, "ERROR")}


# -- alerts


def look(home: Home, instance: dg.DagsterInstance, environ: dict[str, str], cursor: str | None) -> str | None:
    repository = repository_of({"CHARTFERRY_HOME": str(home.path), **environ})
    context = dg.build_sensor_context(instance, cursor=cursor, repository_def=repository)
    result = repository.get_sensor_def("alerts")(context)
    assert isinstance(result, dg.SensorResult)
    return result.cursor


@pytest.fixture
def noting(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """An environment whose alert command appends the alerts to a file."""
    script, told = tmp_path / "note.sh", tmp_path / "told.ndjson"
    script.write_text(f"cat >> '{told}'; echo >> '{told}'\n")
    return {COMMAND: f"/bin/sh {script}"}, told


def test_the_alert_command_gets_each_event_once(home: Home, noting: tuple[dict[str, str], Path]) -> None:
    environ, told = noting
    with dg.DagsterInstance.ephemeral() as instance:
        cursor = look(home, instance, environ, None)
        cursor = look(home, instance, environ, cursor)
        said = [json.loads(line) for line in told.read_text().splitlines()]
        assert sorted((each["event"], each["batches"]) for each in said) == [
            ("batch_failed", ["payments-bad"]),
            ("batch_unfinished", ["tasks-left"]),
            ("rows_in_doubt", ["tasks-doubt"]),
        ]
        assert {each["home"] for each in said} == {str(home.path)}
        fails(instance, "refresh_reports")
        fails(instance, "import_payments", {TOLD_TAG: "t"})
        cursor = look(home, instance, environ, cursor)
        look(home, instance, environ, cursor)
    [late] = [json.loads(line) for line in told.read_text().splitlines()][3:]
    assert (late["event"], late["job"]) == ("publishing_failed", "refresh_reports")


def test_the_alert_of_a_failed_run_says_what_this_program_said_of_it() -> None:
    """An error that the program did not foresee is in Dagster alone: its text could have anything."""

    @dg.op
    def stage(context: dg.OpExecutionContext) -> None:
        if "unforeseen" in context.run_tags:
            raise ValueError("a patient's name")
        raise failure(StageOutcome(failed={"tasks-1": "the target does not answer"}))

    begun, job = datetime.now(UTC), dg.GraphDefinition("import_tasks", node_defs=[stage]).to_job()
    with dg.DagsterInstance.ephemeral() as instance:
        for tags in ({}, {"unforeseen": "yes"}):
            job.execute_in_process(instance=instance, raise_on_error=False, tags=tags)
        found = list(of_runs(instance, begun.timestamp() - 60, begun + timedelta(hours=1), ONE_HOME))
    assert sorted((each.text.partition("import_tasks")[2], each.about["batches"]) for each in found) == [
        (" failed.", []),
        (" failed: tasks-1: the target does not answer", ["tasks-1"]),
    ]


def test_one_alert_with_the_file_reports_that_a_problem_is_resolved(
    home: Home, noting: tuple[dict[str, str], Path]
) -> None:
    environ, told = noting
    with dg.DagsterInstance.ephemeral() as instance:
        cursor = look(home, instance, environ, None)
        before = len(told.read_text().splitlines())
        (home.path / "batches" / "payments-bad" / "source").rmdir()
        for _ in range(3):
            cursor = look(home, instance, environ, cursor)
    [well] = [json.loads(line) for line in told.read_text().splitlines()[before:]]
    assert well["event"] == "well_again"
    assert well["text"] == "Resolved: payments-bad.csv (payments-bad) was not imported: bad.csv: it is not UTF-8"
    assert set(json.loads(cursor or "")["last"]) == {"doubt tasks-doubt", "unfinished tasks-left"}


def test_a_run_that_failed_for_a_file_is_no_news_when_the_file_is_mended(
    home: Home, noting: tuple[dict[str, str], Path]
) -> None:
    environ, told = noting
    with dg.DagsterInstance.ephemeral() as instance:
        cursor = look(home, instance, environ, None)
        fails(instance, "import_payments", {BATCH_TAG: "payments-bad"})
        cursor = look(home, instance, environ, cursor)
        assert len(told.read_text().splitlines()) == 3
        (home.path / "batches" / "payments-bad" / "source").rmdir()
        for _ in range(3):
            cursor = look(home, instance, environ, cursor)
    assert [json.loads(line)["event"] for line in told.read_text().splitlines()[3:]] == ["well_again"]


def test_the_alert_about_a_resolved_problem_is_repeated_until_each_channel_got_it(
    home: Home, noting: tuple[dict[str, str], Path]
) -> None:
    environ, told = noting
    both = {**environ, WEBHOOK: "http://127.0.0.1:1/"}
    with dg.DagsterInstance.ephemeral() as instance:
        cursor = look(home, instance, environ, None)
        before = len(told.read_text().splitlines())
        (home.path / "batches" / "payments-bad" / "source").rmdir()
        cursor = look(home, instance, both, cursor)
        assert "failed payments-bad" in json.loads(cursor or "")["last"]
        for _ in range(alerts.TRIES):
            cursor = look(home, instance, both, cursor)
    assert "failed payments-bad" not in json.loads(cursor or "")["last"]
    assert len(told.read_text().splitlines()) == before + 1


def test_a_failed_run_gives_no_alert_of_its_own_if_its_batches_have_one() -> None:
    failed = AlertEvent("failed b", "batch_failed", "b", {"batches": ["b"]})
    run, other = (AlertEvent(f"run {n}", "run_failed", n, {"batches": n.split()}) for n in ("b", "b c"))
    none = AlertEvent("run none", "run_failed", "n", {"batches": []})
    assert alerts.echoes([run, failed, other, none]) == {run.key}


def test_a_failing_alert_channel_is_retried_and_the_other_one_gets_no_alert_twice(
    home: Home, noting: tuple[dict[str, str], Path]
) -> None:
    environ, told = noting
    with dg.DagsterInstance.ephemeral() as instance:
        cursor = None
        for _ in range(3):
            cursor = look(home, instance, {**environ, WEBHOOK: "http://127.0.0.1:1/"}, cursor)
        tried = json.loads(cursor or "")["tries"]
    assert len(told.read_text().splitlines()) == 3
    assert sorted(set(tried.values())) == [3]
    assert all(key.startswith(WEBHOOK) for key in tried)


def test_an_unreadable_ledger_gives_an_alert_and_delays_no_other(
    home: Home, noting: tuple[dict[str, str], Path]
) -> None:
    environ, told = noting
    with dg.DagsterInstance.ephemeral() as instance:
        cursor = look(home, instance, environ, None)
        before, whole = told.read_text().splitlines(), (home.path / "ledger.db").read_bytes()
        (home.path / "ledger.db").write_bytes(b"no database, surely")
        fails(instance, "refresh_reports")
        for _ in range(2):
            cursor = look(home, instance, environ, cursor)
        (home.path / "ledger.db").write_bytes(whole)
        look(home, instance, environ, cursor)
    said = [json.loads(line) for line in told.read_text().splitlines()[len(before) :]]
    assert sorted(each["event"] for each in said) == ["publishing_failed", "state_unknown", "well_again"]
    assert "file is not a database" in next(each["text"] for each in said if each["event"] == "state_unknown")


def test_a_run_with_a_good_file_beside_one_that_is_told_of_sends_no_alert(
    home: Home, noting: tuple[dict[str, str], Path]
) -> None:
    @dg.op
    def loaded() -> None:
        raise failure(StageOutcome(done={"payments-good": {}}, failed={"payments-bad": "it is not UTF-8"}))

    @dg.job
    def import_payments() -> None:
        loaded()

    environ, told = noting
    with dg.DagsterInstance.ephemeral() as instance:
        cursor = look(home, instance, environ, None)
        before = told.read_text()
        tags = {BATCH_TAG: "payments-good payments-bad"}
        assert not import_payments.execute_in_process(instance=instance, tags=tags, raise_on_error=False).success
        look(home, instance, environ, cursor)
    assert told.read_text() == before


LEDGER = "the ledger could not be read or written: "


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StoreUnusable("s3://b/: it does not answer"), "s3://b/: it does not answer"),
        (OperationalError("SELECT 'SECRET'", {}, sqlite3.OperationalError("no such table")), f"{LEDGER}no such table"),
        (DataError("SELECT 'SECRET'", {}, Exception("SECRET")), f"{LEDGER}DataError"),
        (PermissionError(13, "Permission denied", "/inbox"), "/inbox: Permission denied"),
        (OSError("SECRET"), "OSError"),
    ],
)
def test_any_error_that_prevents_the_check_gives_an_alert(error: Exception, said: str) -> None:
    def source() -> list[AlertEvent]:
        raise error

    events, unseen = alerts.gathered_events(source, list)
    assert [(event.kind, event.text) for event in events] == [
        ("state_unknown", f"What is broken could not be read: {said}.")
    ]
    assert unseen


def fails(instance: dg.DagsterInstance, name: str, tags: dict[str, str] | None = None) -> None:
    @dg.op
    def fail() -> None:
        raise dg.Failure("no luck")

    @dg.job(name=name)
    def job() -> None:
        fail()

    job.execute_in_process(instance=instance, raise_on_error=False, tags=tags or {})


def test_a_late_publication_gives_an_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    class Record:
        freshness_state = FreshnessState.FAIL

    with dg.DagsterInstance.ephemeral() as instance:
        assert not list(alerts.of_freshness(instance))
        monkeypatch.setattr(instance, "get_freshness_state_records", lambda keys: dict.fromkeys(keys, Record()))
        assert [event.kind for event in alerts.of_freshness(instance)] == ["publication_late"]


def test_a_problem_that_recurs_gives_a_new_alert_and_an_undeliverable_alert_is_given_up() -> None:
    event, told = AlertEvent("failed b", "batch_failed", "b", {}), AlertMemory(0.0, set(), {})
    assert [tell_new(told, [event], lambda _: True) for _ in range(2)] == [1, 0]
    tell_new(told, [], lambda _: True)
    assert tell_new(told, [event], lambda _: True) == 1
    tries: list[AlertEvent] = []
    told = AlertMemory(0.0, set(), {})

    def fails_to_tell(event: AlertEvent) -> bool:
        tries.append(event)
        return False

    for _ in range(alerts.TRIES + 3):
        tell_new(told, [event], fails_to_tell)
    assert len(tries) == alerts.TRIES


def test_many_alerts_are_delivered_once_each_over_several_looks() -> None:
    events = [AlertEvent(f"failed {number}", "batch_failed", str(number), {}) for number in range(50)]
    now, given, told = 0.0, list[str](), AlertMemory(0.0, set(), {})

    def gives(event: AlertEvent) -> bool:
        nonlocal now
        now += 20.0
        if event.key == "failed 0":
            return False
        given.append(event.key)
        return True

    looks = 0
    while len(given) < 49 and looks < 100:
        before, looks = now, looks + 1
        tell_new(told, events, gives, lambda: now)
        assert now - before < 60
    assert sorted(given) == sorted(event.key for event in events[1:])
    assert looks < 30


def test_an_alert_is_posted_to_the_webhook_and_an_unreachable_channel_raises_no_error() -> None:
    warnings: list[str] = []
    with listener() as heard:
        assert give({"event": "run_failed"}, {WEBHOOK: f"{heard.url}/"}, warnings.append)
    assert json.loads(*heard.of("/")) == {"event": "run_failed"}
    for broken in ({WEBHOOK: "http://127.0.0.1:1/"}, {COMMAND: "/nowhere/at-all"}, {COMMAND: "false"}):
        assert not give({"event": "run_failed"}, broken, warnings.append)
    assert len(warnings) == 3

"""Alerts: each problem, and its end, is told once on each channel."""

import json
import sqlite3
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
from pipelines.dagster.standing.verdicts import INBOX_CHECK
from pipelines.dagster.waiting import PATIENCE, waiting_now
from pipelines.feeds.files.catalog import builtin_feeds
from pipelines.home.dagster_folder import BATCH_TAG, TOLD_TAG
from pipelines.home.stores import StoreUnusable
from tests.support.broken_home import Home
from tests.support.listening import listener
from tests.support.practice import repository_of, standing, verdicts


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


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

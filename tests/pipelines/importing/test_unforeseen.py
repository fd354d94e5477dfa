"""A fault of the program while one file is validated is that file's alone: the others go on, and it comes again."""

import json
import os
from contextlib import closing, contextmanager
from datetime import UTC, datetime

import duckdb
import pytest

from pipelines.dagster.command_line_runs import tell
from pipelines.dagster.recent_events import ended_runs
from pipelines.dagster.stages.loading import load_all
from pipelines.dagster.stages.outcome import StageOutcome
from pipelines.dagster.stages.validating import validate_all
from pipelines.feeds.files.catalog import load_feeds
from pipelines.importing.current_problems import FeedProblems, broken_now
from pipelines.ledger.ledger import Ledger
from pipelines.receiving.stage import receive
from pipelines.reports.attention import batches_now, problems_of
from pipelines.session.opening import open_session
from pipelines.validation.stage import validate

PAYMENTS = "payment_id,patient_id,amount,paid_on\n"
SECRET = "Jane Doe"
OF_THE_PAGE = ("import_batch", "import_run", "import_row", "publication", "reject")


def put(home, name, *keys):
    rows = [f"{key},p1,1.00,2026-03-01\n" for key in keys]
    (home / "inbox" / name).write_text(PAYMENTS + "".join(rows))


def interrupted_query(*_, **__):
    """Raise what DuckDB raises if Ctrl-C comes during a query: it hides the interrupt."""
    raise RuntimeError("Query interrupted")


@contextmanager
def fault(monkeypatch, name, error=KeyError):
    """The program fails while it validates the file of this name."""

    def fails(received, *given, **options):
        if received.file_name == name:
            raise error(SECRET)
        return validate(received, *given, **options)

    with monkeypatch.context() as patched:
        patched.setattr("pipelines.runs.received.validate", fails)
        yield


@pytest.fixture
def states(chartferry):
    return lambda: {row["file_name"]: row["state"] for row in json.loads(chartferry("status", "--json")[1])["batches"]}


@pytest.mark.parametrize("place", ["runs.received.validate", "importing.imports.import_all"])
def test_an_interrupt_during_a_query_ends_the_import(place, home, target, chartferry, monkeypatch):
    """It is no fault of the file, and no other file goes on."""
    for name in ("payments-1.csv", "payments-2.csv"):
        put(home, name, name)
    monkeypatch.setattr(f"pipelines.{place}", interrupted_query)
    code, _, err = chartferry("import")
    assert (code, err.splitlines()[-1]) == (130, "chartferry: stopped; start the same command again to finish")
    assert target.writes == 0


def test_the_other_files_of_an_import_go_on_and_the_file_can_come_again(home, target, chartferry, monkeypatch, states):
    put(home, "payments-1.csv", "k1")
    put(home, "payments-2.csv", "k2")
    with fault(monkeypatch, "payments-1.csv"):
        code, out, err = chartferry("import")
    assert code == 4
    assert "payments-1.csv: a fault of this program: KeyError at " in out
    assert SECRET not in out + err + "".join(path.read_text() for path in home.glob("batches/*/run-*/manifest.json"))
    assert states() == {"payments-1.csv": "failed", "payments-2.csv": "finished"}
    assert len(target.of("PaymentNotice")) == 1
    [source] = home.glob("batches/*/source/payments-1.csv")
    assert chartferry("import", source)[0] == 0
    assert states() == {"payments-1.csv": "finished", "payments-2.csv": "finished"}
    assert len(target.of("PaymentNotice")) == 2


def said_of(home):
    """Return what the standing check finds for payments, and the problems on the page."""
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        found = broken_now(ledger, home, datetime.now(UTC)).get("payments", FeedProblems())
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as tables:
        return found, problems_of(batches_now(tables))


@pytest.mark.publishes(*OF_THE_PAGE)
def test_a_file_on_which_the_program_failed_stays_broken_although_later_files_are_loaded(
    home, asked, chartferry, monkeypatch
):
    """The nightly export has the same name each day: that the next one goes well loads nothing of the one before."""

    def now():
        found, problems = said_of(home)
        return len(found.failed), [problem.remedy for problem in problems]

    put(home, "payments.csv", "k1")
    with fault(monkeypatch, "payments.csv"):
        assert asked("import")["exit_code"] == 4
    [source] = home.glob("batches/*/source/payments.csv")
    put(home, "payments.csv", "k2")
    assert asked("import")["exit_code"] == 0
    failed, [remedy] = now()
    assert failed == 1
    assert str(source.parent.relative_to(home)) in remedy
    assert chartferry("import", source)[0] == 0
    assert now() == (0, [])


@pytest.mark.publishes(*OF_THE_PAGE)
def test_a_file_that_fails_after_all_its_records_were_loaded_is_not_reported_as_missing(
    home, target, asked, chartferry, monkeypatch
):
    """The run that loaded it was killed before it said so; the one that goes on cannot read the file. Each of its
    records is answered, so nobody has anything to do.
    """
    put(home, "payments.csv", "k1", "k2")

    def stopped(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "finish_run", stopped)
        assert chartferry("import")[0] == 130
    assert len(target.of("PaymentNotice")) == 2
    with fault(monkeypatch, "payments.csv"):
        [said] = [each["message"] for each in asked("import")["batches"]]
    assert said.endswith("nothing was sent by this run; earlier runs loaded 2 of its records")
    found, problems = said_of(home)
    assert (found.failed, problems) == ({}, [])
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as tables:
        assert [batch.now for batch in batches_now(tables)] == ["loaded, failed later"]


@pytest.mark.long
@pytest.mark.publishes(*OF_THE_PAGE)
def test_a_later_file_of_its_name_is_not_taken_for_all_that_was_set_aside(home, chartferry, monkeypatch):
    """The page says of it what the standing check says, also where another try of it failed."""
    (home / "inbox" / "payments.csv").write_text(PAYMENTS + "k1,p1,x,2026-03-01\n")
    assert chartferry("import")[0] == 3
    [source] = home.glob("batches/*/source/payments.csv")
    with fault(monkeypatch, "payments.csv"):
        assert chartferry("import", source)[0] == 4
    put(home, "payments.csv", "k2")
    assert chartferry("import")[0] == 0
    found, problems = said_of(home)
    assert list(found.nothing_taken.values()) == [1]
    assert [problem.matter for problem in problems] == ["Its one record was not taken.", "1 record is set aside."]


def test_a_file_too_large_for_the_memory_fails_with_advice_and_the_others_go_on(home, chartferry, monkeypatch, states):
    put(home, "payments-1.csv", "k1")
    put(home, "payments-2.csv", "k2")
    with fault(monkeypatch, "payments-1.csv", MemoryError):
        code, out, _ = chartferry("import")
    assert (code, "divide a large file into smaller ones" in out) == (4, True)
    assert states() == {"payments-1.csv": "failed", "payments-2.csv": "finished"}


@pytest.mark.alike
@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt, 130), (lambda text: OSError(28, "No space left on device"), 6)]
)
def test_a_fault_that_all_files_have_in_common_stops_the_import(
    home, target, chartferry, monkeypatch, states, error, code
):
    put(home, "payments-1.csv", "k1")
    put(home, "payments-2.csv", "k2")
    with fault(monkeypatch, "payments-1.csv", error):
        assert chartferry("import")[0] == code
    assert states() == {"payments-1.csv": "running"}
    assert not target.of("PaymentNotice")
    assert chartferry("import")[0] == 0


def test_a_dry_run_goes_on_too(home, asked, monkeypatch):
    put(home, "payments-1.csv", "k1")
    put(home, "payments-2.csv", "k2")
    with fault(monkeypatch, "payments-1.csv"):
        found = asked("import", "--dry-run")
    assert [(each["file"], each["state"]) for each in found["batches"]] == [
        ("payments-1.csv", "failed"),
        ("payments-2.csv", "dry run"),
    ]


def test_a_batch_whose_load_was_interrupted_keeps_its_sent_rows(home, target, asked, chartferry, monkeypatch):
    """What was sent before stays counted, its rows are not forgotten, and the next import goes on with them."""
    put(home, "payments.csv", "k1", "k2", "k3")

    def stopped(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "settle", stopped)
        assert chartferry("import")[0] == 130
    assert len(target.of("PaymentNotice")) == 3
    with fault(monkeypatch, "payments.csv"):
        assert asked("import")["exit_code"] >= 4
    [batch] = json.loads(chartferry("status", "--json")[1])["batches"]
    assert batch["state"] == "running", "of its rows nobody knows the outcome"
    assert batch["records"] == 3
    found = asked("import")
    assert found["exit_code"] == 0
    [batch] = json.loads(chartferry("status", "--json")[1])["batches"]
    assert (batch["state"], batch["records"], batch["created"] + batch["adopted"]) == ("finished", 3, 3)
    assert len(target.of("PaymentNotice")) == 3


def test_a_run_of_dagster_goes_on_with_the_other_batches(home, target, monkeypatch):
    feed = next(feed for feed in load_feeds().feeds if feed.name == "payments")
    for number in (1, 2):
        put(home, f"payments-{number}.csv", f"k{number}")
    files = sorted((home / "inbox").iterdir())
    names = [receive(file, feed, home).batch_id for file in files]
    with open_session(home, os.environ) as session, fault(monkeypatch, "payments-1.csv"):
        outcome = validate_all(session, feed, names, datetime.now(UTC))
    assert list(outcome.done) == names[1:]
    assert list(outcome.failed) == names[:1]
    assert "a fault of this program: KeyError at " in outcome.failed[names[0]]


def test_a_run_of_dagster_tries_such_a_file_once(home, target, monkeypatch):
    """Its step `loaded` tells what `validated` found."""
    feed = next(feed for feed in load_feeds().feeds if feed.name == "payments")
    put(home, "payments-1.csv", "k1")
    [name] = [receive(file, feed, home).batch_id for file in (home / "inbox").iterdir()]
    since = datetime.now(UTC)
    with open_session(home, os.environ) as session:
        with fault(monkeypatch, "payments-1.csv"):
            validate_all(session, feed, [name], since)
        loaded = load_all(session, feed, [name], since, StageOutcome())
        assert [run["state"] for run in session.ledger.runs(session.target, name)] == ["cut off"]
    assert "a fault of this program: KeyError at " in loaded.failed[name]
    assert not target.of("PaymentNotice")


def test_dagster_shows_a_fault_that_the_command_line_met(home, chartferry, monkeypatch):
    """Of the file that went well then, it is told what the run found that read it."""
    feed = next(feed for feed in load_feeds().feeds if feed.name == "payments")
    (home / "inbox" / "payments.csv").write_text(PAYMENTS + "k1,p1,1.00,2026-03-01\nk2,p1,x,2026-03-01\n")
    with fault(monkeypatch, "payments.csv"):
        assert chartferry("import")[0] == 4
    [source] = home.glob("batches/*/source/payments.csv")
    name = source.parent.parent.name

    def told(stage):
        with closing(Ledger.open(home / "ledger.db")) as ledger:
            ended = [run for _, (_, _, run), _ in ended_runs(ledger, "", 10)]
            [target] = {row["target"] for row in ledger.batches()}
        return ended, tell(home, os.environ, feed, target, [name], stage)

    ended, outcome = told("loaded")
    assert (ended, list(outcome.failed)) == ([1], [name])
    assert chartferry("import", source)[0] == 3
    ended, outcome = told("validated")
    assert ended == [1, 2]
    assert outcome.facts[name].records == 2
    assert outcome.done[name]["rejected"] == 1

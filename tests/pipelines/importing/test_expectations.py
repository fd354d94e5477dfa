"""Late and unusual files are named, by bounds in the feed file or by the history of the feed."""

import json
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import dagster as dg
import pytest

from pipelines.dagster.alerts import COMMAND, AlertMemory, of_expectations, tell_new
from pipelines.dagster.standing.verdicts import verdicts_of
from pipelines.definitions import build_definitions
from pipelines.feeds.files.catalog import FeedError, load_feed
from pipelines.importing.current_problems import loaded_last
from pipelines.importing.expectations import Deviations, draft_expectations, exports_of, unexpected_now, usual
from pipelines.ledger.home_batches import HomeBatches
from pipelines.ledger.ledger import Ledger
from pipelines.receiving.receipt_times import stamp
from tests.pipelines.conftest import Clock
from tests.support.giving_back import HEADER, one
from tests.support.ledgers import TARGET
from tests.support.practice import standing, verdicts

FEED = """
name = "till"
kind = "payments"
files = ["till*.csv"]
timezone = "America/New_York"
{more}
[columns]
payment_id = "id"
patient_id = "p"
amount = "a"
paid_on = "d"
"""
REPEATING = """
name = "till"
kind = "tasks"
files = ["till*.csv"]
timezone = "America/New_York"
changed = "{changed}"
[expect]
by = "09:00"
[columns]
task_id = "id"
description = "d"
status = "s"
requester_id = "r"
"""
LAST = "the last came on 2026-03-03 at 08:00"
DRAFTED = "DECIDE: files came on these days; on which days is a missing file a problem?"
MONDAY = datetime(2026, 3, 2, 13, tzinfo=UTC)  # 8 o'clock in New York


def feed_of(folder, more=""):
    (folder / "till.toml").write_text(FEED.replace("{more}", more))
    return load_feed(folder / "till.toml")


def came(ledger, *files, every=timedelta(days=1), first=MONDAY):
    """Files of so many records and cents, one a day; the third figure is how many were rejected."""
    ledger.note_target(TARGET, "http://127.0.0.1:1")
    for number, (records, cents, *rejected) in enumerate(files):
        name, at = f"till-{number:012}", (first + number * every).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ledger.start_batch(TARGET, name, feed="till", source="till", file_name="t.csv", received_at=at)
        run = ledger.start_run(TARGET, name, feed_hash="f")
        counts = {"records": records, "accepted": records - sum(rejected), "rejected": sum(rejected)}
        counts["amount_received"] = cents
        ledger.finish_run(TARGET, name, run, state="finished", counts=counts)
        ledger.finish_batch(TARGET, name, "finished", counts)


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger.open(tmp_path / "ledger.db", Clock())
    yield opened
    opened.close()


def said(ledger, feed, now=MONDAY):
    return unexpected_now(ledger, feed.path.parent, [feed], now)["till"].sentences()


@pytest.mark.parametrize(
    ("now", "late"),
    [
        (datetime(2026, 3, 4, 13, 59, tzinfo=UTC), []),
        (
            datetime(2026, 3, 4, 14, 0, tzinfo=UTC),
            [f"no file came on 2026-03-04, expected by 09:00 (America/New_York); {LAST}"],
        ),
        (datetime(2026, 3, 3, 23, 0, tzinfo=UTC), []),
    ],
)
def test_a_file_is_late_from_the_local_time_by_which_one_is_expected(now, late, ledger, tmp_path):
    feed = feed_of(tmp_path, '[expect]\nby = "09:00"\ndays = ["mon", "tue", "wed"]')
    came(ledger, (3, 100), (3, 100))
    assert said(ledger, feed, now) == late


@pytest.mark.parametrize(
    ("changed", "hours_ago", "more"),
    [("update", 2, None), ("reject", 2, "; t.csv came again"), ("update", -2, "")],
    ids=["whole", "not whole", "by a clock that was ahead"],
)
def test_a_file_that_came_again_counts_where_it_may_be_a_whole_export(changed, hours_ago, more, ledger, tmp_path):
    """An export of all tasks is like the one before if nothing changed; payments of a day never are."""
    (tmp_path / "till.toml").write_text(REPEATING.replace("{changed}", changed))
    feed = load_feed(tmp_path / "till.toml")
    came(ledger, (3, 0), (3, 0))
    (source := tmp_path / "batches/till-000000000000/source").mkdir(parents=True)
    (source / "t.csv").touch()
    now = datetime(2026, 3, 4, 15, 0, tzinfo=UTC)
    stamp(source / "t.csv", now - timedelta(hours=hours_ago))
    told = f"no {'new ' if more else ''}file came on 2026-03-04, expected by 09:00 (America/New_York); {LAST}{more}"
    assert said(ledger, feed, now) == ([] if more is None else [told])


def test_a_file_that_waits_in_the_inbox_is_not_late(ledger, tmp_path):
    """The target was away, or another import takes long: other alerts say that."""
    feed, now = feed_of(tmp_path, '[expect]\nby = "00:00"'), datetime.now(UTC)
    came(ledger, (3, 100))
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "till-2.csv.control.json").touch()
    assert said(ledger, feed, now)
    (tmp_path / "inbox" / "till-2.csv").touch()
    assert said(ledger, feed, now) == []


def test_on_days_without_a_file_the_last_day_counts(ledger, tmp_path):
    """On a Sunday the file of Friday is the one that is late."""
    feed = feed_of(tmp_path, '[expect]\nby = "09:00"\ndays = ["mon", "fri"]')
    came(ledger, (3, 100))
    sunday = datetime(2026, 3, 8, 12, tzinfo=UTC)
    assert said(ledger, feed, sunday)[0].startswith("no file came on 2026-03-06, expected by 09:00")
    assert said(ledger, feed, datetime(2026, 3, 5, 12, tzinfo=UTC)) == []


@pytest.mark.parametrize(
    ("more", "file", "unusual"),
    [
        ("rows = [2, 5]", (3, 100), []),
        ("rows = [2, 5]", (6, 100), ["6 records, expected 2 to 5"]),
        ("amount = [1, 5.5]", (5, 560), ["an amount of 5.60, expected 1.00 to 5.50"]),
        ("amount = [1, 5.5]", (4, 560), ["an amount outside the expected range"]),
        ("set_aside = 0.1", (10, 0, 2), ["20.0% of the records set aside, expected at most 10.0%"]),
        ("set_aside = 0.2", (10, 0, 2), []),
    ],
)
def test_a_file_out_of_its_bounds_is_unusual(more, file, unusual, ledger, tmp_path):
    feed = feed_of(tmp_path, f"[expect]\n{more}")
    came(ledger, file)
    assert said(ledger, feed) == [f"till-000000000000: {each}" for each in unusual]


def test_a_file_unlike_those_before_is_unusual_and_few_files_say_nothing(ledger, tmp_path):
    feed = feed_of(tmp_path, "[expect]\nhistory = 5")
    came(ledger, (100, 1000), (110, 1100), (90, 900), (105, 1000), (5, 1000))
    assert said(ledger, feed) == []
    came(ledger, *[(100, 1000)] * 5, (200, 1000))
    assert said(ledger, feed) == ["till-000000000005: 200 records, where the last 5 files had 75 to 125"]


@pytest.mark.parametrize(
    ("before", "last", "told"),
    [
        ((5, 1000), (5, 9000), "90.00 received, where the last 5 files had 7.50 to 12.50"),
        ((5, 1000), (4, 9000), "an amount outside the range of the last 5 files"),
        ((1, 1000), (5, 9000), "an amount outside the range of the last 5 files"),
        ((6, 1000), (6, 9000, 2), "an amount outside the range of the last 5 files"),
    ],
)
def test_the_deviation_of_a_small_file_shows_no_amount(before, last, told, ledger, tmp_path):
    """REPORT-26: neither that of the file, nor bounds that are made of such files."""
    came(ledger, *[before] * 5, last)
    assert told in said(ledger, feed_of(tmp_path, "[expect]\nhistory = 5"))[0]


def test_the_usual_bounds_of_equal_files_leave_some_room():
    assert usual([100] * 20, Decimal(5)) == (75, 125)
    assert usual([0] * 20, Decimal(5)) == (0, 5)


def test_a_drafted_expect_table_shows_its_figures_and_is_valid_in_a_feed_file(ledger, tmp_path):
    feed = feed_of(tmp_path)
    came(ledger, (100, 100_00), (120, 123_45, 6))
    assert list(draft_expectations(ledger, tmp_path, feed)) == [
        "# till: 2 files have come to their end; 5 are needed to draft expectations"
    ]
    came(ledger, *[(100, 100_00), (120, 123_45, 6), (100, 100_00), (90, 90_00), (100, 100_00)])
    drafted = "\n".join(draft_expectations(ledger, tmp_path, feed))
    assert drafted.splitlines()[:5] == [
        "# Drafted from 5 files, 2026-03-02 to 2026-03-06, for till.toml.",
        "[expect]",
        f'days = ["mon", "tue", "wed", "thu", "fri"]  # {DRAFTED}',
        'by = "08:30"  # DECIDE: they came between 08:00 and 08:00 (America/New_York)',
        "rows = [75, 125]  # DECIDE: 90 to 120 came, mostly 100",
    ]
    assert feed_of(tmp_path, drafted).file.expect.amount == (Decimal("75.00"), Decimal("125.00"))


def test_expectations_do_not_change_the_hash_of_a_feed(tmp_path):
    """They do not decide what a row becomes."""
    assert feed_of(tmp_path).hash == feed_of(tmp_path, "[expect]\nrows = [1, 2]").hash


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ("[expect]\nrows = [5, 2]", r"expect: write the smaller bound first"),
        ("[expect]", r"expect: needs at least one of by, rows, amount, set_aside, history"),
        ('[expect]\nby = "9"', r"expect\.by: "),
        ("[expect]\nrow = [1, 2]", r"expect\.row: unknown key; did you mean rows"),
    ],
)
def test_an_impossible_expectation_is_named(more, wrong, tmp_path):
    with pytest.raises(FeedError, match=wrong):
        feed_of(tmp_path, more)


def test_a_late_and_an_unusual_file_each_fail_the_check_and_give_an_alert(tmp_path):
    """file_late, file_unusual: each has a key of its own."""
    feed = feed_of(tmp_path, '[expect]\nby = "00:00"\nrows = [5, 9]')
    with closing(Ledger.open(tmp_path / "ledger.db", Clock())) as ledger:
        came(ledger, (1, 100))
    verdict = verdicts_of(tmp_path, {"FHIR_TOKEN": "x"}, [feed])["files_of_till_are_as_expected"]
    assert (verdict["passed"], verdict["metadata"]) == (False, {"is_late": True, "files_unusual": 1})
    events = [each.as_json(tmp_path, MONDAY) for each in of_expectations(tmp_path, {}, [feed])]
    assert [event["event"] for event in events] == ["file_late", "file_unusual"]
    assert "1 record, expected 5 to 9" in json.dumps(events)
    assert list(of_expectations(tmp_path, {}, [feed_of(tmp_path)])) == []
    assert Deviations().sentences() == []


def test_the_alert_sensor_reports_late_and_unusual_files_once_and_when_they_are_resolved(tmp_path):
    """file_late, file_unusual, well_again: as Dagster evaluates them, with the feed file of the home."""
    home, told, script = tmp_path / "home", tmp_path / "told.ndjson", tmp_path / "note.py"
    (home / "feeds").mkdir(parents=True)
    feed_of(home / "feeds", '[expect]\nby = "00:00"\nrows = [5, 9]')
    script.write_text(f"import sys; open({str(told)!r}, 'a').write(sys.stdin.read() + chr(10))")
    environ = {"CHARTFERRY_HOME": str(home), COMMAND: f"{sys.executable} {script}"}
    name = "files_of_till_are_as_expected"
    with closing(Ledger.open(home / "ledger.db", Clock())) as ledger:
        came(ledger, (1, 100))
    with dg.DagsterInstance.ephemeral() as instance:
        repository = build_definitions(environ).get_repository_def()
        made = standing(repository)
        assert verdicts(made)[name] == (False, "WARN")
        [said] = [each.description for each in made.get_asset_check_evaluations() if each.check_name == name]
        assert "1 record, expected 5 to 9" in (said or "")
        cursor = None
        for files in ([], [], [(6, 600)]):
            if files:
                with closing(Ledger.open(home / "ledger.db", Clock())) as ledger:
                    feed_of(home / "feeds", "[expect]\nrows = [5, 9]")
                    came(ledger, (1, 100), *files)
            repository = build_definitions(environ).get_repository_def()
            context = dg.build_sensor_context(instance, cursor=cursor, repository_def=repository)
            looked = repository.get_sensor_def("alerts")(context)
            assert isinstance(looked, dg.SensorResult)
            cursor = looked.cursor
        assert verdicts(standing(repository))[name][0]
    events = [json.loads(line) for line in told.read_text().splitlines()]
    assert [event["event"] for event in events] == ["file_late", "file_unusual", "well_again", "well_again"]
    assert {event.get("feed") for event in events[:2]} == {"till"}


def test_a_second_day_without_a_file_does_not_resolve_the_first(tmp_path, monkeypatch):
    """Each day is told. The end is told once, when a file came."""
    feed = feed_of(tmp_path, '[expect]\nby = "09:00"')
    memory, told = AlertMemory.of(None, MONDAY), list[tuple[str, str]]()

    def give(event):
        told.append((event.kind, event.text))
        return True

    with closing(Ledger.open(tmp_path / "ledger.db", Clock())) as ledger:
        came(ledger, (3, 100))
        for day in range(1, 4):
            if day == 3:
                came(ledger, (3, 100), (3, 100), first=MONDAY + timedelta(days=2))
            late = unexpected_now(ledger, tmp_path, [feed], MONDAY + timedelta(days=day, hours=2))
            monkeypatch.setattr("pipelines.dagster.alerts.unexpected_in", lambda *_, late=late: late)
            events = list(of_expectations(tmp_path, {}, [feed]))
            events += memory.over(events)
            tell_new(memory, events, give)
            memory.keep({event.key: event for event in events})
    assert [kind for kind, _ in told] == ["file_late", "file_late", "well_again"]
    assert told[2][1].startswith("Resolved: till: no file came on 2026-03-04")


def test_a_correction_that_is_there_already_is_no_export(practice):
    """The row came right in a later export, before the person's file: both are corrected, and the feed expects more."""
    practice.take(f"{HEADER}k1,p1,1.00,2026-03-01,\nk2,p1,2O.00,2026-03-01,\n")
    correction = one(practice.export()).replace("2O", "20")
    practice.take(f"{HEADER}k2,p1,20.00,2026-03-01,\n", "payments-2.csv")
    assert practice.take(correction, "payments-3.csv")[1]["batches"][0]["counts"]["unchanged"] == 1
    with closing(Ledger.open(practice.home / "ledger.db", Clock())) as ledger:
        kept, target = HomeBatches(practice.home / "batches"), loaded_last(ledger)
        assert [row["file_name"] for row in exports_of(ledger, kept, target, "payments")] == [
            "payments.csv",
            "payments-2.csv",
        ]

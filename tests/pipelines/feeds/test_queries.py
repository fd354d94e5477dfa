"""Feeds with a query on a database: new rows become a batch, no row is missed, and unclear rows stop the feed."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import dagster as dg
import pytest

from pipelines.cli import run
from pipelines.definitions import build_definitions
from pipelines.feeds.files.catalog import FeedError, load_feed
from pipelines.feeds.reading.query import run_query
from pipelines.feeds.reading.query_marks import NOT_ISO, NewestWatermarks, NoMark, Watermark, since
from pipelines.feeds.reading.readers import QueriedReader
from pipelines.home.batch import UnreadableFile
from tests.support.giving_back import one
from tests.support.peaks import peak_of

FEED = """
kind = "payments"
format = "sql"
[query]
database = "TILL_URL"
sql = "select receipt, patient, amount, changed, note from payments where note <> ':x';"
{more}
[columns]
payment_id = "receipt"
patient_id = "patient"
amount = "amount"
paid_on = "changed"
"""
BY_CHANGE = 'watermark = "changed"'
FAILED, HINT = "till: the query on TILL_URL could not be run", "check the database and the query"
NOW = datetime.now(UTC)
DAYS = [(NOW - timedelta(days=n)).strftime("%Y-%m-%d %H:%M:%S") for n in range(20)]


class Till:
    """A database of payments, and the feed that queries it."""

    def __init__(self, home, monkeypatch):
        self.path = home.parent / "till.db"
        self.feed = home / "feeds" / "till.toml"
        self.feed.parent.mkdir(exist_ok=True)
        monkeypatch.setenv("TILL_URL", f"sqlite:///{self.path}")
        self.do("create table payments (receipt text, patient text, amount numeric, changed text, note text)")
        self.says(BY_CHANGE)

    def says(self, more):
        self.feed.write_text(FEED.replace("{more}", more))

    def do(self, statement, *rows):
        with closing(sqlite3.connect(self.path)) as database, database:
            database.executemany(statement, rows) if rows else database.execute(statement)

    def fill(self, number):
        """Replace the payments in the database by a number of payments with long notes."""
        self.do("delete from payments")
        numbers = f"with recursive n(i) as (select 1 union all select i + 1 from n where i < {number})"
        self.do(f"insert into payments {numbers} select i, 'p1', 1.5, '2026-03-01', printf('%0500d', i) from n")

    def add(self, *rows):
        self.do("insert into payments values (?, ?, ?, ?, '')", *rows)


@pytest.fixture
def till(home, monkeypatch):
    return Till(home, monkeypatch)


def imported(chartferry, *arguments):
    code, said, wrong = chartferry("import", "--json", *arguments)
    assert said, wrong
    return code, json.loads(said)


def counts(found):
    return [
        (each["state"], each["counts"].get("created"), each["counts"].get("unchanged")) for each in found["batches"]
    ]


def test_new_rows_are_queried_with_a_days_overlap_and_the_watermark_is_a_fact(till, practice, chartferry):
    """FEED-FILE-01, STATE-HOME-01: rows that were added late, within a day of the newest one, are not missed."""
    till.add(("a", "p1", 12.5, DAYS[9]), ("b", "p1", 3, DAYS[8]))
    code, found = imported(chartferry)
    assert (code, counts(found)) == (0, [("finished", 2, 0)])
    assert practice.rows("SELECT feed, kind, value FROM query_mark") == [("till", "text", DAYS[8])]
    assert '["note_mark",' in (practice.home / "journal.ndjson").read_text()
    code, found = imported(chartferry)
    assert (code, found["batches"], found["nothing_new"]) == (0, [], ["till"])
    till.add(("late", "p1", 1, DAYS[8]), ("c", "p1", 1, DAYS[2]), ("old", "p1", 1, DAYS[12]))
    code, found = imported(chartferry)
    assert (code, counts(found)) == (0, [("finished", 2, 2)])
    assert [key[-1] for key in practice.created()] == ["a", "b", "c", "e"]
    code, found = imported(chartferry, "--whole", "till")
    assert (code, counts(found)) == (0, [("finished", 1, 4)])


def test_no_row_is_missed_for_an_empty_watermark_or_one_in_another_form(till, practice, chartferry):
    """FEED-FILE-01: as a text, such a value sorts before any date."""
    till.feed.write_text(till.feed.read_text().replace('paid_on = "changed"', 'paid_on = { constant = "2026-03-01" }'))
    till.add(("a", "p1", 12.5, DAYS[9]))
    assert imported(chartferry)[0] == 0
    till.add(("b", "p1", 1, ""), ("c", "p1", 1, None), ("d", "p1", 1, DAYS[2]))
    code, found = imported(chartferry)
    assert (code, counts(found)) == (0, [("finished", 3, 1)])
    till.add(("e", "p1", 1, "03/04/2026"))
    code, found = imported(chartferry)
    assert (code, NOT_ISO in json.dumps(found)) == (4, True)


def test_queried_rows_in_another_order_are_the_same_batch(till, practice, chartferry):
    """A batch is known by the hash of its rows. A finished one is not run again."""
    till.says("")
    till.add(("a", "p1", 1, DAYS[3]), ("b", "p1", 1, DAYS[3]), ("b", "p1", 2, DAYS[3]))
    assert imported(chartferry)[0] == 3
    till.do("create table other as select * from payments order by amount desc, receipt desc")
    till.do("drop table payments")
    till.do("alter table other rename to payments")
    code, found = imported(chartferry)
    assert (code, found["batches"], found["nothing_new"]) == (0, [], ["till"])
    assert practice.rows("SELECT count(*) FROM batch") == [(1,)]
    assert "till: its database has no new rows" in chartferry("import")[1]


def test_rejects_of_a_query_are_a_csv_with_the_rows_number_and_go_back_in(till, practice, chartferry):
    """CLI-CMD-04, CLI-CMD-05"""
    till.add(("a", "p1", 1, DAYS[3]), ("b", "p1", "x, y", DAYS[2]))
    assert imported(chartferry)[0] == 3
    assert practice.rows("SELECT line, source_key FROM reject") == [(2, "b")]
    header, line = one(practice.export()).splitlines()
    assert header == "\ufeff_reject_id,_reasons,receipt,patient,amount,changed,note"
    assert line.endswith(f',b,p1,"x, y",{DAYS[2]},')
    assert practice.take(one(practice.export()).replace("x, y", "5.00"), "corrected.csv")[0] == 0
    assert practice.rejects() == {"b": ("closed", 1)}


@pytest.mark.long
def test_no_watermark_is_stored_for_a_batch_that_was_stopped(till, practice, chartferry):
    """The next import queries them again."""
    till.says(BY_CHANGE)
    till.feed.write_text("max_rejects = 0\n" + till.feed.read_text())
    till.add(("a", "p1", 1, DAYS[3]), ("b", "", 1, DAYS[2]))
    code, found = imported(chartferry)
    assert (code, [each["state"] for each in found["batches"]]) == (4, ["stopped"])
    assert practice.rows("SELECT * FROM query_mark") == []
    till.do("update payments set patient = 'p1'")
    assert counts(imported(chartferry)[1]) == [("finished", 2, 0)]


def test_a_watermark_that_went_back_sends_nothing_and_names_the_way(till, practice, chartferry):
    till.add(("a", "p1", 1, DAYS[9]), ("b", "p1", 1, DAYS[3]))
    assert imported(chartferry)[0] == 0
    till.do("delete from payments where receipt = 'b'")
    till.add(("c", "p1", 1, DAYS[4]))
    code, found = imported(chartferry)
    assert code == 4
    assert found["batches"][0]["message"] == (
        "till: TILL_URL no longer has a row as new as the newest row so far, so rows may be missed; if the database was"
        " restored or rows were removed, run chartferry import --whole till"
    )
    assert imported(chartferry, "--whole", "till")[0] == 0
    assert [key[-1] for key in practice.created()] == ["a", "b", "c"]
    assert imported(chartferry)[0] == 0


def test_a_changed_query_ignores_the_watermark_and_reads_all_rows(till, practice, chartferry):
    """Rows that the former query left out may be older than the watermark."""
    till.add(("a", "p1", 1, DAYS[19]), ("b", "p1", 1, DAYS[3]))
    till.feed.write_text(till.feed.read_text() + "\n[take]\nreceipt = 'b'\n")
    assert counts(imported(chartferry)[1]) == [("finished", 1, 0)]
    till.says(BY_CHANGE)
    assert counts(imported(chartferry)[1]) == [("finished", 1, 1)]


@pytest.mark.parametrize(
    ("url", "more", "said"),
    [
        ("", "", "till: the environment variable TILL_URL has no database URL"),
        ("no secret url", "", "till: the environment variable TILL_URL has no database URL"),
        ("postgresql://u:p@h:5432x/db", "", "till: the environment variable TILL_URL has no database URL"),
        (
            "nothing://secret@x",
            "",
            f"{FAILED} (NoSuchModuleError); {HINT}",
        ),
        (
            "sqlite:////nowhere/secret.db",
            "",
            f"{FAILED} (OperationalError); {HINT}",
        ),
        (
            None,
            'watermark = "updated"',
            "till: the query returns no column updated; it returns receipt, patient, amount, changed, note",
        ),
        (
            None,
            'watermark = "receipt"',
            f"till: receipt: {NOT_ISO}",
        ),
    ],
)
def test_a_database_that_is_away_or_another_is_reported_in_one_sentence(
    url, more, said, till, practice, chartferry, monkeypatch
):
    """CLI-EXIT-01: exit code 4, nothing sent."""
    till.add(("a", "p1", 1, DAYS[3]))
    till.says(more)
    if url is not None:
        monkeypatch.setenv("TILL_URL", url)
    code, found = imported(chartferry)
    assert (code, found["batches"][0]["message"]) == (4, said)
    assert practice.created() == []


def test_a_slow_database_is_given_up(till, tmp_path):
    """The query is ended after the time that the feed sets."""
    slow = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) as receipt from n"
    before = "select receipt, patient, amount, changed, note from payments where note <> ':x';"
    till.feed.write_text(FEED.replace("{more}", "wait_seconds = 1").replace(before, slow))
    with pytest.raises(UnreadableFile) as error:
        run_query(load_feed(till.feed), tmp_path / "rows", None, NOW)
    assert str(error.value) == (
        "till: TILL_URL gave no rows for 1 s; try again later, or set a longer wait in the feed file"
        " (query.wait_seconds)"
    )
    for thread in threading.enumerate():
        if thread.name == "query till":
            thread.join(timeout=20)
            assert not thread.is_alive()


def test_a_row_dated_in_the_future_sets_no_watermark():
    """Otherwise all rows before it would be missed."""
    newest = NewestWatermarks(NOW)
    for value in (NOW - timedelta(days=2), NOW + timedelta(days=400), None):
        newest.note(value)
    assert newest.mark == Watermark("time", (NOW - timedelta(days=2)).isoformat())
    texts = NewestWatermarks(NOW)
    texts.note(DAYS[3])
    texts.note("2999-12-31")
    assert texts.mark == Watermark("text", DAYS[3])


def test_times_that_have_a_zone_since_are_not_compared_with_a_mark_without():
    newest = NewestWatermarks(NOW)
    newest.note(NOW)
    assert newest.is_before(Watermark("time", "2026-03-01T10:00:00"))


@pytest.mark.parametrize("number", [float, Decimal])
@pytest.mark.parametrize("what", ["nan", "inf", "-inf"])
def test_a_number_that_is_not_finite_is_no_mark(number, what):
    """Databases can hold such numbers, and no later query could begin there."""
    newest = NewestWatermarks(NOW)
    for value in (number(what), number(7), number(what)):
        newest.note(value)
    assert newest.mark == Watermark("number", str(number(7)))


@pytest.mark.parametrize(
    ("mark", "overlap", "found"),
    [
        (Watermark("text", "2026-03-01 12:00:00"), None, "2026-02-28"),
        (Watermark("text", "2026-03-01T12:00:00Z"), 0, "2026-03-01"),
        (Watermark("date", "2026-03-01"), None, datetime(2026, 2, 28, tzinfo=UTC).date()),
        (Watermark("time", "2026-03-01T12:00:00+00:00"), 2, datetime(2026, 2, 27, 12, tzinfo=UTC)),
        (Watermark("time", "2026-03-01T12:00:00"), 2, datetime(2026, 2, 27, 11)),  # noqa: DTZ001 - as a database has it
        (Watermark("number", "5000"), 1000, 4000),
    ],
)
def test_a_query_goes_back_by_the_overlap(mark, overlap, found):
    assert since(mark, overlap) == found


def test_a_watermark_that_is_a_number_needs_an_overlap(till, practice, chartferry):
    """Only the user knows how late a row may be added. The mistake is named before anything is loaded."""
    till.says('watermark = "amount"')
    till.add(("k1", "p1", 1, DAYS[0]))
    code, found = imported(chartferry)
    assert (code, practice.created()) == (4, [])
    assert "amount: the watermark is a number, so set how far to go back" in found["batches"][0]["message"]
    with pytest.raises(NoMark, match="the watermark is a number, so set how far to go back each time"):
        since(Watermark("number", "5000"), None)


def test_a_number_mistyped_far_ahead_hides_no_rows(till, practice, chartferry):
    """Nor does one that an earlier version stored as its watermark, after which it read nothing."""
    till.says('watermark = "amount"\noverlap = 2')
    till.add(*((f"k{n}", "p1", n, DAYS[5]) for n in range(1, 20)), ("typo", "p1", 5000, DAYS[5]))
    assert counts(imported(chartferry)[1]) == [("finished", 20, 0)]
    assert practice.rows("SELECT value FROM query_mark") == [("16",)]
    till.add(("k20", "p1", 20, DAYS[4]))
    assert counts(imported(chartferry)[1]) == [("finished", 1, 7)]
    with closing(sqlite3.connect(practice.home / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE query_mark SET value = 5000")
    till.add(("k21", "p1", 21, DAYS[4]))
    assert counts(imported(chartferry)[1]) == [("finished", 1, 21)]
    with closing(sqlite3.connect(practice.home / "ledger.db")) as ledger:
        assert ledger.execute("SELECT value FROM query_mark").fetchall() == [("18",)]


READ = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from pipelines.feeds.files.catalog import load_feed
from pipelines.feeds.reading.readers import QueriedReader
from pipelines.feeds.reading.query import run_query
from tests.pipelines.validation.test_memory import most_memory
feed, to = load_feed(Path(sys.argv[1])), Path(sys.argv[2])
assert run_query(feed, to, None, datetime.now(UTC)).rows == int(sys.argv[3])
with QueriedReader(to, "till.rows", feed.file) as reader:
    assert sum(len(chunk.rows) for chunk in reader.chunks()) == int(sys.argv[3])
print(most_memory() >> 10)
"""


def test_ten_times_as_many_queried_rows_take_less_than_twice_the_memory(till, tmp_path, monkeypatch):
    """"""
    monkeypatch.setattr("pipelines.feeds.reading.query.ROWS_AT_ONCE", 50)
    monkeypatch.setattr("pipelines.feeds.reading.chunks.CHUNK", 50)
    feed, to, peaks = load_feed(till.feed), tmp_path / "rows", []
    for rows in (200, 2_000):
        till.fill(rows)

        def read(rows=rows):
            assert run_query(feed, to, None, datetime.now(UTC)).rows == rows
            with QueriedReader(to, "till.rows", feed.file) as reader:
                assert sum(len(chunk.rows) for chunk in reader.chunks()) == rows

        peaks.append(peak_of(read))
    assert peaks[1] < 2 * peaks[0]


@pytest.mark.long
@pytest.mark.parametrize(("many", "more"), [(30_000, 15), (200_000, 50)])
def test_many_rows_need_no_more_memory_than_some(many, more, till, tmp_path):
    """Rows are passed on some thousands at a time."""
    needed = []
    for rows in (many // 10, many):
        till.fill(rows)
        asked = [sys.executable, "-c", READ, str(till.feed), str(tmp_path / "rows"), str(rows)]
        needed.append(int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout))
    assert needed[1] < needed[0] + (more << 10)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (('format = "sql"', 'format = "csv"'), 'query: required with format = "sql", and only allowed with it'),
        (("[query]", 'files = ["a.csv"]\n[query]'), "files: a feed has files or a query, not both"),
        (("sql = ", "watermarks = 1\nsql = "), "query.watermarks: unknown key; did you mean watermark?"),
    ],
)
def test_a_feed_that_says_otherwise_is_refused(changed, said, tmp_path):
    (tmp_path / "till.toml").write_text(FEED.replace("{more}", "").replace(*changed))
    with pytest.raises(FeedError, match=said.split("?")[0]):
        load_feed(tmp_path / "till.toml")


def test_a_rehearsal_and_a_dry_run_ask_too_and_keep_no_mark(till, practice, chartferry):
    till.add(("a", "p1", 1, DAYS[3]))
    code, found = imported(chartferry, "--dry-run")
    assert (code, found["batches"][0]["waiting"]) == (0, 1)
    assert practice.rows("SELECT * FROM query_mark") == []
    assert run(["--home", str(practice.home), "import", "--whole", "nope"]) == 4


def test_dagster_asks_by_a_job_of_its_own(till, practice):
    """It imports the same rows as the command line. A failure is one sentence."""
    till.add(("a", "p1", 1, DAYS[3]))
    definitions = build_definitions({**os.environ, "CHARTFERRY_HOME": str(practice.home)})
    job = definitions.get_job_def("query_till")
    with dg.instance_for_test() as instance:
        assert job.execute_in_process(instance=instance).success
        assert [key[-1] for key in practice.created()] == ["a"]
        till.do("delete from payments")
        failed = job.execute_in_process(instance=instance, raise_on_error=False)
        assert not failed.success
        assert "TILL_URL no longer has a row as new" in str(failed.all_events)

"""Queries of feeds over a PostgreSQL: marks, overlap, a database that is away, slow or restored; types of its own."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from pipelines.feeds.files.catalog import Feed, load_feed
from pipelines.feeds.reading.query import QueryFile, run_query
from pipelines.home.batch import UnreadableFile
from tests.support.postgres import Postgres

FEED = """
kind = "payments"
format = "sql"
[query]
database = "TILL_URL"
sql = \"\"\"{sql}\"\"\"
{more}
[columns]
payment_id = "receipt"
patient_id = "patient"
amount = "amount"
paid_on = "changed"
"""
SQL = "select receipt, patient, amount::text as amount, changed from payments where note not like '%x' -- 100%"
NOW = datetime.now(UTC)


class Till:
    """A database of payments, and what its query gives."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.do(
            "create table payments (receipt text, patient text, amount numeric(9, 2), changed timestamptz, note text)"
        )

    def do(self, statement: str, *rows: tuple[object, ...]) -> None:
        given = make_url(self.url)
        with psycopg.connect(host=str(given.query["host"]), user="tests", dbname=given.database) as connection:
            for row in rows or [()]:
                connection.execute(statement.encode(), row)

    def add(self, *rows: tuple[str, int]) -> None:
        """Payments, each with the days since it was changed."""
        given = ((key, "p1", "1.50", NOW - timedelta(days=ago), "") for key, ago in rows)
        self.do("insert into payments values (%s, %s, %s, %s, %s)", *given)

    def feed(self, more: str = 'watermark = "changed"', sql: str = SQL, url: str | None = None) -> Feed:
        path = self.folder / "till.toml"
        path.write_text(FEED.format(sql=sql, more=more))
        return load_feed(path, environ={"TILL_URL": url or self.url})

    def asked(self, feed: Feed, after: QueryFile | None = None) -> tuple[QueryFile, list[str]]:
        """Return the batch of queried rows, and their keys."""
        to = self.folder / "rows"
        found = run_query(feed, to, after.mark if after else None, NOW)
        return found, [json.loads(line)[0] for line in to.read_text().splitlines()[1:]]


@pytest.fixture
def till(postgres: Postgres, tmp_path: Path) -> Iterator[Till]:
    with postgres.database() as url:
        yield Till(url, tmp_path)


def test_rows_come_since_the_newest_less_the_overlap(till: Till) -> None:
    """FEED-FILE-01: a row that came late, within a day of the newest, is not missed."""
    till.add(("a", 9), ("b", 5))
    first, keys = till.asked(till.feed())
    assert keys == ["a", "b"]
    assert first.mark
    assert first.mark.kind == "time"
    till.add(("late", 6), ("too late", 7), ("c", 2))
    second, keys = till.asked(till.feed(), first)
    assert keys == ["late", "b", "c"]
    assert till.asked(till.feed('watermark = "changed"\noverlap = 0'), second)[1] == ["c"]
    assert till.asked(till.feed('watermark = "changed"\noverlap = 100'), second)[1] == [
        "a",
        "too late",
        "late",
        "b",
        "c",
    ]


@pytest.mark.parametrize(
    ("type_", "kind"), [("timestamp", "time"), ("date", "date"), ("text", "text"), ("numeric(20)", "number")]
)
def test_a_watermark_may_be_of_any_type_that_has_an_order(type_: str, kind: str, till: Till) -> None:
    """FEED-FILE-01"""
    told = "extract(epoch from changed)" if kind == "number" else "to_char(changed, 'YYYY-MM-DD HH24:MI:SS')"
    sql = f"select receipt, patient, amount, ({told})::{type_} as changed from payments"
    till.add(("a", 9), ("b", 5))
    feed = till.feed(f'watermark = "changed"\noverlap = {86_400 if kind == "number" else 1}', sql)
    first, _ = till.asked(feed)
    assert first.mark
    assert first.mark.kind == kind
    till.add(("c", 2))
    few = ["a"] if kind == "number" else []  # of fewer than five numbers, all rows are read
    assert till.asked(feed, first)[1] == [*few, "b", "c"]


def test_times_without_a_zone_lose_no_row_when_clocks_are_put_back(till: Till) -> None:
    """FEED-FILE-01: rows of the hour that comes again are older than the newest; so may one be that was changed."""
    local = datetime(2025, 11, 2, 1, 58)  # noqa: DTZ001 - as a till keeps them
    sql = "select receipt, patient, amount::text as amount, changed::timestamp as changed from payments"
    feed = till.feed('watermark = "changed"\noverlap = 0', sql)
    add = "insert into payments values (%s, 'p1', 1, %s, '')"
    till.do(add, ("a", local))
    first, _ = till.asked(feed)
    till.do(add, ("b", local - timedelta(minutes=53)))
    second, keys = till.asked(feed, first)
    assert keys == ["b", "a"]
    till.do("update payments set changed = changed - interval '50 minutes' where receipt = 'a'")
    assert till.asked(feed, second)[1] == ["b", "a"]


def test_a_database_whose_newest_row_is_older_than_before_sends_nothing(till: Till) -> None:
    """As after a restore."""
    till.add(("a", 9), ("b", 3))
    first, _ = till.asked(till.feed())
    till.do("delete from payments where receipt = 'b'")
    with pytest.raises(UnreadableFile, match=r"^till: TILL_URL no longer has a row as new as the newest"):
        till.asked(till.feed(), first)


def test_a_database_that_is_away_is_reported_in_one_sentence_without_its_address(till: Till) -> None:
    """CLI-EXIT-01"""
    away = "postgresql+psycopg://secret:word@/nothing?host=/nowhere"
    with pytest.raises(UnreadableFile) as error:
        till.asked(till.feed(url=away))
    assert str(error.value) == (
        "till: the query on TILL_URL could not be run (OperationalError); check the database and the query"
    )


def test_a_slow_database_is_given_up_and_its_query_ended(till: Till) -> None:
    sql = "select 'a' as receipt, 'p1' as patient, 1 as amount, now() as changed from pg_sleep(600)"
    with pytest.raises(UnreadableFile, match=r"^till: TILL_URL gave no rows for 1 s; try again later"):
        till.asked(till.feed("wait_seconds = 1", sql))
    for thread in threading.enumerate():
        if thread.name == "query till":
            thread.join(timeout=20)
            assert not thread.is_alive()


def test_values_of_its_own_types_are_texts_that_a_feed_can_read(till: Till) -> None:
    """FEED-FILE-09"""
    sql = (
        "select '7f0c0d52-7f3c-4d0e-8a55-2f1f2a0f9d11'::uuid as receipt, true as patient, 12.50::numeric as amount,"
        " timestamptz '2026-03-01 12:00:00+02' as changed, date '2026-03-01', interval '1 day 1 hour', 'NaN'::float8,"
        " array[1, 2], '{\"a\": 1}'::jsonb, '\\\\x00ff'::bytea, null"
    )
    till.asked(till.feed("", sql))
    [_, row] = (till.folder / "rows").read_text().splitlines()
    receipt, patient, amount, changed, day, hours, nothing, several, held, other, null = json.loads(row)
    assert (receipt, patient, amount) == ("7f0c0d52-7f3c-4d0e-8a55-2f1f2a0f9d11", True, 12.5)
    assert datetime.fromisoformat(changed) == datetime(2026, 3, 1, 10, tzinfo=UTC)
    assert (day, hours, nothing, several, held) == ("2026-03-01", "25:00:00", None, "[1, 2]", '{"a": 1}')
    assert (other, null) == ({}, None)

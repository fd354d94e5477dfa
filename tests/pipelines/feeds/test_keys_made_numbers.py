"""Keys that a spreadsheet or a program turned into numbers are refused, since two of them may look like one."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.feeds.files.catalog import load_feed
from pipelines.feeds.reading.query import run_query
from tests.support.validating import accepted, rejected, validated

FEED = """
kind = "payments"
files = ["till*"]
{more}
[columns]
payment_id = "id"
patient_id = "who"
amount = "sum"
paid_on = "on"
"""
COMMA = 'delimiter = ";"\ndecimal = ","\n'
REFUSED = "this key was turned into a number (as 7.0, -0 or 1.2E+14 by a spreadsheet); export it as text"


@pytest.mark.parametrize("key", ["1,23457E+14", "1.23457E+14", "1.2345678901234568e+17", "1.2345678E7", "7,0", "7.0"])
def test_two_payments_whose_keys_became_one_number_are_both_rejected(key: str, tmp_path: Path) -> None:
    """FEED-FILE-09, PAY-01: with one amount and one day the second would be skipped as a repeat of the first."""
    rows = f"{key};p1;12,50;2026-03-01\n" * 2
    found = validated(f"id;who;sum;on\n{rows}", tmp_path, "till.csv", FEED.replace("{more}", COMMA))
    assert (found.accepted, found.skipped) == (0, 0)
    assert rejected(found) == [(2, 1, REFUSED), (3, 1, REFUSED)]


def test_a_comma_in_a_key_is_no_decimal_sign_where_decimals_have_a_point(tmp_path: Path) -> None:
    """FEED-FILE-09"""
    rows = "id;who;sum;on\n12,0;p1;12.50;2026-03-01\n12,5E;p1;1.00;2026-03-01\n"
    found = validated(rows, tmp_path, "till.csv", FEED.replace("{more}", 'delimiter = ";"'))
    assert accepted(found) == [(2, "12,0"), (3, "12,5E")]


@pytest.mark.parametrize("more", ["", 'decimal = ","'])
def test_a_number_of_json_that_may_have_lost_figures_is_no_key(more: str, tmp_path: Path) -> None:
    """FEED-FILE-09: one whose figures are all there is."""
    ids = ("1.2345678901234568e+17", "1.2e45", "7.0", "123456789012345678", "1e5")
    rows = "".join(f'{{"id": {each}, "who": "p1", "sum": 1, "on": "2026-03-01"}}\n' for each in ids)
    found = validated(rows, tmp_path, "till.ndjson", FEED.replace("{more}", more))
    assert accepted(found) == [(4, "123456789012345678"), (5, "100000")]
    assert rejected(found) == [(line, 1, REFUSED) for line in (1, 2, 3)]


def test_a_number_of_a_database_that_may_have_lost_figures_is_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FEED-FILE-09"""
    with closing(sqlite3.connect(tmp_path / "till.db")) as database, database:
        database.execute("create table paid (id real, who text, sum real, day text)")
        database.execute("insert into paid values (123456789012345678, 'p1', 1.5, '2026-03-01')")
        database.execute("insert into paid values (123456789012345679, 'p1', 1.5, '2026-03-01')")
    monkeypatch.setenv("TILL_URL", f"sqlite:///{tmp_path / 'till.db'}")
    asked = '[query]\ndatabase = "TILL_URL"\nsql = "select id, who, sum, day as \\"on\\" from paid"\n'
    toml = FEED.replace('files = ["till*"]', 'format = "sql"').replace("{more}", asked)
    (tmp_path / "till.toml").write_text(toml)
    run_query(load_feed(tmp_path / "till.toml"), tmp_path / "rows", None, datetime.now(UTC))
    found = validated((tmp_path / "rows").read_bytes(), tmp_path, "till.rows", toml)
    assert rejected(found) == [(1, 1, REFUSED), (2, 1, REFUSED)]

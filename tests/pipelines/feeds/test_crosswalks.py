"""Crosswalks from a database: read when a file is mapped, and clear when they cannot be."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pipelines.feeds.files.catalog import FeedError, load_feed
from pipelines.feeds.files.crosswalks import BadCrosswalk, read_csv
from pipelines.feeds.terms.values import Crosswalk
from pipelines.home.batch import UnreadableFile
from pipelines.validation.outcome import ValidationResult
from tests.support import validating

FEED = """
name = "till"
kind = "payments"
files = ["till*.csv"]
[columns]
payment_id = "id"
patient_id = { column = "card", crosswalk = { database = "CARDS_URL", query = "QUERY" } }
amount = "sum"
paid_on = "on"
"""
ROWS = "id,card,sum,on\n1,A,1.00,2024-05-01\n2,B,1.00,2024-05-01\n3,C,1.00,2024-05-01\n"
QUERY = "select card, patient from cards where card <> ':x'"


@pytest.fixture
def url(tmp_path: Path) -> str:
    with closing(sqlite3.connect(tmp_path / "cards.db")) as database, database:
        database.execute("create table cards (card text, patient text)")
        database.executemany("insert into cards values (?, ?)", [("A", "p1"), ("B", " p2 "), ("D", None)])
    database.close()
    return f"sqlite:///{tmp_path / 'cards.db'}"


def validated(folder: Path, environ: dict[str, str], query: str = QUERY) -> ValidationResult:
    (folder / "till.toml").write_text(FEED.replace("QUERY", query))
    return validating.validated(ROWS, folder, "till.csv", load_feed(folder / "till.toml", environ=environ))


def test_a_query_on_a_database_translates_ids(url: str, tmp_path: Path) -> None:
    """FEED-FILE-06."""
    found = validated(tmp_path, {"CARDS_URL": url})
    assert [row["patient_id"] for row in validating.rows(found, "accepted")] == ["p1", "p2"]
    [(_, _, message)] = validating.rejected(found)
    assert message == "no entry in the crosswalk CARDS_URL"


@pytest.mark.parametrize(
    ("environ", "query", "sentence"),
    [
        ({}, QUERY, "the environment variable CARDS_URL has no database URL"),
        ({"CARDS_URL": "nothing://x"}, QUERY, "the query could not be run (NoSuchModuleError)"),
        (None, "select secret from nowhere", "the query could not be run (OperationalError)"),
        (None, "select card from cards", "the query returns one column; it must return two"),
        (
            None,
            "select 'A', patient from cards",
            "line 2: the value has another translation on an earlier line; keep one of them",
        ),
    ],
)
def test_a_crosswalk_that_cannot_be_read_fails_the_file_with_one_sentence(
    environ: dict[str, str] | None, query: str, sentence: str, url: str, tmp_path: Path
) -> None:
    """FEED-FILE-06."""
    with pytest.raises(UnreadableFile) as error:
        validated(tmp_path, {"CARDS_URL": url} if environ is None else environ, query)
    assert str(error.value) == f"till.csv: till.toml: crosswalk CARDS_URL: {sentence}"


@pytest.mark.parametrize(
    "declared",
    ['{ file = "a.csv" }', '{ database = "A" }', '{ file = "a.csv", database = "A", query = "q" }', "{ from = 'a' }"],
)
def test_a_crosswalk_is_a_file_or_a_query(declared: str, tmp_path: Path) -> None:
    """FEED-FILE-06."""
    text = FEED.replace('{ database = "CARDS_URL", query = "QUERY" }', declared)
    (tmp_path / "till.toml").write_text(text)
    with pytest.raises(FeedError, match=r"^till\.toml: columns\.patient_id\.crosswalk: needs .* \(line 7\)$"):
        load_feed(tmp_path / "till.toml")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("name,card,old,id\nMuller, M,A,p1,p2\n", "line 2: more fields than the header; put quotes around"),
        ("card,id,name,id\nA,p1,M,p2\n", "it has the column id more than once"),
        ("card,id,name\nA,p1,Muller, M\n", ""),
        ("name,card,id\nM,A,p1,,\n", ""),
    ],
)
def test_a_crosswalk_that_may_give_two_values_for_an_id_is_refused(rows: str, said: str, tmp_path: Path) -> None:
    """FEED-FILE-06: `p1` was in the column of the id, and was another patient's."""
    (tmp_path / "cards.csv").write_text(rows)
    crosswalk = Crosswalk.model_validate({"file": "cards.csv", "from": "card", "to": "id"})
    if said:
        with pytest.raises(BadCrosswalk, match=f"crosswalk cards.csv: {said}"):
            read_csv(tmp_path, crosswalk)
    else:
        assert read_csv(tmp_path, crosswalk) == {"A": "p1"}

"""Searches by many values: how many a query may name, and what splitting them costs."""

import logging
import threading
from collections import UserString
from contextlib import closing
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import duckdb
import pytest
from sqlalchemy.dialects import postgresql

from fhir_service.interactions import search
from fhir_service.interactions.conditions import LONGEST_TEXT, MOST_CONDITIONS, MOST_TEXTS, MOST_VALUES, pieces
from fhir_service.interface.outcomes import UNAVAILABLE, FhirError
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from fhir_service.store.duckdb_dialect import Compiled
from fhir_service.store.expressions import contains
from fhir_service.store.store import Store
from fhir_service.store.tables import BODIES
from fhir_service.web.log_lines import ServiceLines
from tests.conftest import BOTH, Running
from tests.support.bodies import task
from tests.support.postgres import Postgres

STORES = BOTH
pytestmark = pytest.mark.crossed
FORM = {"content-type": "application/x-www-form-urlencoded"}
MANY = [f"p{number}" for number in range(MOST_VALUES + 1)]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("Task", "_id", "id-{}"),
        ("Task", "patient", "Patient/nobody-{}"),
        ("QuestionnaireResponse", "questionnaire.code", "http://loinc.org|{}"),
        ("DiagnosticReport", "code", "{}"),
    ],
)
def test_a_query_names_so_many_values_and_no_more(service: Running, kind: str, name: str, value: str) -> None:
    """SEARCH-21"""
    most = ",".join(value.format(number) for number in range(MOST_VALUES))
    assert service.client.post(f"/{kind}/_search", data={name: most}).json()["total"] == 0
    refused = service.client.post(f"/{kind}/_search", data={name: f"{most},{value.format('x')}"})
    assert (refused.status_code, refused.json()["issue"][0]["code"]) == (400, "invalid")
    why = f"{name}: a query may have at most 500 values: send several searches"
    assert refused.json()["issue"][0]["diagnostics"] == why


def test_the_values_of_all_parameters_of_a_query_count_together(service: Running) -> None:
    """SEARCH-21"""
    half = ",".join(MANY[: MOST_VALUES // 2])
    form = {"patient": half, "owner": half}
    assert service.client.post("/Task/_search", data=form).status_code == 200
    assert service.client.post("/Task/_search", data=form | {"requester": "p1"}).status_code == 400


def test_a_value_that_comes_again_counts_once(fresh_service: Running) -> None:
    """SEARCH-21"""
    assert fresh_service.client.post("/Task", json=task(1)).status_code == 201
    form = {"status": ",".join(["requested"] * 50_000)}
    assert fresh_service.client.post("/Task/_search", data=form).json()["total"] == 1


@pytest.mark.parametrize(
    "pairs",
    [[("label", "x")] * 199, [("status", "requested,completed"), ("status", "completed,requested,completed")] * 99],
    ids=["one value", "alternatives"],
)
def test_a_condition_that_comes_again_is_asked_once(pairs: list[tuple[str, str]]) -> None:
    """SEARCH-21: 199 joins of one label took PostgreSQL minutes to plan."""
    query = search.parse(RESOURCES["Task"], pairs, Site("http://x", "a", "b"), 10, 100, additions=True, lenient=False)
    assert (len(query.conditions), query.sent) == (1, pairs)


def test_a_query_has_so_many_conditions_and_no_more(service: Running) -> None:
    """SEARCH-21"""
    labels: list[tuple[str, Any]] = [("label", f"x{number}") for number in range(MOST_CONDITIONS)]
    query = [*labels * 5, ("_sort", "due-date"), ("_count", "1")]
    assert service.client.get("/Task", params=query).json()["total"] == 0
    refused = service.client.get("/Task", params=[*query, ("due", "ge2024")])
    assert (refused.status_code, refused.json()["issue"][0]["code"]) == (400, "invalid")
    assert refused.json()["issue"][0]["diagnostics"] == "due: a query may have at most 20 conditions: leave some out"


@pytest.mark.alike
@pytest.mark.parametrize(("kind", "name"), [("Task", "description"), ("Questionnaire", "name")])
def test_a_query_looks_for_a_few_short_texts(service: Running, kind: str, name: str) -> None:
    """SEARCH-21, LIMIT-14: letters were folded for each of 199 texts, in three gigabytes."""
    few = [(name, f"{'ß' * (LONGEST_TEXT - 2)}{number}x") for number in range(MOST_TEXTS)]
    for most in (few, few * 30):
        assert service.client.post(f"/{kind}/_search", content=urlencode(most), headers=FORM).json()["total"] == 0
    for more, why in [
        ([*few, (name, "x")], "a query may have at most 5 texts to look for: leave some out"),
        ([(name, "x" * (LONGEST_TEXT + 1))], "a text of at most 500 characters is expected"),
    ]:
        refused = service.client.post(f"/{kind}/_search", content=urlencode(more), headers=FORM)
        assert (refused.status_code, refused.json()["issue"][0]["diagnostics"]) == (400, f"{name}: {why}")


def test_a_text_is_looked_for_without_patterns() -> None:
    """LIMIT-14: LIKE took the length of a text times that of what is sought."""
    column = BODIES["Task"].c.description
    for dialect, expected in [(Compiled(), "contains("), (postgresql.dialect(), "strpos(")]:
        written = str(contains(column, "ß").compile(dialect=dialect))
        assert expected in written
        assert "LIKE" not in written


def test_the_server_ends_what_a_request_reads_for_too_long(postgres: Postgres) -> None:
    """LIMIT-15: other reads, as those of a check of the store, may take long."""
    with postgres.database() as url, closing(Store.open(url, read_seconds=1)) as store:
        with pytest.raises(FhirError) as raised, store.read(asked=True) as connection:
            connection.exec_driver_sql("SELECT pg_sleep(60)")
        assert (raised.value.outcome, raised.value.diagnostics) == (
            UNAVAILABLE,
            "the request took too long or too much memory: ask for less",
        )
        with store.read(asked=True) as connection:
            assert connection.exec_driver_sql("SHOW client_connection_check_interval").scalar() == "5s"
        with store.read() as connection:
            assert connection.exec_driver_sql("SHOW statement_timeout").scalar() == "0"


class Slow:
    """Statements of DuckDB that take minutes."""

    TEXT = "SELECT count(*) FROM range(100000) a, range(100000) b WHERE a.range * b.range % 7 = 8"

    def __init__(self, store: Store) -> None:
        self.errors: list[FhirError] = []
        self.begun = threading.Event()
        self.thread = threading.Thread(target=self.read, args=[store])
        self.thread.start()

    def read(self, store: Store) -> None:
        for _ in range(2):
            try:
                with store.read(asked=True) as connection:
                    self.begun.set()
                    connection.exec_driver_sql(self.TEXT)
            except FhirError as error:
                self.errors.append(error)


def test_a_read_of_a_duckdb_store_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """LIMIT-15: the connection is good for the next read."""
    with closing(Store.open(str(tmp_path / "s.duckdb"), read_seconds=1)) as store:
        with pytest.raises(FhirError) as raised, store.read(asked=True) as connection:
            connection.exec_driver_sql(Slow.TEXT)
        assert raised.value.diagnostics == "the request took too long or too much memory: ask for less"
        with store.read(asked=True) as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1


def test_closing_the_store_ends_the_reads_of_requests(tmp_path: Path) -> None:
    """LIMIT-15: of a search, and of the next one in a batch. A service went on for minutes after SIGTERM."""
    path = str(tmp_path / "s.duckdb")
    store = Store.open(path, read_seconds=600)
    slow = Slow(store)
    assert slow.begun.wait(30)
    store.close()
    slow.thread.join(30)
    assert [error.outcome for error in slow.errors] == [UNAVAILABLE] * 2
    duckdb.connect(path).close()  # it is let go


def test_an_error_of_the_server_is_reported_in_one_line_of_the_log() -> None:
    """ERR-500-02: a traceback of a request that was cancelled went to standard error."""
    failed = (ValueError, ValueError("a value"), None)
    record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, "Exception", None, failed)
    assert (
        ServiceLines("%(levelname)s %(name)s: %(message)s").format(record)
        == "ERROR uvicorn.error: Exception: ValueError"
    )


def test_searches_and_histories_are_subject_to_the_time_limit_of_requests(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIMIT-15"""
    read, asked = Store.read, []

    def noted(store: Store, *args: Any, **options: Any) -> Any:
        asked.append(options.get("asked"))
        return read(store, *args, **options)

    monkeypatch.setattr(Store, "read", noted)
    for path in ("/Task?description=zzz", "/Task?_sort=due-date&_count=3", "/Task/_history", "/fhir/Task?owner=o"):
        assert service.client.get(path).status_code == 200
    assert set(asked) == {True}


class Counted(UserString):
    """A text that counts how many of its characters are looked at."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        self.looks += len(range(*at.indices(len(self)))) if isinstance(at, slice) else 1
        return self.data[at]


@pytest.mark.parametrize("part", ["a,", "a", "\\,", ",", "\\"])
def test_splitting_looks_at_each_character_a_few_times(part: str) -> None:
    """LIMIT-14: four times the text is four times the work."""
    looks = []
    for size in (1_000, 4_000):
        text = Counted(part * size)
        list(pieces(cast(str, text), ","))
        looks.append(text.looks)
    assert looks[1] <= 4 * looks[0] + 8


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a,b", ["a", "b"]),
        ("", [""]),
        (",", ["", ""]),
        ("a\\,b,c", ["a\\,b", "c"]),
        ("a\\\\,b", ["a\\\\", "b"]),
        ("a\\", ["a\\"]),
        ("\\", ["\\"]),
    ],
)
def test_a_separator_behind_a_backslash_is_part_of_the_value(text: str, parts: list[str]) -> None:
    """SEARCH-06"""
    assert list(pieces(text, ",")) == parts

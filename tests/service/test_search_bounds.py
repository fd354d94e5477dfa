"""Searches by many values: how many a query may name, and what splitting them costs."""

from collections import UserString
from contextlib import closing
from typing import Any, cast

import pytest

from fhir_service.interactions import search
from fhir_service.interactions.conditions import MOST_CONDITIONS, MOST_VALUES, pieces
from fhir_service.interface.outcomes import UNAVAILABLE, FhirError
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from fhir_service.store.store import Store
from tests.conftest import BOTH, Running
from tests.support.bodies import task
from tests.support.postgres import Postgres

STORES = BOTH
pytestmark = pytest.mark.crossed
MANY = [f"p{number}" for number in range(MOST_VALUES + 1)]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("Task", "_id", "id-{}"),
        ("Task", "patient", "Patient/p{}"),
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
    why = f"{name}: a query has 500 values at most: search several times"
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
    assert refused.json()["issue"][0]["diagnostics"] == "due: a query has 20 conditions at most: search for less"


def test_the_server_ends_what_a_request_reads_for_too_long(postgres: Postgres) -> None:
    """LIMIT-15: other reads, as those of a check of the store, may take long."""
    with postgres.database() as url, closing(Store.open(url, read_seconds=1)) as store:
        with pytest.raises(FhirError) as raised, store.read(asked=True) as connection:
            connection.exec_driver_sql("SELECT pg_sleep(60)")
        assert (raised.value.outcome, raised.value.diagnostics) == (
            UNAVAILABLE,
            "what was asked for took too long: ask for less",
        )
        with store.read(asked=True) as connection:
            assert connection.exec_driver_sql("SHOW client_connection_check_interval").scalar() == "5s"
        with store.read() as connection:
            assert connection.exec_driver_sql("SHOW statement_timeout").scalar() == "0"


def test_searches_and_histories_are_read_as_what_is_asked_for(
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

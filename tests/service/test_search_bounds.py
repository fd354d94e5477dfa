"""Searches by many values: how many a query may name, and what splitting them costs."""

from collections import UserString
from typing import Any, cast

import pytest

from fhir_service.interactions.conditions import MOST_VALUES, pieces
from tests.conftest import BOTH, Running
from tests.support.bodies import task

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

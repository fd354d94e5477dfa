"""Pages far from the beginning of a search equal those of a full sort."""

import random
from typing import Any

import pytest

from fhir_service.interactions import far_pages
from tests.conftest import Running
from tests.support.bodies import entry, send, task

DUE = [
    None, "0001-01-01", "1969-12-31", "1970-01-01", "2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01T23:59:59.999999Z",
    "2026-01-02", "2026-03-29T01:30:00+02:00", "9999-12-31", "9999-12-31T23:59:59Z",
]  # fmt: skip


def stored(service: Running, seed: int) -> None:
    """Tasks with and without due dates; some dates are equal."""
    dice = random.Random(seed)
    due = [dice.choice(DUE) for _ in range(40)]
    bodies = [
        task(n) | ({"restriction": {"period": {"end": end}}} if end else {"restriction": None})
        for n, end in enumerate(due)
    ]
    bodies = [{name: part for name, part in body.items() if part is not None} for body in bodies]
    assert {answer["status"] for answer in send(service.client, list(map(entry, bodies)))} == {"201"}


def pages(service: Running, query: str) -> list[list[Any]]:
    """The ids of pages of three, from all offsets."""
    found = (service.client.get(f"/Task?{query}&_count=3&_offset={offset}").json() for offset in range(42))
    return [[one["resource"]["id"] for one in page.get("entry", ())] for page in found]


@pytest.mark.alike
@pytest.mark.parametrize(
    "query",
    [
        pytest.param("_sort=due-date", marks=pytest.mark.long),
        pytest.param("_sort=-due-date", marks=pytest.mark.long),
        "_sort=-due-date&status=requested",
        "_sort=_id",
        pytest.param("", marks=pytest.mark.long),
        pytest.param("status=requested", marks=pytest.mark.long),
    ],
)
def test_a_page_far_from_the_beginning_is_the_one_that_sorting_everything_gives(
    fresh_service: Running, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """TASK-SEARCH-12, SEARCH-14, SEARCH-15: days before 1970, the last one of the calendar, and none."""
    stored(fresh_service, len(query))
    near = pages(fresh_service, query)
    monkeypatch.setattr(far_pages, "FAR", 0)
    monkeypatch.setattr(far_pages, "_NUMBERS", 7)
    fresh_service.service.reader.bodies._entries.clear()
    assert pages(fresh_service, query) == near
    assert len({each for page in near for each in page}) > 20

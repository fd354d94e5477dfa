"""Pages end early beyond many bytes: over all of them each record is shown once, and few bodies are fetched at once."""

import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fhir_service.interactions import history, search
from fhir_service.interface.outcomes import UNAVAILABLE, FhirError
from fhir_service.interface.registry import RESOURCES
from fhir_service.service import Service
from fhir_service.settings import Settings
from fhir_service.store import bodies, page_bytes
from tests.conftest import BOTH, Running
from tests.support.bodies import entry, send, task

STORES = BOTH
ROWS = 23
SEARCHES = [
    "/Task?",
    "/Task?_sort=-due-date&",
    "/Task?label=l&",
    "/fhir/Task?",
    "/Task/_history?",
    "/fhir/Task/_history?",
]


@pytest.fixture
def service(fresh_service: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    """A service with tasks of 400 to 20,000 bytes, of which some have two versions, that reads stretches too."""
    monkeypatch.setattr(search, "ON_THE_WAY", 10)
    monkeypatch.setattr(bodies, "STRETCH", 10)
    monkeypatch.setattr(bodies, "CALM", -1)
    dice = random.Random(7)
    label = [{"type": {"text": "label"}, "valueString": "l"}]
    made = [
        task(n, description="\N{GREEK SMALL LETTER ALPHA}" * dice.choice([1, 50, 3_000, 10_000]), input=label)
        for n in range(ROWS)
    ]
    for body in dice.sample(made, 12):
        body["restriction"] = {"period": {"end": f"2026-01-{dice.randint(10, 14)}"}}
    answers = send(fresh_service.client, list(map(entry, made)))
    for answer, body in dice.sample(list(zip(answers, made, strict=True)), 6):
        path = "/Task/" + answer["location"].rpartition("/")[2]
        assert fresh_service.client.put(path, json=body | {"description": "y" * 9_000}).status_code == 200
    return fresh_service


def pages(service: Running, path: str) -> list[dict[str, Any]]:
    """The pages of a search or history, by its links."""
    found, link = list[dict[str, Any]](), path
    while link:
        found.append(service.client.get(link).json())
        links = {each["relation"]: each["url"] for each in found[-1]["link"]}
        link = links.get("next", "")
        assert len(found) < 100
    return found


def sizes(page: dict[str, Any]) -> list[int]:
    """The bytes of the texts of a page, which are nearly all of its bytes."""
    return [len(each["resource"].get("description", "").encode()) for each in page["entry"]]


@pytest.mark.alike
@pytest.mark.parametrize("path", SEARCHES)
def test_every_record_is_shown_once_and_in_order_whatever_fits_on_a_page(
    service: Running, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """SEARCH-14, LIMIT-18: a page has no more bytes than fit, or one record. None is missing; the total is exact."""
    (whole,) = pages(service, f"{path}_count=100")
    shown = [each["resource"] for each in whole["entry"]]
    assert len(shown) == whole["total"] >= ROWS
    for most, count in ((1, 5), (7_000, 4), (25_000, 7), (60_000, 100)):
        monkeypatch.setattr(page_bytes, "MOST", most)
        for _ in range(2):  # the second time from memory, where there is one
            found = pages(service, f"{path}_count={count}")
            assert [each["resource"] for page in found for each in page["entry"]] == shown
            assert {page["total"] for page in found} == {whole["total"]}
            assert all(len(page["entry"]) == 1 or sum(sizes(page)) <= most for page in found)
            assert any(0 < len(page["entry"]) < count for page in found[:-1])
        for page, behind in pairwise(found):
            assert len(page["entry"]) == count or sum(sizes(page)) + sizes(behind)[0] > most - 1_000 * count


def test_no_more_bodies_are_fetched_than_at_once_where_the_first_ones_fill_a_page(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIMIT-18: thirty pages of a hundred tasks of 4 MB each took gigabytes, and most were answered 500."""
    monkeypatch.setattr(page_bytes, "MOST", 1)
    monkeypatch.setattr(page_bytes, "AT_ONCE", 3)
    monkeypatch.setattr(service.service.reader, "bodies", kept := bodies.BodyCache(1 << 20))
    assert len(service.client.get("/Task?_count=20").json()["entry"]) == 1
    assert len(kept._entries) <= 3


def test_each_reader_has_its_turn_and_no_more_than_the_most_is_fetched_at_once() -> None:
    """Also a reader of much beside others who read little and return repeatedly."""
    turns, lock, held, most = page_bytes.PageTurns(10, 60), threading.Lock(), 0, 0

    def fetch(bodies: int) -> None:
        nonlocal held, most
        with turns.hold(bodies):
            with lock:
                held += min(bodies, 10)
                most = max(most, held)
            with lock:
                held -= min(bodies, 10)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fetch, [1, 3, 10, 4, 50] * 200))
    assert (held, 1 < most <= 10) == (0, True)


def test_a_small_page_waits_neither_for_a_large_one_nor_for_a_history() -> None:
    lanes = page_bytes.PageLanes(60)
    with lanes.page(100).hold(page_bytes.AT_ONCE), lanes.history(of_one=False).hold(1), lanes.page(10).hold(10):
        pass


def test_a_fetch_that_fails_gives_its_room_back() -> None:
    turns = page_bytes.PageTurns(1, 60)
    with pytest.raises(KeyError), turns.hold(1):
        raise KeyError
    with turns.hold(1):
        pass


def test_a_search_that_waits_too_long_for_its_turn_is_refused_and_blocks_no_other() -> None:
    """LIMIT-18: as reads are that take too long; also behind another that waits."""
    turns = page_bytes.PageTurns(3, 0.2)
    with turns.hold(2), ThreadPoolExecutor(2) as pool:
        for waiting in [pool.submit(turns.hold(2).__enter__) for _ in range(2)]:
            with pytest.raises(FhirError) as raised:
                waiting.result(60)
            assert raised.value.diagnostics == "the request took too long or too much memory: ask for less"
        with turns.hold(1):
            pass
    with turns.hold(3):
        pass


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[Service]:
    """A service over a file, with more large tasks than its database has memory for."""
    text = "'||repeat(md5(n::text), 15000)||'"
    task = json.dumps({"resourceType": "Task", "for": {"reference": "Patient/p"}, "description": text})
    with closing(Service.open(Settings(store=str(tmp_path / "s.duckdb")))) as opened:
        with opened.store.engine.connect() as connection:
            connection.exec_driver_sql(
                "INSERT INTO task (seq, id, version, updated_at, client, patient, body)"
                f" SELECT n, 't' || n, 1, to_timestamp(n), 'c', 'p', '{task}' FROM range(200) r(n)"
            )
            connection.commit()
            connection.exec_driver_sql("CHECKPOINT")
            connection.exec_driver_sql("SET GLOBAL memory_limit = '120MB'")
        yield opened


def test_only_the_bodies_of_the_page_itself_are_loaded(crowded: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """LIMIT-18: a history was sorted with its bodies, and a stretch read with all of them."""
    monkeypatch.setattr(page_bytes, "AT_ONCE", 10)
    monkeypatch.setattr(search, "ON_THE_WAY", 0)
    monkeypatch.setattr(bodies, "CALM", -1)
    resource, asked = RESOURCES["Task"], [("_count", "100"), ("_offset", "50")]
    versions = history.run(crowded.store, resource, *history.parse(resource, asked, 10, 100))
    assert [one.id for one in versions.found] == [f"t{n}" for n in range(149, 149 - len(versions.found), -1)]
    assert len(versions.found) == page_bytes.MOST // len(versions.found[0].body)
    query = search.parse(resource, asked, crowded.site, 10, 100, additions=True, lenient=False)
    assert [one.id for one in search.run(crowded.reader, query).found] == [f"t{n}" for n in range(50, 67)]


def test_a_page_that_needs_too_much_memory_says_so(crowded: Service) -> None:
    resource = RESOURCES["Task"]
    query = search.parse(resource, [("_count", "100")], crowded.site, 10, 100, additions=True, lenient=False)
    with crowded.store.engine.connect() as connection:
        connection.exec_driver_sql("SET GLOBAL memory_limit = '40MB'")
    with pytest.raises(FhirError) as raised:
        search.run(crowded.reader, query)
    assert raised.value.outcome == UNAVAILABLE
    assert raised.value.diagnostics == "the request took too long or too much memory: ask for less"

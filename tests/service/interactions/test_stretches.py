"""Pages behind one another are read in stretches: they show what each page read alone shows, whatever is stored."""

import random

import pytest

from fhir_service.interactions import read, search
from fhir_service.store import bodies, page_bytes
from tests.conftest import Running
from tests.support.bodies import entry, send, task

ROWS, LONG, COUNT = 47, 10, 4
QUERIES = ["", "status=requested", "label=label%201", "patient=Patient/p1", "_sort=due-date"]


@pytest.fixture
def service(fresh_service: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    """A service with some tasks that reads short stretches from the first page on."""
    monkeypatch.setattr(search, "ON_THE_WAY", 0)
    monkeypatch.setattr(bodies, "STRETCH", LONG)
    monkeypatch.setattr(bodies, "CALM", -1)
    made = [entry(task(n, input=[{"type": {"text": "label"}, "valueString": f"label {n % 3}"}])) for n in range(ROWS)]
    assert {each["status"] for each in send(fresh_service.client, made)} == {"201"}
    return fresh_service


def page(service: Running, query: str, offset: int) -> object:
    return service.client.get(f"/Task?{query}&_count={COUNT}&_offset={offset}").json()


def alone(service: Running, query: str, offset: int) -> object:
    """The page, of a service that has nothing in memory and reads no stretch."""
    reader = service.service.reader
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reader, "bodies", bodies.BodyCache(0))
        return page(service, query, offset)


@pytest.mark.alike
@pytest.mark.parametrize("query", QUERIES)
def test_a_page_read_from_a_stretch_equals_the_page_read_alone(service: Running, query: str) -> None:
    """SEARCH-14: also at the end, behind it, and where a page lies in two stretches."""
    offsets = range(0, ROWS + 3, COUNT - 1)
    assert [page(service, query, at) for at in offsets] == [alone(service, query, at) for at in offsets]


def test_a_sweep_asks_the_database_once_a_stretch_and_drives_nothing_out_of_memory(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()
    reading = search._read_stretch

    def counted(reader: read.ResourceReader, query: search.Query) -> None:
        asked.append(query.offset)
        reading(reader, query)

    monkeypatch.setattr(search, "_read_stretch", counted)
    monkeypatch.setattr(search, "_read_alone", None)
    for at in range(0, ROWS, COUNT - 1):
        page(service, "", at)
    assert asked == [0, 10, 20, 30, 40]
    assert not service.service.reader.bodies._entries


def test_a_stretch_of_too_many_bytes_ends_early_and_the_rest_is_read_page_by_page(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_bytes, "AT_ONCE", 2)
    service.service.reader.bodies.of_a_stretch = 4_000
    offsets = range(0, ROWS, COUNT)
    assert [page(service, "", at) for at in offsets] == [alone(service, "", at) for at in offsets]
    kept = service.service.reader.bodies._stretches._kept
    assert [len(each.found) for part, each in kept.items() if part.offset < ROWS] == [2] * 5


def test_rows_with_many_others_between_are_read_by_their_ids(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_SPREAD", 0)
    assert page(service, "patient=Patient/p1", 3) == alone(service, "patient=Patient/p1", 3)
    assert not any(each.found for each in service.service.reader.bodies._stretches._kept.values())


@pytest.mark.parametrize("seed", range(3))
def test_pages_show_what_was_stored_before_they_were_asked_for(service: Running, seed: int) -> None:
    """COMMON-21: creates and updates, one by one and in batches."""
    dice = random.Random(seed)
    paths = [f"/Task/{each['resource']['id']}" for each in service.client.get("/Task?_count=30").json()["entry"]]
    for turn in range(20):
        changed = task(turn, description="changed", status=dice.choice(["requested", "completed"]))
        match dice.choice(["create", "update", "batch", "nothing"]):
            case "create":
                assert service.client.post("/Task", json=task(turn)).status_code == 201
            case "update":
                assert service.client.put(dice.choice(paths), json=changed).status_code == 200
            case "batch":
                change = {
                    "resource": changed,
                    "request": {"method": "PUT", "url": dice.choice(paths).removeprefix("/")},
                }
                assert [each["status"] for each in send(service.client, [change, entry(task(turn))])] == ["200", "201"]
        for query in dice.choices(QUERIES, k=3):
            at = dice.randrange(ROWS)
            assert page(service, query, at) == alone(service, query, at)
    assert service.service.reader.bodies.reads["search", True] > 10


def test_no_stretch_is_read_while_others_write(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would be read for one page, and void before the next."""
    monkeypatch.setattr(bodies, "CALM", 3600)
    monkeypatch.setattr(search, "_read_stretch", None)
    for at in range(0, ROWS, COUNT):
        page(service, "", at)

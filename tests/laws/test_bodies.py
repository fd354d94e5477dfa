"""Laws of the cache of bodies: a read never shows an older version than one acknowledged before it began."""

import json
import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from fhir_service.interface.registry import RESOURCES
from fhir_service.reference.loading import load
from fhir_service.store.bodies import OVERHEAD, BodyCache, Reference, SearchKey, StoredVersion, Stretch
from tests.conftest import Running
from tests.support import loopback
from tests.support.bodies import payment, send, task

AT = datetime(2026, 11, 1, tzinfo=UTC)
KEYS = [("Task", "a"), ("Task", "b")]
EVERYTHING = SearchKey("Task", (), 2, 0)


def found(version: int) -> StoredVersion:
    return StoredVersion("a", b"x" * 10, version, AT, ())


class History:
    """One writer and some readers, each a step at a time, over a store of version numbers: one for each resource."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.bodies = BodyCache(self.dice.choice([0, OVERHEAD + 10, 3_000, 10_000, 1_000_000]))
        self.states = [dict.fromkeys(KEYS, 1)]
        self.acknowledged = 0

    @property
    def stored(self) -> dict[Reference, int]:
        return self.states[-1]

    def write(self) -> Iterator[None]:
        """A create, an update or a transaction of unknown extent, and what may come between its steps."""
        some = self.dice.sample(KEYS, self.dice.randint(0, 2))
        made = [("Task", f"c{len(self.stored)}")] if not some else []
        yield
        with self.bodies.changing_all() if self.dice.random() < 0.3 else self.bodies.changing(some, ["Task"]):
            yield
            if self.dice.random() < 0.2:
                return  # rolled back
            self.states.append(self.stored | {key: self.stored.get(key, 0) + 1 for key in [*some, *made]})
            state = len(self.states) - 1
            yield
        yield
        self.acknowledged = state

    def read(self) -> Iterator[None]:
        """Read a resource: it is of a state that is not older than what was acknowledged before."""
        key = self.dice.choice(KEYS)
        least = self.states[self.acknowledged][key]
        shown = self.bodies.get(key)
        if shown is None:
            yield
            epoch = self.bodies.epoch()
            yield
            version = self.stored[key]
            yield
            shown = found(version)
            self.bodies.keep(key, shown, epoch)
        assert least <= shown.version <= self.stored[key]

    def search(self) -> Iterator[None]:
        """Search for everything: total and page are of one state, not older than what was acknowledged before."""
        least = self.acknowledged
        kept = self.bodies.page(EVERYTHING)
        if kept is None:
            yield
            epoch = self.bodies.epoch()
            yield
            state = self.stored
            yield
            kept = len(state), [found(version) for version in list(state.values())[:2]]
            if self.dice.random() < 0.5:
                yield
                every = [found(version) for version in state.values()]
                self.bodies.keep_stretch(EVERYTHING.stretch, Stretch(len(state), every, 1_000), epoch)
            for key, one in zip(state, kept[1], strict=False):
                self.bodies.keep(key, one, epoch)
            yield
            self.bodies.keep_page(EVERYTHING, len(state), [key[1] for key in list(state)[:2]], epoch)
        shown = kept[0], [one.version for one in kept[1]]
        assert shown in [(len(state), list(state.values())[:2]) for state in self.states[least:]]

    def run(self) -> None:
        writing, reading = self.write(), [self.read(), self.read(), self.search(), self.search()]
        for _ in range(100):
            at = self.dice.randrange(5)
            try:
                next(writing if at == 4 else reading[at])
            except StopIteration:
                if at == 4:
                    writing = self.write()
                else:
                    reading[at] = self.read() if at < 2 else self.search()


@pytest.mark.parametrize("histories", [150, pytest.param(10_000, marks=pytest.mark.long)])
def test_no_read_shows_an_older_version_than_was_acknowledged_before_it_began(histories: int) -> None:
    for seed in range(histories):
        History(seed).run()


def test_the_cache_keeps_to_its_bytes_and_removes_what_was_used_longest_ago() -> None:
    bodies = BodyCache(2 * (OVERHEAD + 10))
    for name in "abc":
        bodies.keep(("Task", name), found(1), bodies.epoch())
        bodies.get(("Task", "a"))
    assert [bool(bodies.get(("Task", name))) for name in "abc"] == [True, False, True]
    assert bodies.size == 2 * (OVERHEAD + 10)
    with bodies.changing([("Task", "a"), ("Task", "nobody")], ["Task"]):
        pass
    assert (bodies.size, bodies.get(("Task", "a"))) == (OVERHEAD + 10, None)


def test_a_page_that_lies_in_two_stretches_is_put_together_and_goes_with_either() -> None:
    bodies, every = BodyCache(64 << 20), [found(version) for version in range(2_005)]
    question = SearchKey("Task", (), 10, 995)
    for part in (question.stretch, question.stretch.following, question.stretch.following.following):
        some = every[part.offset : part.offset + part.count]
        bodies.keep_stretch(part, Stretch(len(every), some, 1_000), bodies.epoch())
        pages = {offset: bodies.page(SearchKey("Task", (), 10, offset)) for offset in (0, 990, 995, 1_995, 2_000)}
        held = part.offset + len(some)
        for offset, page in pages.items():
            shown = every[offset : offset + 10]
            assert page == ((len(every), shown) if offset + len(shown) <= held else None)
    assert bodies.page(SearchKey("Task", (), 10, 2_005)) == (2_005, [])
    with bodies.changing([("Task", "a")], []):
        assert bodies.page(question) is None


def test_cached_stretches_are_bounded_in_bytes_and_push_out_no_other_body() -> None:
    bodies = BodyCache(64 << 20)
    bodies.keep(("Task", "a"), found(1), bodies.epoch())
    part = SearchKey("Task", (), 10, 0).stretch
    for _ in range(100):
        bodies.keep_stretch(part, Stretch(100_000, [], bodies.of_a_stretch), bodies.epoch())
        part = part.following
    assert (bodies._stretches.size, len(bodies._stretches._kept)) == (8 << 20, 2)
    assert bodies.get(("Task", "a"))


def test_reads_beside_updates_loads_and_batches_show_what_was_acknowledged(fresh_service: Running) -> None:
    """COMMON-21: over a real store, from several threads."""
    service = fresh_service
    path = service.client.post("/Task", json=task(0)).headers["location"].removeprefix(service.url)
    done, wrong = threading.Event(), list[tuple[int, int]]()
    acknowledged = [0]

    def read() -> None:
        with loopback.Client(base_url=service.url, headers=service.headers, timeout=30) as client:
            while not done.is_set():
                least = acknowledged[0]
                shown = int(client.get(path).json()["description"].removeprefix("task "))
                if shown < least:
                    wrong.append((least, shown))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, 25):
        body = task(0, description=f"task {number}")
        if number % 3:
            assert service.client.put(path, json=body).status_code == 200
        else:
            change = {"resource": body, "request": {"method": "PUT", "url": path.removeprefix("/")}}
            assert [one["status"] for one in send(service.client, [change])] == ["200"]
        acknowledged[0] = number
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert service.service.metrics.text().count(b"fhir_cache_reads_total{") == 4


def test_a_loaded_report_is_read_with_its_new_content_at_once(fresh_service: Running, tmp_path: Path) -> None:
    service, file = fresh_service.service, tmp_path / "more.ndjson"
    for family in ("Before", "After"):
        file.write_text(json.dumps({"resourceType": "Patient", "id": "new", "name": [{"family": family}]}) + "\n")
        load([file], service.writer, service.store, service.clock, service.new_id, service.site)
        report = {
            "resourceType": "DiagnosticReport", "id": "r-new", "status": "final", "code": {"text": family},
            "subject": {"reference": "Patient/new"}, "issued": "2026-02-01T10:00:00Z",
        }  # fmt: skip
        file.write_text(json.dumps(report) + "\n")
        load([file], service.writer, service.store, service.clock, service.new_id, service.site)
        for _ in range(2):
            shown = fresh_service.client.get("/DiagnosticReport/r-new").json()
            assert shown["code"]["text"] == family
    assert service.reader.at_hand(RESOURCES["DiagnosticReport"], "r-new")


QUERIES = [
    "/Task", "/Task?_count=2", "/Task?_count=2&_offset=2", "/Task?status=requested", "/Task?patient=Patient/p1",
    "/Task?label=label%201", "/Task?_sort=-due-date", "/Task?identifier=urn:test%7C2", "/Task?description=changed",
    "/fhir/Task?_lastUpdated=ge2000-01-01", "/fhir/Task?_sort=_lastUpdated&_count=3", "/PaymentNotice",
]  # fmt: skip


def without_memory(service: Running, path: str) -> httpx.Response:
    """Return the service's answer while its cache is off."""
    bodies, kept = service.service.reader.bodies, service.service.reader.bodies._entries.copy()
    bodies._entries.clear()
    answer = service.client.get(path)
    bodies._entries.update(kept)
    return answer


@pytest.mark.parametrize("seed", range(3))
def test_a_search_answered_from_memory_is_answered_as_the_store_would(fresh_service: Running, seed: int) -> None:
    """COMMON-21: whatever was written in between, by whichever kind of request."""
    dice, service, paths = random.Random(seed), fresh_service, list[str]()
    for turn in range(25):
        kind = dice.choice(["create", "update", "batch", "transaction", "payment", "nothing"])
        change = {"resource": task(turn), "request": {"method": "POST", "url": "Task"}}
        if kind == "create" or (kind == "update" and not paths):
            made = service.client.post("/Task", json=task(turn % 4))
            paths.append(made.headers["location"].removeprefix(service.url))
        elif kind == "update":
            changed = task(turn, description="changed", status=dice.choice(["requested", "completed"]))
            assert service.client.put(dice.choice(paths), json=changed).status_code == 200
        elif kind in ("batch", "transaction"):
            bundle = {"resourceType": "Bundle", "type": kind, "entry": [change]}
            assert service.client.post("/", json=bundle).status_code == 200
        elif kind == "payment":
            assert service.client.post("/PaymentNotice", json=payment(100)).status_code == 201
        for path in dice.choices(QUERIES, k=4):
            assert service.client.get(path).json() == without_memory(service, path).json()
    assert service.service.reader.bodies.reads["search", True] > 10

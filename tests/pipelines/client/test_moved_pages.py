"""Resources that come and go while the pages of a search are read: those that were there all along are found, or it is
said that some may be missing.

LEDGER-04, CLI-CMD-17, REPORT-06: a resource in none of the pages would count as absent, and be sent again.
"""

import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipelines.client.client import FhirClient
from pipelines.client.pace import RetryPauses
from pipelines.client.tokens import Credentials
from pipelines.client.whole import LARGE, IncompleteSearch, PageTurning, whole_search
from pipelines.reports.pages import SweepIncomplete
from pipelines.reports.sweep import sweep
from pipelines.session import connections

SEEDS = 150
AT_ONCE = (1, 4)
"""How many pages are read at once."""


class Changing:
    """A target of reports, in an order of its own, that are changed before each page but the first.

    size: resources on a page. every: those that were there at some time.
    """

    def __init__(self, reports: int, size: int) -> None:
        self.there, self.size, self.made = [f"r{n}" for n in range(reports)], size, reports
        self.lasting, self.asked, self.lock = set(self.there), 0, threading.Lock()

    def changes(self) -> None:
        """Change what is there."""

    def remove(self, at: int) -> None:
        self.lasting.discard(self.there.pop(at))

    def add(self, at: int) -> None:
        self.there.insert(at, f"r{self.made}")
        self.made += 1

    def answer(self, request: httpx.Request) -> httpx.Response:
        with self.lock:
            if self.asked:
                self.changes()
            self.asked += 1
            offset = int(request.url.params.get("_offset", 0))
            entries = [
                {"resource": {"resourceType": "DiagnosticReport", "id": name}}
                for name in self.there[offset : offset + self.size]
            ]
            more = offset + self.size < len(self.there)
            following = {"relation": "next", "url": f"/DiagnosticReport?_offset={offset + self.size}"}
            return httpx.Response(
                200,
                json={
                    "resourceType": "Bundle",
                    "total": len(self.there),
                    "link": [following] if more else [],
                    "entry": entries,
                },
            )

    def client(self) -> FhirClient:
        patience = RetryPauses(1)
        transport = httpx.MockTransport(self.answer)
        return FhirClient("http://127.0.0.1:1", Credentials(token="t"), patience=patience, transport=transport)


class AtRandom(Changing):
    """Some removed and some added, anywhere, or nothing."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        super().__init__(self.dice.randint(5, 40), self.dice.randint(2, 7))

    def changes(self) -> None:
        for _ in range(self.dice.choice((0, 0, 1, 2))):
            if self.there:
                self.remove(self.dice.randrange(len(self.there)))
        for _ in range(self.dice.choice((0, 0, 1, 2))):
            self.add(self.dice.choice((0, self.dice.randint(0, len(self.there)), len(self.there))))


class OneForAnother(Changing):
    """Before a page the first resource goes away and one comes in at the end, some times: the count stays."""

    def __init__(self, times: int) -> None:
        super().__init__(7, 3)
        self.times = times

    def changes(self) -> None:
        if self.times and self.asked:
            self.times -= 1
            self.remove(0)
            self.add(len(self.there))


def read(target: Changing, at_once: int) -> set[str]:
    """The ids that a whole read finds."""
    return {body["id"] for body in whole_search(pages_of(target, at_once), "DiagnosticReport")}


def pages_of(target: Changing, at_once: int) -> Iterator[dict[str, Any]]:
    return target.client().pages("DiagnosticReport", wishes=LARGE if at_once else {}, at_once=at_once)


@pytest.mark.alike
@pytest.mark.parametrize("at_once", AT_ONCE)
def test_a_read_that_misses_a_resource_that_was_there_all_along_is_not_whole(at_once: int) -> None:
    complete = 0
    for seed in range(SEEDS):
        target = AtRandom(seed)
        try:
            found = read(target, at_once)
        except IncompleteSearch:
            continue
        complete += 1
        assert target.lasting <= found, seed
    assert complete > SEEDS / 10


@pytest.mark.parametrize("at_once", AT_ONCE)
def test_pages_that_moved_by_a_deletion_and_a_creation_are_noticed(at_once: int) -> None:
    with pytest.raises(IncompleteSearch, match="its pages moved while they were read"):
        read(OneForAnother(1), at_once)


@pytest.mark.parametrize("at_once", AT_ONCE)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10])
def test_each_resource_is_read_once_if_no_page_moves(size: int, at_once: int) -> None:
    found = [entry["resource"]["id"] for page in pages_of(Changing(7, size), at_once) for entry in page["entry"]]
    assert found == [f"r{n}" for n in range(7)]


@pytest.mark.parametrize("at_once", AT_ONCE)
def test_pages_of_one_resource_are_read_as_the_links_say(at_once: int) -> None:
    assert read(Changing(5, 1), at_once) == {f"r{n}" for n in range(5)}


@pytest.mark.parametrize("allowed", [1, 2])
def test_no_more_pages_are_asked_for_at_once_than_the_pace_allows(allowed: int) -> None:
    """TARGET-04: some targets break if they are asked for several things at once."""
    under_way, most = 0, 0

    class Slow(Changing):
        def answer(self, request: httpx.Request) -> httpx.Response:
            nonlocal under_way, most
            with self.lock:
                under_way += 1
                most = max(most, under_way)
            time.sleep(0.02)
            with self.lock:
                under_way -= 1
            return super().answer(request)

    target = Slow(40, 5)
    transport = httpx.MockTransport(target.answer)
    client = FhirClient("http://127.0.0.1:1", Credentials(token="t"), transport=transport, pages_at_once=allowed)
    assert len({body["id"] for page in client.pages("DiagnosticReport", at_once=4) for body in bodies_of(page)}) == 40
    assert most <= allowed


def bodies_of(page: dict[str, Any]) -> list[dict[str, Any]]:
    return [each["resource"] for each in page["entry"]]


def test_a_sweep_whose_pages_moved_is_repeated(tmp_path: Path) -> None:
    assert sweep(OneForAnother(1).client(), tmp_path, "t").total == 7
    with pytest.raises(SweepIncomplete, match="reports went away while they were read"):
        sweep(OneForAnother(1000).client(), tmp_path, "t")


def test_pages_are_followed_by_their_links_unless_the_offset_counts_resources() -> None:
    """Pages by number, or behind a token."""
    entries = [{"resource": {"resourceType": "Task", "id": name}} for name in "abc"]
    for link in ("/Task?_offset=2", "/Task?page=3", "/Task?_cursor=abc"):
        turning = PageTurning("_offset", "Task")
        page = {"entry": entries, "link": [{"relation": "next", "url": link}]}
        assert turning.turn(page) == link
        assert turning.turn({"entry": []}) is None


class Odd(OneForAnother):
    """Pages of a target with habits of its own. warns: each has an OperationOutcome. short: the first one lacks an
    entry. counts_page: the total is the number of entries. signed: no other link than those given is taken.
    includes: each has two results beside its reports, and does not say which are which.
    """

    def __init__(self, habit: str, times: int = 0) -> None:
        super().__init__(times)
        self.habit, self.given = habit, {""}

    def answer(self, request: httpx.Request) -> httpx.Response:
        if self.habit == "signed" and request.url.params.get("_offset", "") not in self.given:
            return httpx.Response(400, json={"resourceType": "OperationOutcome"})
        page = super().answer(request).json()
        self.given |= {str(httpx.URL(link["url"]).params["_offset"]) for link in page["link"]}
        if self.habit == "warns":
            page["entry"].append({"resource": {"resourceType": "OperationOutcome"}, "search": {"mode": "outcome"}})
        if self.habit == "includes":
            page["entry"] += [{"resource": {"resourceType": "Observation", "id": name}} for name in "ab"]
        if self.habit == "short" and self.asked == 1:
            del page["total"], page["entry"][-1]
        elif self.habit == "short":
            del page["total"]
        if self.habit == "counts_page":
            page["total"] = len(page["entry"])
        return httpx.Response(200, json=page)


@pytest.mark.parametrize("at_once", AT_ONCE)
@pytest.mark.parametrize("habit", ["warns", "short", "counts_page", "signed", "includes"])
def test_a_target_with_habits_of_its_own_is_read_whole_where_nothing_moves(habit: str, at_once: int) -> None:
    missing = {"r2"} if habit == "short" else set[str]()
    assert read(Odd(habit), at_once) == {f"r{n}" for n in range(7)} - missing


@pytest.mark.parametrize("at_once", AT_ONCE)
@pytest.mark.parametrize("habit", ["warns", "counts_page", "includes"])
def test_entries_of_other_kinds_on_a_page_do_not_hide_that_pages_moved(habit: str, at_once: int) -> None:
    with pytest.raises(IncompleteSearch, match="its pages moved while they were read"):
        read(Odd(habit, 1), at_once)


def test_resources_created_while_pages_are_read_in_parallel_do_not_hide_others() -> None:
    class Growing(Changing):
        def changes(self) -> None:
            self.add(len(self.there))

        def answer(self, request: httpx.Request) -> httpx.Response:
            time.sleep(0.01 if int(request.url.params.get("_offset", 0)) // 2 % 2 else 0)
            return super().answer(request)

    target = Growing(40, 3)
    assert target.lasting <= read(target, 4)


def test_a_sensor_tries_a_silent_target_once_and_briefly(tmp_path: Path, monkeypatch: Any) -> None:
    """A longer wait would hold a thread of the code server."""
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(0.5)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert connections.target_now(tmp_path, {"FHIR_BASE_URL": url}) is None
        silent.accept()[0].close()
        with pytest.raises(TimeoutError):
            silent.accept()

"""The ids that the service issues: UUIDs in the order in which they are made."""

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from fhir_service import ids
from fhir_service.ids import OrderedIds


def test_an_id_is_a_uuid_that_begins_with_its_time() -> None:
    """COMMON-22: of version 7, in lower case with dashes."""
    before = time.time_ns() // 1_000_000
    made = OrderedIds()()
    found = uuid.UUID(made)
    assert (str(found), found.version, found.variant) == (made, 7, uuid.RFC_4122)
    assert before <= found.int >> 80 <= time.time_ns() // 1_000_000


def test_ids_rise_within_each_thread_and_none_is_given_twice() -> None:
    new_id = OrderedIds(at_once=3)
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: [new_id() for _ in range(500)], range(4)))
    assert all(each == sorted(each) for each in made)
    assert len({one for each in made for one in each}) == 2000


def test_ids_rise_even_if_the_clock_stops_or_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    new_id, at = OrderedIds(), iter((9, 9, 5, 10**9))
    monkeypatch.setattr(ids, "_ticks", lambda: next(at))
    made = [new_id() for _ in range(4)]
    assert made == sorted(made)
    assert len({one[:18] for one in made}) == 4


def test_two_makers_give_different_ids_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_ticks", lambda: 7)
    one, other = OrderedIds()(), OrderedIds()()
    assert one[:18] == other[:18]
    assert one != other

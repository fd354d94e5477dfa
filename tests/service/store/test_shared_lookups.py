"""Look-ups that share a statement: each sees what was stored before it was asked for."""

import asyncio
import threading
from collections.abc import Collection, Mapping

import pytest

from fhir_service.store.shared_lookups import SharedLookups


class Slow:
    """A store of numbers whose look-ups end when the test says so."""

    def __init__(self) -> None:
        self.stored = {"a": 1}
        self.asked: list[set[str]] = []
        self.begun = threading.Semaphore(0)
        self.let_go = threading.Semaphore(0)

    def find(self, keys: Collection[str]) -> Mapping[str, int]:
        self.asked.append(set(keys))
        found = dict(self.stored)
        self.begun.release()
        self.let_go.acquire(timeout=10)
        return found


def test_look_ups_that_come_during_another_share_the_next_one_and_see_newer_values() -> None:
    slow = Slow()

    async def run() -> list[int | None]:
        together = SharedLookups(slow.find)
        first = asyncio.create_task(together.look_up("a"))
        await asyncio.to_thread(slow.begun.acquire, timeout=10)
        slow.stored = {"a": 2, "b": 3}
        later = [asyncio.create_task(together.look_up(key)) for key in ("a", "b", "a", "none")]
        await asyncio.sleep(0)
        slow.let_go.release(2)
        return await asyncio.gather(first, *later)

    assert asyncio.run(run()) == [1, 2, 3, 2, None]
    assert slow.asked == [{"a"}, {"a", "b", "none"}]


def test_a_cancelled_look_up_does_not_cancel_others_that_share_it() -> None:
    slow = Slow()

    async def run() -> int | None:
        together = SharedLookups(slow.find)
        gone, stays = (asyncio.create_task(together.look_up("a")) for _ in range(2))
        await asyncio.to_thread(slow.begun.acquire, timeout=10)
        gone.cancel()
        slow.let_go.release()
        return await stays

    assert asyncio.run(run()) == 1


def test_a_look_up_that_fails_fails_for_those_who_share_it_and_not_for_later_ones() -> None:
    failures = [OSError("gone")]

    def find(keys: Collection[str]) -> Mapping[str, int]:
        if failures:
            raise failures.pop()
        return dict.fromkeys(keys, 1)

    async def run() -> None:
        together = SharedLookups(find)
        both = await asyncio.gather(*(together.look_up(key) for key in "ab"), return_exceptions=True)
        assert [type(one) for one in both] == [OSError, OSError]
        assert await together.look_up("a") == 1

    asyncio.run(run())


@pytest.mark.parametrize("keys", [1, 200])
def test_many_at_once_take_few_look_ups(keys: int) -> None:
    asked: list[int] = []

    def find(wanted: Collection[int]) -> Mapping[int, int]:
        asked.append(len(wanted))
        return {each: 2 * each for each in wanted}

    async def run() -> list[int | None]:
        together = SharedLookups(find)
        return await asyncio.gather(*(together.look_up(number % keys) for number in range(200)))

    assert asyncio.run(run()) == [2 * (number % keys) for number in range(200)]
    assert len(asked) <= 2

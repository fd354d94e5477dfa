"""Look-ups that share a statement: what is asked for while one is under way is looked up by the next one.

So each look-up sees what was stored before it was asked for, and many take few statements.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Together(Generic[K, V]):
    """One kind of look-up, of one event loop. find: given keys, returns the values of those that there are."""

    def __init__(self, find: Callable[[Collection[K]], Mapping[K, V]]) -> None:
        self._find = find
        self._waiting: dict[K, asyncio.Future[V | None]] = {}
        self._working: asyncio.Task[None] | None = None

    async def look_up(self, key: K) -> V | None:
        """Return the value of a key, None where there is none. Raises what the look-up raised."""
        if key not in self._waiting:
            self._waiting[key] = asyncio.get_running_loop().create_future()
        waiting = self._waiting[key]
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        # A client that goes away does not end a look-up that others share.
        return await asyncio.shield(waiting)

    async def _work(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, {}
                await self._answer(asked)
        finally:
            self._working = None

    async def _answer(self, asked: dict[K, asyncio.Future[V | None]]) -> None:
        try:
            # Starlette's threads take twice as long to be reached.
            found = await asyncio.get_running_loop().run_in_executor(None, self._find, asked.keys())
        except Exception as error:  # noqa: BLE001 - it is the askers'
            for future in asked.values():
                future.set_exception(error)
                future.exception()  # nobody may be left who waits
            return
        for key, future in asked.items():
            future.set_result(found.get(key))

"""Look-ups that share statements. Keys that are asked for during one statement are looked up by the next.

A look-up therefore sees all that was stored before it was asked for, and many look-ups need few statements.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class SharedLookups(Generic[K, V]):
    """One kind of look-up, in one event loop. find: return the values of those keys that exist."""

    def __init__(self, find: Callable[[Collection[K]], Mapping[K, V]]) -> None:
        self._find = find
        self._waiting: dict[K, asyncio.Future[V | None]] = {}
        self._working: asyncio.Task[None] | None = None

    async def look_up(self, key: K) -> V | None:
        """Return the value of a key; None if there is none. Raises the error of `find`."""
        if key not in self._waiting:
            self._waiting[key] = asyncio.get_running_loop().create_future()
        waiting = self._waiting[key]
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        # A cancelled request must not end a look-up that others share.
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
            # Reaching a thread of Starlette's pool takes twice as long.
            found = await asyncio.get_running_loop().run_in_executor(None, self._find, asked.keys())
        except Exception as error:  # noqa: BLE001 - it is the askers'
            for future in asked.values():
                future.set_exception(error)
                future.exception()  # mark as seen: all requests may be cancelled
            return
        for key, future in asked.items():
            future.set_result(found.get(key))

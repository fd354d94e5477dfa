"""A cache of callers by their tokens, so that a request need not ask the store."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime

from fhir_service.interface.scopes import Caller


@dataclass(frozen=True, slots=True)
class KnownCaller:
    """The caller of a token, and the time when the token expires."""

    caller: Caller
    expires_at: datetime


class KnownTokens:
    """A bounded cache of callers by the hash of their token. The least recently used go first.

    `forget` also voids look-ups that are under way: they cannot bring back a revoked token.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: OrderedDict[str, KnownCaller] = OrderedDict()
        self._lock = threading.Lock()
        self.epoch = 0

    def __len__(self) -> int:
        return len(self._known)

    def get(self, digest: str) -> KnownCaller | None:
        with self._lock:
            known = self._known.get(digest)
            if known:
                self._known.move_to_end(digest)
            return known

    def put(self, digest: str, known: KnownCaller, epoch: int) -> None:
        with self._lock:
            if epoch != self.epoch:
                return
            self._known[digest] = known
            if len(self._known) > self._size:
                self._known.popitem(last=False)

    def drop(self, digest: str) -> None:
        with self._lock:
            self._known.pop(digest, None)

    def forget(self, client: str) -> None:
        with self._lock:
            self.epoch += 1
            kept = {digest: known for digest, known in self._known.items() if known.caller.client != client}
            self._known = OrderedDict(kept)

"""The callers of tokens met lately, so that a request need not ask the store for its own."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime

from fhir_service.interface.scopes import Caller


@dataclass(frozen=True, slots=True)
class Known:
    """The caller of a token, and when it runs out."""

    caller: Caller
    expires_at: datetime


class KnownTokens:
    """The callers of tokens met lately, by the token's hash; bounded, the least used go first.

    `forget` also voids what was read from the store before it: a look-up under way cannot bring a revoked token back.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._lock = threading.Lock()
        self.epoch = 0

    def __len__(self) -> int:
        return len(self._known)

    def get(self, digest: str) -> Known | None:
        with self._lock:
            known = self._known.get(digest)
            if known:
                self._known.move_to_end(digest)
            return known

    def put(self, digest: str, known: Known, epoch: int) -> None:
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

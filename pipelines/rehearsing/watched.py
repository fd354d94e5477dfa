"""A ledger that also lists the facts about rows while a file is imported."""

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from sqlalchemy import Engine

from pipelines.home.spill import Writer
from pipelines.ledger.in_step import InStep
from pipelines.ledger.lease import Clock
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import Outcome, Reject, Repeat, SoFar

EVENTS = pa.schema(
    {
        "n": pa.int64(),
        "line": pa.int64(),
        "key": pa.string(),
        "state": pa.string(),
        "http_status": pa.int32(),
        "reasons": pa.string(),
    }
)
"""The facts that a rehearsal's ledger got on a file's rows, in order: by line where that was given, else by key."""


class Watched(Ledger):
    """A ledger that also lists, in order, the facts about rows while a file is imported."""

    def __init__(self, engine: Engine, clock: Clock, in_step: InStep | None = None) -> None:
        super().__init__(engine, clock, in_step)
        self._events: Writer | None = None
        self._turn = threading.Lock()

    @contextmanager
    def watching(self, path: Path) -> Iterator[None]:
        with Writer(path, EVENTS) as self._events:
            yield
        self._events = None

    def _tell(self, line: int | None, key: str | None, state: str, status: int | None = None, why: str = "") -> None:
        with self._turn:
            if self._events:
                self._events.add(self._events.count, line, key, state, status, why or None)

    def settle(
        self, target: str, source: str, resource_type: str, outcomes: Iterable[Outcome], so_far: SoFar | None = None
    ) -> None:
        told = list(outcomes)
        super().settle(target, source, resource_type, told, so_far)
        for each in told:
            self._tell(None, each.key, each.state, each.http_status)

    def note_repeats(
        self,
        target: str,
        source: str,
        resource_type: str,
        batch_id: str,
        repeats: Iterable[Repeat],
        at: str | None = None,
    ) -> None:
        told = list(repeats)
        super().note_repeats(target, source, resource_type, batch_id, told, at)
        for each in told:
            self._tell(each.line, each.key, each.state)

    def reject(
        self, target: str, source: str, resource_type: str, batch_id: str, rejects: Iterable[Reject]
    ) -> list[str]:
        told = list(rejects)
        for each in told:
            state = "refused" if each.stage == "load" else "rejected"
            self._tell(each.line, each.source_key, state, None, json.dumps([list(reason) for reason in each.reasons]))
        return super().reject(target, source, resource_type, batch_id, told)

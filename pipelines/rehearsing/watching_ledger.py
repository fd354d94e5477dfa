"""A ledger that also lists the facts about rows while a file is imported."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from sqlalchemy import Engine

from pipelines.home.spill import ParquetWriter
from pipelines.ledger.journal_sync import InStep
from pipelines.ledger.lease import Clock
from pipelines.ledger.ledger import Ledger

R = TypeVar("R")
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
"""The facts that a rehearsal's ledger received about a file's rows, in order: by line if it was given, else by key."""


class WatchedLedger(Ledger):
    """A ledger that also lists, in order, the facts about rows while a file is imported."""

    def __init__(self, engine: Engine, clock: Clock, in_step: InStep | None = None) -> None:
        super().__init__(engine, clock, in_step)
        self._events: ParquetWriter | None = None
        self._turn = threading.Lock()

    @contextmanager
    def watching(self, path: Path) -> Iterator[None]:
        with ParquetWriter(path, EVENTS) as self._events:
            yield
        self._events = None

    def tell(self, name: str, arguments: list[Any], act: Callable[[], R]) -> R:
        done = super().tell(name, arguments, act)
        with self._turn:
            if self._events:
                for event in _events(name, arguments):
                    self._events.add(self._events.count, *event)
        return done


def _events(name: str, arguments: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield line, key, state, status and reasons of each row that a fact is about."""
    match name, arguments:
        case "settle", [_, _, _, outcomes, *_]:
            yield from ((None, each.key, each.state, each.http_status, None) for each in outcomes)
        case "note_repeats", [_, _, _, _, repeats, *_]:
            yield from ((each.line, each.key, each.state, None, None) for each in repeats)
        case "note_unchanged", [_, _, _, _, lines, keys]:
            yield from ((line, key, "unchanged", None, None) for line, key in zip(lines, keys, strict=True))
        case "reject", [_, _, _, _, rejects]:
            for each in rejects:
                state = "refused" if each.stage == "load" else "rejected"
                reasons = json.dumps([list(reason) for reason in each.reasons])
                yield each.line, each.source_key, state, None, reasons

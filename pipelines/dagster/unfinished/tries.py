"""The tries of unfinished batches: number and next moment of each, which the cursor of the sensor keeps."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pipelines.dagster.cursors import understood
from pipelines.dagster.unfinished.left import Left

FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=5), timedelta(hours=12)
TIMES_LONGER = 3
TRIES = 8


@dataclass(frozen=True)
class Try:
    """The tries of a batch since it last made progress, and when the next one is due."""

    progress: str
    tries: int
    due: datetime


def pause(tries: int, first: timedelta = FIRST_PAUSE) -> timedelta:
    """Return the pause before a try; the first try has number 0. first: the shortest pause."""
    return max(first, min(LONGEST_PAUSE, FIRST_PAUSE * int(TIMES_LONGER ** min(tries, TRIES))))


def due(
    left: Sequence[Left], before: Mapping[str, Try], now: datetime, first: timedelta
) -> tuple[list[Left], dict[str, Try]]:
    """Return the batches to run now, and the tries to remember. first: the shortest pause."""
    asked, after = [], {}
    for each in left:
        known = before.get(each.batch_id)
        if known is None or known.progress != each.progress:
            known = Try(each.progress, 0, each.since + pause(0, first))
        # Of a time that was ahead, no try is due for longer than its pause.
        known = replace(known, due=min(known.due, now + pause(known.tries, first)))
        if known.tries < TRIES and known.due <= now:
            asked.append(each)
            known = Try(each.progress, known.tries + 1, now + pause(known.tries + 1, first))
        after[each.batch_id] = known
    return asked, after


def to_cursor(tries: Mapping[str, Try]) -> str:
    return json.dumps({name: [each.progress, each.tries, each.due.isoformat()] for name, each in tries.items()})


def from_cursor(cursor: str | None) -> dict[str, Try]:
    return understood(cursor, _tries, {})


def _tries(said: Any) -> dict[str, Try]:
    return {
        name: Try(str(progress), int(tries), datetime.fromisoformat(at).astimezone(UTC))
        for name, (progress, tries, at) in said.items()
    }

"""What came of a run's rows, on record in its folder: `outcomes.ndjson`, for the day on which the ledger is lost.

Keys, hashes, line numbers, states and ids only, as in the ledger. Each line of the file is a JSON array with an
outcome, or the moment (UTC text) of those that follow.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from pipelines.ledger.lease import is_moment
from pipelines.loading.sending import Result, Row

NAME = "outcomes.ndjson"
MADE = ("created", "adopted", "updated", "superseded", "undone")
CHANGE_REFUSED = "change_refused"
"""A row that was to change a record, and left it as it was."""
STATES = (*MADE, "refused", "in_doubt", CHANGE_REFUSED)
CHARACTERS_OF_A_HASH = 16
MOST_LINES, MOST_GENERATIONS, MOST_STATUS = 1 << 40, 1_000, 1_000


class Told(NamedTuple):
    """One outcome, as its line in the file has it, and when it was put on record.

    content: the beginning of the row's content hash. status: of HTTP, where there was one. asked_at: when a row in
    doubt was first sent, as UTC text; None of any other.
    """

    key: str
    content: str
    line: int
    generation: int
    state: str
    resource_id: str | None
    status: int | None
    asked_at: str | None
    at: str


class OnRecord:
    """The outcomes of one run, put on record as they come. now: the moment, as UTC text."""

    def __init__(self, folder: Path, now: Callable[[], str]) -> None:
        self._path, self._now = folder / NAME, now

    def note(self, results: Iterable[tuple[Row, Result]]) -> None:
        """Adds what came of rows. A change in doubt is left out: its resource tells."""
        told = [_told(row, result) for row, result in results if _tells(row, result)]
        if not told:
            return
        # Each line begins with its end: what a full disk cut off before is then a line of its own, and no JSON.
        lines = b"".join(b"\n" + orjson.dumps(line) for line in (self._now(), *told))
        with self._path.open("ab", buffering=0) as file:
            while lines:
                lines = lines[file.write(lines) :]


def outcomes_in(folder: Path) -> Iterator[Told]:
    """What a run has left on record, the oldest first. A line that is no outcome, or was cut off, is passed over."""
    path, at = folder / NAME, ""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                said = orjson.loads(line)
            except ValueError:
                continue
            if is_moment(said):
                at = said
            elif _is_outcome(said):
                yield Told._make((*said, at))


def short(content_hash: str) -> str:
    """What is put on record of a content hash."""
    return content_hash[:CHARACTERS_OF_A_HASH]


def _is_outcome(said: Any) -> bool:
    kinds = (str, str, int, int, str, str | None, int | None, str | None)
    if not isinstance(said, list) or len(said) != len(kinds) or not all(map(isinstance, said, kinds)):
        return False
    _, content, line, generation, state, _, status, asked_at = said
    if not (status is None or 0 < status < MOST_STATUS) or not (asked_at is None or is_moment(asked_at)):
        return False
    return bool(content) and 0 < line < MOST_LINES and 0 < generation < MOST_GENERATIONS and state in STATES


def _tells(row: Row, result: Result) -> bool:
    return result.state in (*MADE, "refused") or (result.state == "in_doubt" and not row.change)


def _told(row: Row, result: Result) -> tuple[Any, ...]:
    asked_at = row.first_attempt_at if result.state == "in_doubt" else None
    state = CHANGE_REFUSED if row.change and result.state == "refused" else result.state
    about = (row.key, short(row.content_hash), row.line, row.generation)
    return *about, state, result.resource_id, result.status, asked_at

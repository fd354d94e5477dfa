"""The time at which each part of the tables' inputs was last read from a target, or could no longer be read.

Kept as `readings.json` beside the sweep. A part that cannot be read does not stop a publication: its tables say so.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import orjson

from pipelines.home.files import locked, write_whole
from pipelines.reports.publication import said_at
from pipelines.reports.sweep import folder_of
from pipelines.reports.tables import ReportTable

FILE = "readings.json"
RESULTS = "results of reports"
PARTS: dict[str, frozenset[str]] = {
    RESULTS: frozenset({"swept_result", "read_results"}),
    "responses": frozenset({"swept_response", "read_responses"}),
    "questionnaires or names": frozenset(
        {"known_questionnaire", "known_question", "known_option", "known_name", "read_questionnaires"}
    ),
    "charges": frozenset({"charge"}),
    "patients": frozenset({"told_patient"}),
    "payments": frozenset({"read_payments"}),
    "tasks": frozenset({"read_tasks"}),
}
"""The relations that are made of each part. The part's name is used in sentences."""


class Reading(Enum):
    """The state of a reading: done; not due yet, or not wanted; or not shown by the target."""

    READ = "read"
    NOT_DUE = "not due"
    NOT_SHOWN = "not shown"


class UnreadPart(NamedTuple):
    """A part that could not be read: since when, and when it was last read, if that is known."""

    since: datetime
    read_at: datetime | None


def note_reading(home: Path, target: str, part: str, at: datetime, is_read: bool) -> None:
    """Note that a part was read, or that it could not be read."""
    folder = folder_of(home, target)
    with locked(folder / ".readings.lock"):
        said = _noted(folder)
        before = said.get(part, {})
        failed_at = None if is_read else before.get("failed_at") or at.isoformat()
        said[part] = {"read_at": at.isoformat() if is_read else before.get("read_at"), "failed_at": failed_at}
        write_whole(folder / FILE, orjson.dumps(said))


def note_not_shown(home: Path, target: str, part: str, at: datetime) -> None:
    """Note that the target does not show a part. A part that was never noted before gets no note."""
    if part in _noted(folder_of(home, target)):
        note_reading(home, target, part, at, is_read=False)


def read_at(folder: Path, part: str) -> datetime | None:
    """Return when a part was last read; None if that is unknown. folder: see `unread`."""
    at = _noted(folder).get(part, {}).get("read_at")
    return datetime.fromisoformat(at) if at else None


def unread(folder: Path) -> dict[str, UnreadPart]:
    """Return the parts that could not be read at the last try. folder: the target's sweep folder."""
    times = {
        part: {name: datetime.fromisoformat(at) for name, at in said.items() if at}
        for part, said in _noted(folder).items()
    }
    return {part: UnreadPart(of["failed_at"], of.get("read_at")) for part, of in times.items() if "failed_at" in of}


def _noted(folder: Path) -> dict[str, dict[str, str | None]]:
    try:
        said: dict[str, dict[str, str | None]] = json.loads((folder / FILE).read_text())
    except (FileNotFoundError, ValueError):  # what is damaged is noted anew
        return {}
    return said


def unread_of(tables: Sequence[ReportTable], parts: dict[str, UnreadPart]) -> dict[str, list[str]]:
    """Return for each table a sentence on each of these parts that it is made of, directly or through other tables.

    tables: each after the tables that it reads.
    """
    made: dict[str, set[str]] = {}
    for table in tables:
        named = {part for part in parts if not PARTS[part].isdisjoint(table.inputs)}
        made[table.name] = named.union(*(made.get(name, ()) for name in table.inputs))
    return {name: [_sentence(part, parts[part]) for part in PARTS if part in of] for name, of in made.items()}


def _sentence(part: str, of: UnreadPart) -> str:
    last = f"on {said_at(of.read_at)}" if of.read_at else "before that, if ever"
    return (
        f"{part[0].upper()}{part[1:]} could not be read from the target since {said_at(of.since)}: "
        f"rows made of them are as last read, {last}, and new ones are missing."
    )

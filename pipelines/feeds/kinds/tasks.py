"""Tasks: a row becomes a Task; its comments become notes, its labels input entries."""

from collections.abc import Sequence
from typing import Any

from pipelines.feeds.terms.columns import (
    BuilderContext,
    BuiltRecord,
    Column,
    RecordFault,
    RecordKind,
    ValueFault,
    Values,
    id_of,
    refer,
)
from pipelines.feeds.terms.times import micros, resource_micros

COLUMNS = (
    Column("task_id", "key", "FEED-TASK-01", "Task.identifier", required=True),
    Column("patient_id", ("Patient",), "FEED-TASK-03", "Task.for"),
    Column("description", "text", "FEED-TASK-02", "Task.description", required=True, stand_in="x"),
    Column("status", "code", "FEED-TASK-02", "Task.status", required=True, stand_in="requested"),
    Column(
        "requester_id", ("Practitioner",), "FEED-TASK-02", "Task.requester", required=True, stand_in="Practitioner/x"
    ),
    Column("owner_id", ("Practitioner",), "FEED-TASK-03", "Task.owner"),
    Column("group_id", ("Group",), "FEED-TASK-03", "Task.extension"),
    Column("authored", "time", "FEED-TASK-03", "Task.authoredOn"),
    Column("due", "time", "FEED-TASK-03", "Task.restriction"),
    Column("labels", "labels", "FEED-TASK-04", "Task.input"),
    Column("comment", "text", "FEED-TASK-05", "Task.note", tail=".text"),
    Column("comment_author_id", ("Practitioner",), "FEED-TASK-05", "Task.note", tail=".authorReference"),
    Column("comment_time", "time", "FEED-TASK-05", "Task.note", tail=".time"),
    Column("comments", "comments", "FEED-TASK-06", "Task.note"),
)


TEXTS = (("status", "status"), ("description", "description"), ("authoredOn", "authored"))
NAMED = (("for", "patient_id"), ("requester", "requester_id"), ("owner", "owner_id"))
"""Elements of a task in their order, each with its column: texts, and references."""


def build(key: str | None, rows: Sequence[Values], around: BuilderContext) -> BuiltRecord:
    """Return the Task of a row. Values that could not be mapped are left out."""
    (row,) = rows
    return _whole(key, row) if "resource" in row else _task(key, row, _notes(row), around)


def build_of_rows(key: str | None, rows: Sequence[Values], around: BuilderContext) -> BuiltRecord:
    """Return the Task of rows that share a key: each row has its own comment, and all else must be equal."""
    first = rows[0]
    if "resource" in first and len(rows) == 1:
        return _whole(key, first)
    differing = [column for column in COLUMNS[1:] if any(_differ(row, first, column.name) for row in rows[1:])]
    faults = [RecordFault(DISAGREE, column.element, column.name) for column in differing]
    notes = [(note, number) for number, row in enumerate(rows) for note in _notes(row)]
    task = _task(key, first, [note for note, _ in notes], around)
    return task._replace(faults=tuple(faults), rows=tuple((number,) for _, number in notes))


DISAGREE = ValueFault("LEDGER-13", "the rows of this task have different values in this column")


def _differ(row: Values, first: Values, name: str) -> bool:
    return not name.startswith("comment") and row.get(name) != first.get(name)


def _task(key: str | None, row: Values, notes: list[dict[str, Any]], around: BuilderContext) -> BuiltRecord:
    get = row.get
    body: dict[str, Any] = {"resourceType": "Task", "intent": "unknown"}
    if group := get("group_id"):
        body["extension"] = [{"url": around.site.task_group, "valueReference": refer(group)}]
    for element, name in TEXTS:
        if (text := get(name)) is not None:
            body[element] = text
    for element, name in NAMED:
        if (target := get(name)) is not None:
            body[element] = refer(target)
    patient = get("patient_id")
    if due := get("due"):
        body["restriction"] = {"period": {"end": due}}
    if notes:
        body["note"] = notes
    if labels := get("labels"):
        body["input"] = [{"type": {"text": "label"}, "valueString": label} for label in labels]
    return BuiltRecord(body, patient and patient[8:], patient or f"task/{key}", micros(get("authored")))


def _notes(row: Values) -> list[dict[str, Any]]:
    """Return the row's own comment, then the comments of the array.

    A comment without its author stays so, and a rule of the interface reports it.
    """
    own = row.get("comment"), row.get("comment_author_id"), row.get("comment_time")
    notes = [_note(*own)] if any(own) else []
    if comments := row.get("comments"):
        notes += [_note(*comment) for comment in comments]
    return notes


def _note(text: str | None, author: str | None, time: str | None) -> dict[str, Any]:
    note: dict[str, Any] = {}
    if text:
        note["text"] = text
    if time:
        note["time"] = time
    if author:
        note["authorReference"] = refer(author)
    return note


def _whole(key: str | None, row: Values) -> BuiltRecord:
    """Return a Task that came as a resource, unchanged."""
    body = dict(row["resource"])
    patient = id_of(body.get("for"))
    return BuiltRecord(
        body, patient, f"Patient/{patient}" if patient else f"task/{key}", resource_micros(body.get("authoredOn"))
    )


TASKS = RecordKind("tasks", "Task", "task_id", COLUMNS, build)
TASKS_BY_COMMENT = RecordKind("tasks", "Task", "task_id", COLUMNS, build_of_rows, grouped=True, member="Task.note")

"""Task: a to-do item for a patient, shown in the chart and in the panel of open tasks."""

from typing import Annotated, Any, Literal

from pydantic import Field

from fhir_service.interface.datatypes import (
    Element,
    GroupReference,
    Id,
    Identifier,
    Meta,
    PatientReference,
    PractitionerReference,
    Text,
    Time,
    Uri,
    reference,
)
from fhir_service.interface.outcomes import BUSINESS_RULE
from fhir_service.interface.resources.common import (
    ID,
    IDENTIFIER,
    extension_value,
    extensions_are_listed,
    optional,
    records_exist,
    reference_id,
)
from fhir_service.interface.site import STORED, Site
from fhir_service.interface.times import instant_text
from fhir_service.interface.vocabulary import Found, Moment, Param, Resource, rule

STATUSES = ("requested", "cancelled", "completed")


class Extension(Element):
    url: Uri
    valueReference: GroupReference | None = None
    valueString: Text | None = None


class Period(Element):
    end: Time


class Restriction(Element):
    period: Period


class Note(Element):
    text: Text
    time: Time | None = None
    authorReference: PractitionerReference


class Kind(Element):
    text: Text


class Input(Element):
    type: Kind
    valueString: Text


class Task(Element):
    """The field table of Task as a body of create or update."""

    resourceType: Literal["Task"]
    id: Id | None = None
    meta: Meta | None = None
    identifier: Annotated[list[Identifier], Field(min_length=1)] | None = None
    extension: Annotated[list[Extension], Field(min_length=1)] | None = None
    status: Text
    description: Text | None = None
    for_: PatientReference | None = Field(None, alias="for")
    authoredOn: Time | None = None
    requester: PractitionerReference
    owner: PractitionerReference | None = None
    intent: Text
    restriction: Restriction | None = None
    note: Annotated[list[Note], Field(min_length=1)] | None = None
    input: Annotated[list[Input], Field(min_length=1)] | None = None


class NewTask(Task):
    """A create says what the task is (decision T1)."""

    description: Text


@rule("TASK-08", BUSINESS_RULE, given=True)
def status_is_supported(task: Task, _: Site) -> Found:
    """A task has the status `requested`, `cancelled` or `completed`."""
    if task.status not in STATUSES:
        yield "Task.status", "the status is not supported"


@rule("TASK-19", BUSINESS_RULE, given=True)
def intent_is_unknown(task: Task, _: Site) -> Found:
    """A task has the intent `unknown`."""
    if task.intent != "unknown":
        yield "Task.intent", "the intent is not supported"


@rule("TASK-30", BUSINESS_RULE, given=False)
def inputs_are_labels(task: Task, _: Site) -> Found:
    """An input of a task is a label: its `type.text` is `label`."""
    for index, entry in enumerate(task.input or ()):
        if entry.type.text != "label":
            yield f"Task.input[{index}].type.text", "the type of input is not supported"


def _records(task: Task) -> list[tuple[str, str]]:
    found = []
    for index, extension in enumerate(task.extension or ()):
        if extension.valueReference:
            found.append((f"Task.extension[{index}].valueReference", extension.valueReference.reference))
    if task.for_:
        found.append(("Task.for", task.for_.reference))
    found.append(("Task.requester", task.requester.reference))
    if task.owner:
        found.append(("Task.owner", task.owner.reference))
    for index, note in enumerate(task.note or ()):
        found.append((f"Task.note[{index}].authorReference", note.authorReference.reference))
    return found


def _group(group: GroupReference | None, moment: Moment) -> dict[str, Any] | None:
    if group is None:
        return None
    shown = reference(group.reference, moment.state.display(group.reference) or group.reference)
    return {"url": STORED.task_group, "valueReference": shown}


def _permalink(task_id: str) -> dict[str, Any]:
    return {"url": STORED.task_permalink, "valueString": f"{STORED.base_url}/chart/tasks/{task_id}"}


def _notes(task: Task, moment: Moment) -> list[dict[str, Any]]:
    if task.note is None:
        return []
    now = instant_text(moment.now)
    return [
        {"text": n.text, "time": n.time or now, "authorReference": reference(n.authorReference.reference)}
        for n in task.note
    ]


def _labels(task: Task) -> list[dict[str, Any]]:
    if task.input is None:
        return []
    names = dict.fromkeys(entry.valueString for entry in task.input)
    return [{"type": {"text": "label"}, "valueString": name} for name in names]


def _shown(task: Task, moment: Moment, kept: dict[str, Any]) -> dict[str, Any]:
    """The stored task: what the body says, and what `kept` holds where the body may leave it out."""
    group = _group(extension_value(task, moment.site.task_group, "valueReference"), moment) or kept.get("group")
    identifiers = [{"system": i.system, "value": i.value} for i in task.identifier or ()]
    return optional(
        {
            "resourceType": "Task",
            "id": moment.id,
            "identifier": identifiers or kept.get("identifier"),
            "extension": [part for part in (group, _permalink(moment.id)) if part],
            "status": task.status,
            "intent": "unknown",
            "description": task.description,
            "for": reference(task.for_.reference) if task.for_ else kept.get("for"),
            "authoredOn": task.authoredOn or kept.get("authoredOn") or instant_text(moment.now),
            "requester": reference(task.requester.reference),
            "owner": reference(task.owner.reference) if task.owner else None,
            "restriction": {"period": {"end": task.restriction.period.end}} if task.restriction else None,
            "note": kept.get("note", []) + _notes(task, moment),
            "input": _labels(task),
        }
    )


def prepare(task: Task, moment: Moment) -> dict[str, Any]:
    """A new task: `authoredOn` and the times of notes default to now."""
    return _shown(task, moment, {})


def merge(stored: dict[str, Any], task: Task, moment: Moment) -> dict[str, Any]:
    """An update: notes are added, group, `authoredOn`, patient and identifier keep when left out, the rest goes."""
    kept = {name: stored[name] for name in ("identifier", "for", "authoredOn", "note") if name in stored}
    group = next((e for e in stored.get("extension", ()) if e["url"] == STORED.task_group), None)
    return _shown(task, moment, kept | {"group": group})


def _due(stored: dict[str, Any]) -> str | None:
    end: str | None = stored.get("restriction", {}).get("period", {}).get("end")
    return end


TASK = Resource(
    "Task",
    model=NewTask,
    update_model=Task,
    interactions=("create", "read", "update", "search"),
    params=(
        ID,
        IDENTIFIER,
        Param("description", "contains", lambda stored: stored.get("description")),
        Param("label", "exact", lambda stored: [entry["valueString"] for entry in stored.get("input", ())]),
        Param("owner", "reference", reference_id("owner"), target="Practitioner"),
        Param("patient", "reference", reference_id("for"), target="Patient"),
        Param("requester", "reference", reference_id("requester"), target="Practitioner"),
        Param("status", "token", lambda stored: stored["status"], allowed=STATUSES),
        Param("due", "date", _due),
        Param("modified", "date", lambda _: None),
    ),
    sorts={"_id": "id", "due-date": "due"},
    rules=(
        extensions_are_listed(
            "Task", lambda site: {site.task_group: "valueReference", site.task_permalink: "valueString"}
        ),
        status_is_supported,
        intent_is_unknown,
        inputs_are_labels,
        records_exist("TASK-25", _records),
    ),
    prepare=prepare,
    merge=merge,
)

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
from fhir_service.interface.fast import forms
from fhir_service.interface.fast.forms import Address, DrawnValues, Each, Reference, Value, When
from fhir_service.interface.outcomes import BUSINESS_RULE
from fhir_service.interface.resources.common import (
    ID,
    IDENTIFIER,
    IDENTIFIERS,
    extension_value,
    extensions_are_listed,
    records_exist,
    reference_id,
)
from fhir_service.interface.site import STORED, Site
from fhir_service.interface.vocabulary import Found, Moment, Param, Resource, condition, rule

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


@condition("TASK-08", BUSINESS_RULE, "Task.status", "the status is not supported")
def status_is_supported(task: Task, _: Site) -> bool:
    """A task has the status `requested`, `cancelled` or `completed`."""
    return task.status in STATUSES


@condition("TASK-19", BUSINESS_RULE, "Task.intent", "the intent is not supported")
def intent_is_unknown(task: Task, _: Site) -> bool:
    """A task has the intent `unknown`."""
    return task.intent == "unknown"


@rule("TASK-30", BUSINESS_RULE, given=False, of="input")
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


def _group(task: Task, moment: Moment) -> dict[str, Any] | None:
    """The extension that names the group of a task, as it is stored."""
    group: GroupReference | None = extension_value(task, moment.site.task_group, "valueReference")
    if group is None:
        return None
    shown = reference(group.reference, moment.state.display(group.reference) or group.reference)
    return {"url": STORED.task_group, "valueReference": shown}


FORM = {
    "resourceType": "Task",
    "id": forms.ID,
    "identifier": IDENTIFIERS,
    "extension": [
        Value(_group, of="extension"),
        {"url": STORED.task_permalink, "valueString": Address(f"{STORED.base_url}/chart/tasks/")},
    ],
    "status": forms.Text("status"),
    "intent": "unknown",
    "description": forms.Text("description"),
    "for": Reference("for_"),
    "authoredOn": forms.Text("authoredOn", or_now=True),
    "requester": Reference("requester"),
    "owner": Reference("owner"),
    "restriction": When("restriction", {"period": {"end": forms.Text("restriction.period.end")}}),
    "note": Each(
        "note",
        {
            "text": forms.Text("text"),
            "time": forms.Text("time", or_now=True),
            "authorReference": Reference("authorReference"),
        },
    ),
    "input": Each("input", {"type": {"text": "label"}, "valueString": forms.Text("")}, distinct="valueString"),
}
"""A new task: `authoredOn` and the times of notes default to now; a label is there once."""


def merge(stored: dict[str, Any], task: Task, moment: Moment) -> dict[str, Any]:
    """An update: notes are added, group, `authoredOn`, patient and identifier keep when left out, the rest goes."""
    shown = TASK.prepare(task, stored["id"], moment)
    for name, sent in (("identifier", task.identifier), ("for", task.for_), ("authoredOn", task.authoredOn)):
        if sent is None and stored.get(name):
            shown[name] = stored[name]
    groups = [one for one in stored.get("extension", ()) if one["url"] == STORED.task_group]
    if groups and len(shown["extension"]) == 1:
        shown["extension"] = [groups[0], *shown["extension"]]
    if notes := stored.get("note", []) + shown.get("note", []):
        shown["note"] = notes
    return {name: shown[name] for name in FORM if name in shown}


TASK = Resource(
    "Task",
    model=NewTask,
    update_model=Task,
    interactions=("create", "read", "update", "search"),
    params=(
        ID,
        IDENTIFIER,
        Param("description", "contains", DrawnValues("description")),
        Param("label", "exact", DrawnValues("input[]", "valueString", many=True)),
        Param("owner", "reference", reference_id("owner"), target="Practitioner"),
        Param("patient", "reference", reference_id("for"), target="Patient"),
        Param("requester", "reference", reference_id("requester"), target="Practitioner"),
        Param("status", "token", DrawnValues("status", required=True), allowed=STATUSES),
        Param("due", "date", DrawnValues("restriction", "period", "end")),
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
    stored=FORM,
    merge=merge,
)

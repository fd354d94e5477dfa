"""Changing what is at a target already: a task updated to a row's content, a task or response taken back.

Read, merge, write with If-Unmodified-Since. A write whose outcome is unknown is settled by reading and comparing.
"""

import json
from collections.abc import Callable
from typing import Any

from pipelines.client import FhirClient, NotDone, NotSent, Refused, Unknown
from pipelines.compare import moment
from pipelines.replies import unusable
from pipelines.sending import Posted, Result

Body = dict[str, Any]
Wanted = Callable[[Body], Body | None]
"""Gives the body to write for a resource as it was read; None when it is as it should be."""

KEPT = "resourceType id identifier status intent description for authoredOn requester owner restriction input".split()
RESPONSE = "resourceType id questionnaire subject encounter authored author".split()
GROUP = "/fhir/extensions/task-group"
CONFLICT = 412
GONE = {
    "code": "not-found",
    "text": "the target has no such resource any more",
    "diagnostics": None,
    "expression": None,
}
TAKEN_BACK = {"QuestionnaireResponse": "entered-in-error", "Task": "cancelled"}
"""The status of what has been taken back. Payments have none."""


def update(client: FhirClient, resource_id: str, row_body: str) -> Posted:
    """Brings a task to what a row says: its elements win, what it does not say stays, comments are added once."""
    ours = json.loads(row_body)
    return _write(client, "Task", resource_id, lambda now: None if has(now, ours) else merged(now, ours), "updated")


def take_back(client: FhirClient, resource_type: str, resource_id: str) -> Posted:
    """Moves a response to `entered-in-error`, a task to `cancelled`; once more changes nothing."""
    status = TAKEN_BACK[resource_type]

    def wanted(now: Body) -> Body | None:
        if now.get("status") == status:
            return None
        if resource_type == "Task":
            return merged(now, {"status": status})
        return {**{name: now[name] for name in RESPONSE if name in now}, "status": status}

    return _write(client, resource_type, resource_id, wanted, "undone")


def _write(client: FhirClient, resource_type: str, resource_id: str, wanted: Wanted, state: str) -> Posted:
    pauses, tries, unclear, asked = client.patience.pauses(), 0, False, None
    while True:
        tries += 1
        try:
            found = client.read_as_of(resource_type, resource_id)
        except (NotSent, NotDone, Refused, Unknown) as error:
            problem = f"it cannot be read ({error})"
        else:
            if found is None:
                return Posted(Result("refused", None, 404, GONE))
            body = wanted(found[0])
            if body is None:
                return Posted(Result(state, resource_id, 200))
            try:
                status = client.update(resource_type, resource_id, json.dumps(body).encode(), found[1])
                return Posted(Result(state, resource_id, status))
            except Refused as error:
                if error.reply.status != CONFLICT or tries > client.patience.attempts // 2:
                    return Posted(Result("refused", None, error.reply.status, error.reply.outcome))
                problem = "it changes all the time"
            except Unknown as error:
                problem, unclear = f"no clear answer ({error})", True
            except NotSent as error:
                problem, asked = str(error), error.retry_after
            except NotDone as error:
                problem, asked = str(error), error.reply.retry_after
        pause = next(pauses, None)
        if pause is None:
            return Posted(Result("in_doubt" if unclear else "planned", resource_id), unusable(problem, tries))
        client.patience.wait(pause, asked)


# -- a task and a row


def merged(now: Body, ours: Body) -> Body:
    """The task to write: the row's elements over those of the task, both's labels, comments that it does not have."""
    task = {name: now[name] for name in KEPT if name in now}
    task.update({name: ours[name] for name in KEPT if name in ours and name not in ("id", "identifier", "input")})
    if labels := [*now.get("input", ()), *(each for each in ours.get("input", ()) if _label(each) not in _labels(now))]:
        task["input"] = labels
    if group := _group(ours) or _group(now):
        task["extension"] = [group]
    if notes := [note for note in ours.get("note", ()) if not _noted(now, note)]:
        task["note"] = notes
    return task


def has(now: Body, ours: Body) -> bool:
    """Whether a task is what the row says already."""
    try:
        return (
            all(now.get(name) == ours[name] for name in ("status", "description") if name in ours)
            and all(_reference(now.get(name)) == _reference(ours[name]) for name in REFERENCES if name in ours)
            and all(moment(_time(now, name)) == moment(_time(ours, name)) for name in TIMES if name in ours)
            and _labels(ours) <= _labels(now)
            and all(_noted(now, note) for note in ours.get("note", ()))
            and (_group(ours) is None or _group_id(ours) == _group_id(now))
        )
    except (TypeError, AttributeError, KeyError):
        return False


REFERENCES = ("for", "requester", "owner")
TIMES = ("authoredOn", "restriction")


def _time(task: Body, name: str) -> Any:
    found = task.get(name)
    return found.get("period", {}).get("end") if isinstance(found, dict) else found


def _reference(element: Body | None) -> str | None:
    return str(element["reference"]) if element else None


def _label(entry: Body) -> str:
    return str(entry["valueString"])


def _labels(task: Body) -> set[str]:
    return {_label(entry) for entry in task.get("input", ())}


def _group(task: Body) -> Body | None:
    found = (each for each in task.get("extension", ()) if str(each.get("url", "")).endswith(GROUP))
    group = next(found, None)
    return (
        {"url": group["url"], "valueReference": {"reference": group["valueReference"]["reference"]}} if group else None
    )


def _group_id(task: Body) -> str | None:
    group = _group(task)
    return _reference(group["valueReference"]) if group else None


def _noted(task: Body, note: Body) -> bool:
    """Whether a task has a comment: by author, text and, where the row gives one, time."""
    return any(
        each.get("text") == note.get("text")
        and _reference(each.get("authorReference")) == _reference(note.get("authorReference"))
        and ("time" not in note or moment(each.get("time")) == moment(note["time"]))
        for each in task.get("note", ())
    )

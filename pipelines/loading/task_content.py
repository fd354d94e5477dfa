"""Compare a task at the target with a row: build the task to write, and test if the task has the row's content."""

import hashlib
from collections.abc import Iterator
from typing import Any

from pipelines.client.comparison import OWN_TIME, referred, second

Body = dict[str, Any]

KEPT = "resourceType id identifier status intent description for authoredOn requester owner restriction input".split()
GROUP = "/fhir/extensions/task-group"


def merged_task(now: Body, ours: Body, whole: bool = False) -> Body:
    """Return the task to write: the row's elements over the task's, the labels of both, and comments that the task
    lacks.

    whole: True to keep everything else of the task, since the body replaces it. Else only the elements are kept that
    an update of the interface names.
    """
    task = dict(now) if whole else {name: now[name] for name in KEPT if name in now}
    task.update({name: ours[name] for name in KEPT if name in ours and name not in ("id", "identifier", "input")})
    if labels := [*now.get("input", ()), *(each for each in ours.get("input", ()) if _label(each) not in _labels(now))]:
        task["input"] = labels
    if group := _group(ours) or _group(now):
        others = [each for each in now.get("extension", ()) if not _is_group(each)] if whole else []
        task["extension"] = [*others, group]
    if notes := [note for note in ours.get("note", ()) if not _noted(now, note)]:
        task["note"] = [*(now.get("note", ()) if whole else ()), *notes]
    return task


def says(now: Body, ours: Body) -> bool:
    """True if a task, as a search shows it, has the row's content, apart from comments and the row's own time."""
    row = element_hashes({name: part for name, part in ours.items() if name != OWN_TIME["Task"]})
    return row is not None and set(row.split()) <= set((element_hashes(now) or "").split())


def has(now: Body, ours: Body) -> bool:
    """True if a task has the row's content already."""
    try:
        return (
            all(now.get(name) == ours[name] for name in ("status", "description") if name in ours)
            and all(_reference(now.get(name)) == _reference(ours[name]) for name in REFERENCES if name in ours)
            and all(second(_time(now, name)) == second(_time(ours, name)) for name in TIMES if name in ours)
            and _labels(ours) <= _labels(now)
            and all(_noted(now, note) for note in ours.get("note", ()))
            and (_group(ours) is None or _group_id(ours) == _group_id(now))
        )
    except (TypeError, AttributeError, KeyError):
        return False


def element_hashes(task: Body) -> str | None:
    """Return short hashes of a task's elements, separated by blanks. Elements are compared as in `has`.

    Comments are left out, because no search shows them. None if an element has the wrong shape.
    """
    try:
        return " ".join(hashlib.sha256(each.encode()).hexdigest()[:16] for each in _said(task))
    except (TypeError, AttributeError, KeyError):
        return None


def _said(task: Body) -> Iterator[str]:
    yield from (f"{name} {task[name]}" for name in ("status", "description") if name in task)
    yield from (f"{name} {_reference(task[name])}" for name in REFERENCES if name in task)
    for name in TIMES:
        if name in task:
            at = second(_time(task, name))
            yield f"{name} {at and at.timestamp()}"
    yield from (f"label {label}" for label in sorted(_labels(task)))
    if _group(task):
        yield f"group {_group_id(task)}"


REFERENCES = ("for", "requester", "owner")
TIMES = ("authoredOn", "restriction")


def _time(task: Body, name: str) -> Any:
    found = task.get(name)
    return found.get("period", {}).get("end") if isinstance(found, dict) else found


def _reference(element: Body | None) -> str | None:
    return referred(element) if element else None


def _label(entry: Body) -> str:
    return str(entry["valueString"])


def _labels(task: Body) -> set[str]:
    return {_label(entry) for entry in task.get("input", ()) if "valueString" in entry}


def _is_group(extension: Body) -> bool:
    return str(extension.get("url", "")).endswith(GROUP)


def _group(task: Body) -> Body | None:
    group = next(filter(_is_group, task.get("extension", ())), None)
    return (
        {"url": group["url"], "valueReference": {"reference": group["valueReference"]["reference"]}} if group else None
    )


def _group_id(task: Body) -> str | None:
    group = _group(task)
    return _reference(group["valueReference"]) if group else None


def _noted(task: Body, note: Body) -> bool:
    """True if a task has a comment of the row: with its author, its text and, if the row gives one, its time."""
    return any(
        each.get("text") == note.get("text")
        and _reference(each.get("authorReference")) == _reference(note.get("authorReference"))
        and ("time" not in note or second(each.get("time")) == second(note["time"]))
        for each in task.get("note", ())
    )

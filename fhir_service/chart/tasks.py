"""Tasks in the chart: those of a patient, and the panel of all open ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, select

from fhir_service.chart.paging import ListPage
from fhir_service.chart.records import stored_body
from fhir_service.interface.datatypes import id_of
from fhir_service.interface.outcomes import unknown_resource
from fhir_service.interface.site import Site
from fhir_service.interface.times import period_of
from fhir_service.store.tables import BODIES

TASK = BODIES["Task"]


@dataclass(frozen=True, slots=True)
class Comment:
    text: str
    time: str
    author: str


@dataclass(frozen=True, slots=True)
class Task:
    """A task; people and groups as references, times as the interface shows them."""

    id: str
    status: str
    description: str | None
    patient: str | None
    authored: str
    due: str | None
    overdue: bool
    requester: str
    owner: str | None
    group: str | None
    group_name: str | None
    labels: tuple[str, ...]
    comments: tuple[Comment, ...]

    @property
    def references(self) -> Iterator[str]:
        """Everyone whose name is shown."""
        people = [self.requester, self.owner, *(comment.author for comment in self.comments)]
        yield from (found for found in people if found)
        if self.patient:
            yield f"Patient/{self.patient}"


def one(connection: Connection, site: Site, task_id: str, now: datetime) -> Task:
    """Return a task. Raises the 404 of an unknown one."""
    body = connection.execute(select(TASK.c.body).where(TASK.c.id == task_id)).scalar()
    if body is None:
        raise unknown_resource("Task", task_id)
    return _task(stored_body(site, body), site, now)


def of_patient(
    connection: Connection, site: Site, patient: str, page: ListPage, now: datetime
) -> tuple[list[Task], ListPage]:
    """Return the tasks of a patient: open ones first, the next due first."""
    is_open = case((TASK.c.status == "requested", 0), else_=1)
    return _some(connection, site, TASK.c.patient == patient, [is_open, *_BY_DUE], page, now)


def open_ones(connection: Connection, site: Site, page: ListPage, now: datetime) -> tuple[list[Task], ListPage]:
    """Return all open tasks, also those without a patient: the next due first."""
    return _some(connection, site, TASK.c.status == "requested", list(_BY_DUE), page, now)


_BY_DUE = (TASK.c.due_start.asc().nulls_last(), TASK.c.seq.desc())


def _some(
    connection: Connection,
    site: Site,
    which: ColumnElement[bool],
    order: list[ColumnElement[Any]],
    page: ListPage,
    now: datetime,
) -> tuple[list[Task], ListPage]:
    page = page.of(connection.execute(select(func.count()).select_from(TASK).where(which)).scalar_one())
    query = select(TASK.c.body).where(which).order_by(*order).limit(page.size).offset(page.offset)
    return [_task(stored_body(site, body), site, now) for body in connection.execute(query).scalars()], page


def _task(body: dict[str, Any], site: Site, now: datetime) -> Task:
    due = body.get("restriction", {}).get("period", {}).get("end")
    group: dict[str, str] = next((e["valueReference"] for e in body["extension"] if e["url"] == site.task_group), {})
    return Task(
        id=body["id"],
        status=body["status"],
        description=body.get("description"),
        patient=id_of(body["for"]["reference"]) if "for" in body else None,
        authored=body["authoredOn"],
        due=due,
        overdue=bool(due) and body["status"] == "requested" and period_of(due)[1] <= now,
        requester=body["requester"]["reference"],
        owner=body.get("owner", {}).get("reference"),
        group=group.get("reference"),
        group_name=group.get("display"),
        labels=tuple(entry["valueString"] for entry in body.get("input", ())),
        comments=tuple(
            Comment(note["text"], note["time"], note["authorReference"]["reference"]) for note in body.get("note", ())
        ),
    )

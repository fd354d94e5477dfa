"""Stored bodies as the interface shows them, patients, and the names of people and groups."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, or_, select

from fhir_service.chart.paging import ListPage
from fhir_service.interface.datatypes import id_of
from fhir_service.interface.json_text import parse_json
from fhir_service.interface.outcomes import unknown_resource
from fhir_service.interface.resources.questionnaire_response import AUTOMATION
from fhir_service.interface.site import Site
from fhir_service.store.expressions import contains
from fhir_service.store.tables import RECORD

AUTOMATION_NAME = "Automation user"


def stored_body(site: Site, body: str) -> dict[str, Any]:
    """Return a stored body with the site's values in place of the markers."""
    found: dict[str, Any] = parse_json(site.fill(body.encode()))
    return found


def names(connection: Connection, references: Iterable[str]) -> dict[str, str]:
    """Return the names of stored people and groups, by reference."""
    wanted = sorted(set(references))
    query = select(RECORD.c.reference, RECORD.c.display).where(RECORD.c.reference.in_(wanted))
    rows = connection.execute(query) if wanted else ()
    return {AUTOMATION: AUTOMATION_NAME} | {row.reference: row.display for row in rows if row.display}


@dataclass(frozen=True, slots=True)
class Patient:
    """A patient: the name when there is one, a birth date of any precision. Where not `known`, the id alone."""

    id: str
    known: bool
    name: str | None = None
    born: str | None = None
    gender: str | None = None

    @property
    def called(self) -> str:
        """The patient's name, or the text that is shown without one."""
        return self.name or ("Patient without a name" if self.known else f"Patient {self.id}")


def patient(connection: Connection, patient_id: str, known: bool) -> Patient:
    """Return the patient, `known` or by id alone. Raises the 404 of an unknown one."""
    query = select(RECORD.c.display, RECORD.c.body).where(RECORD.c.reference == f"Patient/{patient_id}")
    row = connection.execute(query).first()
    if row is None:
        raise unknown_resource("Patient", patient_id)
    return _patient(patient_id, row.display, row.body, known)


def patients(connection: Connection, page: ListPage, sought: str, known: bool) -> tuple[list[Patient], ListPage]:
    """Return a page of the patients whose id begins with, or whose name holds, what is sought; by name, then id.

    Where not `known`, names are neither looked at nor sorted by.
    """
    which = (RECORD.c.type == "Patient") & _matching(sought, known)
    page = page.of(connection.execute(select(func.count()).select_from(RECORD).where(which)).scalar_one())
    order = (*([RECORD.c.display.asc().nulls_last()] if known else []), RECORD.c.reference)
    query = select(RECORD.c.reference, RECORD.c.display, RECORD.c.body).where(which).order_by(*order)
    rows = connection.execute(query.limit(page.size).offset(page.offset))
    return [_patient(id_of(row.reference), row.display, row.body, known) for row in rows], page


def exists(connection: Connection, patient_id: str) -> bool:
    query = select(RECORD.c.reference).where(RECORD.c.reference == f"Patient/{patient_id}")
    return connection.execute(query).first() is not None


def _matching(sought: str, known: bool) -> ColumnElement[bool]:
    by_id = RECORD.c.reference.startswith(f"Patient/{sought}", autoescape=True)
    return or_(by_id, contains(RECORD.c.display, sought)) if known else by_id


def _patient(patient_id: str, name: str | None, body: str, known: bool) -> Patient:
    if not known:
        return Patient(patient_id, known)
    record = parse_json(body)
    return Patient(patient_id, known, name, record.get("birthDate"), record.get("gender"))

"""A patient's notes, the newest first, with the responses recorded in them."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, func, select

from fhir_service.chart.answers import DisplayedResponse, displayed_response
from fhir_service.chart.paging import ListPage
from fhir_service.chart.records import stored_body
from fhir_service.interface.outcomes import unknown_resource
from fhir_service.interface.site import Site
from fhir_service.interface.times import period_of
from fhir_service.store.tables import BODIES, NOTE

RESPONSE = BODIES["QuestionnaireResponse"]
QUESTIONNAIRE = BODIES["Questionnaire"]
MOST = 50
"""The most responses that are shown of a note."""
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Response:
    """A response: its author, its time, its questionnaire, and its displayed items."""

    id: str
    authored: str
    author: str
    in_error: bool
    questionnaire: str
    display: DisplayedResponse


@dataclass(slots=True)
class Note:
    """A note: `encounter` is empty for a data-import note, `service_at` may be. `further` responses are not shown."""

    id: str
    patient: str
    encounter: str | None
    state: str
    service_at: str | None
    responses: list[Response] = field(default_factory=list)
    further: int = 0

    @property
    def references(self) -> Iterator[str]:
        """Everyone whose name is shown."""
        return (response.author for response in self.responses)


def of_patient(connection: Connection, site: Site, patient: str, page: ListPage) -> tuple[list[Note], ListPage]:
    """Return a page of a patient's timeline."""
    query = select(NOTE.c.id, NOTE.c.service_at).where(NOTE.c.patient == patient)
    rows = connection.execute(query).all()
    # Dates and datetimes, and offsets, do not sort as text.
    rows = sorted(rows, key=lambda row: (period_of(row.service_at)[0] if row.service_at else _NEVER, row.id))
    page = page.of(len(rows))
    wanted = [row.id for row in rows[::-1][page.offset : page.offset + page.size]]
    return _notes(connection, site, wanted), page


def holding(connection: Connection, site: Site, response_id: str, alone: bool) -> Note:
    """Return the note of a response, with only that response (`alone`) or with it first. Raises the 404."""
    query = select(RESPONSE.c.note, RESPONSE.c.body, RESPONSE.c.questionnaire).where(RESPONSE.c.id == response_id)
    row = connection.execute(query).first()
    if row is None:
        raise unknown_resource("QuestionnaireResponse", response_id)
    (note,) = _notes(connection, site, [row.note], () if alone else (row.note,))
    if all(response.id != response_id for response in note.responses):
        note.further = max(note.further - 1, 0)
        questionnaires = _questionnaires(connection, site, {row.questionnaire})
        note.responses.append(_response(stored_body(site, row.body), questionnaires[row.questionnaire]))
    note.responses.sort(key=lambda response: response.id != response_id)
    return note


def _notes(
    connection: Connection, site: Site, ids: Collection[str], filled: Collection[str] | None = None
) -> list[Note]:
    """Return these notes in this order, with the responses of those in `filled`, or of all."""
    rows = connection.execute(select(NOTE).where(NOTE.c.id.in_(ids)))
    notes = {row.id: Note(row.id, row.patient, row.encounter, row.state, row.service_at) for row in rows}
    for note_id, (responses, total) in _responses(connection, site, ids if filled is None else filled).items():
        notes[note_id].responses = responses
        notes[note_id].further = total - len(responses)
    return [notes[note_id] for note_id in ids]


def _responses(connection: Connection, site: Site, notes: Collection[str]) -> dict[str, tuple[list[Response], int]]:
    """Return the first responses in each of these notes, and their number."""
    place = func.row_number().over(partition_by=RESPONSE.c.note, order_by=RESPONSE.c.seq).label("place")
    total = func.count().over(partition_by=RESPONSE.c.note).label("total")
    columns = (RESPONSE.c.note, RESPONSE.c.questionnaire, RESPONSE.c.body, RESPONSE.c.seq, place, total)
    numbered = select(*columns).where(RESPONSE.c.note.in_(notes)).subquery()
    query = select(numbered).where(numbered.c.place <= MOST).order_by(numbered.c.seq)
    rows = connection.execute(query).all() if notes else []
    questionnaires = _questionnaires(connection, site, {row.questionnaire for row in rows})
    found: dict[str, list[Response]] = defaultdict(list)
    for row in rows:
        found[row.note].append(_response(stored_body(site, row.body), questionnaires[row.questionnaire]))
    return {row.note: (found[row.note], row.total) for row in rows}


def _questionnaires(connection: Connection, site: Site, ids: Collection[str]) -> dict[str, dict[str, Any]]:
    query = select(QUESTIONNAIRE.c.id, QUESTIONNAIRE.c.body).where(QUESTIONNAIRE.c.id.in_(ids))
    rows = connection.execute(query) if ids else ()
    return {row.id: stored_body(site, row.body) for row in rows}


def _response(body: dict[str, Any], questionnaire: dict[str, Any]) -> Response:
    return Response(
        id=body["id"],
        authored=body["authored"],
        author=body["author"]["reference"],
        in_error=body["status"] == "entered-in-error",
        questionnaire=questionnaire["name"],
        display=displayed_response(questionnaire, body),
    )

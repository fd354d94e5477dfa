"""Store a chunk of examined records in one transaction: add new ones, replace older ones, refuse the rest."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Table, delete, func, select

from fhir_service.interface.datatypes import reference
from fhir_service.interface.json_text import dump_json, parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.times import parse_instant
from fhir_service.reference import questionnaires
from fhir_service.reference.examining import ReadyRecord
from fhir_service.reference.reading import Flaw
from fhir_service.store.accounts import reallocate
from fhir_service.store.changes import Changes
from fhir_service.store.dialect import Dialect, Row, RowQuery
from fhir_service.store.tables import BODIES, CHARGE, DOCUMENT, NOTE, RECORD
from fhir_service.store.view import CURRENT, CurrentVersion

Verdict = Literal["created", "unchanged", "updated", "refused"]
CLIENT = "reference"
REVISED_AT_ONCE = 1_000
QUESTIONNAIRE, RESPONSE, TASK = BODIES["Questionnaire"], BODIES["QuestionnaireResponse"], BODIES["Task"]


@dataclass(frozen=True, slots=True)
class StoredRow:
    """The stored row of a record's type and id."""

    digest: str
    last_updated: str | None
    patient: str | None
    note: str | None


def known_rows(connection: Connection, dialect: Dialect, references: Collection[str]) -> dict[str, StoredRow]:
    """Return the stored rows of these records, by `Type/id`."""
    columns = ("reference", "digest", "last_updated", "patient", "note")
    rows = dialect.among(connection, RowQuery(RECORD, "reference", references, columns))
    return {row[0]: StoredRow(*row[1:]) for row in rows}


def stays(stored: StoredRow, new: ReadyRecord) -> bool:
    """True if the stored record stays: it is equal, or later by `meta.lastUpdated` (REF-03, REF-05)."""
    if stored.digest == new.digest:
        return True
    try:
        return parse_instant(stored.last_updated or "") > parse_instant(new.last_updated or "")
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class StoringContext:
    """What storing needs beside the records."""

    dialect: Dialect
    next_seq: Callable[[], int]
    now: datetime
    new_id: Callable[[], str]


class Chunk:
    """Records of one type, each id once, and their verdicts in this transaction."""

    def __init__(self, connection: Connection, tools: StoringContext, records: Sequence[ReadyRecord]) -> None:
        self.connection, self.tools, self.records = connection, tools, records
        self.known = known_rows(connection, tools.dialect, {record.reference for record in records})
        self.changes = Changes(tools.next_seq)
        self.changed: dict[str, tuple[Table, tuple[str, ...], list[tuple[Any, ...]]]] = {}

    def store(self) -> list[Verdict]:
        """Store the records; a verdict for each, in their order. One that is refused gets its flaw."""
        self._refuse_without_patient()
        waiting = [record for record in self._waiting() if not record.record.flaws]
        if waiting:
            _STORE.get(waiting[0].record.type or "", Chunk._plain)(self, waiting)
        stored = [record for record in waiting if not record.record.flaws]
        if stored:
            self._records(stored)
        self._flush()
        if stored and stored[0].record.type == "Claim":
            self._reallocate(stored)
        return [self._verdict(record) for record in self.records]

    def _verdict(self, record: ReadyRecord) -> Verdict:
        if record.record.flaws:
            return "refused"
        stored = self.known.get(record.reference)
        if stored is None:
            return "created"
        return "unchanged" if stays(stored, record) else "updated"

    def _waiting(self) -> list[ReadyRecord]:
        """Return the records that are new, or newer than the stored ones."""
        return [r for r in self.records if not ((stored := self.known.get(r.reference)) and stays(stored, r))]

    def _refuse_without_patient(self) -> None:
        """Refuse each record whose patient is not stored (REF-06)."""
        wanted = {f"Patient/{record.patient}" for record in self.records if record.patient}
        found = known_rows(self.connection, self.tools.dialect, wanted)
        for record in self.records:
            if record.patient and f"Patient/{record.patient}" not in found:
                element = "patient" if record.record.type == "Claim" else "subject"
                record.record.flaws.append(Flaw(f"{record.record.type}.{element}", "the patient is not known"))

    def _among(self, table: Table, key: str, keys: Collection[str], columns: Sequence[str]) -> list[Row]:
        return self.tools.dialect.among(self.connection, RowQuery(table, key, keys, columns))

    # --- by type ---

    def _plain(self, _: list[ReadyRecord]) -> None:
        """Store nothing beside the records themselves."""

    def _records(self, records: list[ReadyRecord]) -> None:
        """Store the records as they were loaded."""
        for record in records:
            kind, note = record.record.type, record.note.id if record.note else None
            row = {"reference": record.reference, "type": kind, "patient": record.patient, "display": record.display}
            row |= {"note": note, "last_updated": record.last_updated, "digest": record.digest, "body": record.body}
            self._put(RECORD, row, new=record.reference not in self.known)

    def _put(self, table: Table, row: dict[str, Any], new: bool) -> None:
        """Add a row, or change the row with its key, which is the first column."""
        if new:
            self.changes.add(table, row)
        else:
            self.changed.setdefault(table.name, (table, tuple(row), []))[2].append(tuple(row.values()))

    def _flush(self) -> None:
        for table, columns, rows in self.changed.values():
            self.tools.dialect.change(self.connection, table, rows, columns)
        if self.changes:
            self.changes.flush(self.connection, self.tools.dialect)
        self.changes, self.changed = Changes(self.tools.next_seq), {}

    def _encounters(self, records: list[ReadyRecord]) -> None:
        """Store the notes of encounters. A note that an encounter names replaces its former one. None is shared."""
        named = [record.note.id for record in records if record.note and record.note.id]
        taken = {row[0] for row in self._among(NOTE, "id", set(named), ("id",))}
        twice = Counter(named)
        for record in records:
            stored, note = self.known.get(record.reference), record.note
            if note is None:
                continue
            own = stored.note if stored else None
            if note.id and note.id != own and (note.id in taken or twice[note.id] > 1):
                record.record.flaws.append(Flaw("Encounter.extension", "the note belongs to another encounter"))
                continue
            record.note = note = replace(note, id=note.id or own or self.tools.new_id())
            if own and own != note.id:
                self._leave(own, note.id or "")
            row = {"id": note.id, "patient": record.patient, "encounter": record.id, "state": note.state}
            self._put(NOTE, row | {"service_at": note.service_at}, new=own != note.id)

    def _leave(self, own: str, new: str) -> None:
        """Remove a note. Move its responses to the note that replaces it."""
        self.connection.execute(delete(NOTE).where(NOTE.c.id == own))
        self._revise("QuestionnaireResponse", RESPONSE.c.note == own, f'"valueId":"{own}"', f'"valueId":"{new}"')

    def _groups(self, records: list[ReadyRecord]) -> None:
        """Put the new name of a renamed group into the tasks that are assigned to it."""
        changed = {record.reference: record for record in records if record.reference in self.known}
        names = self._among(RECORD, "reference", changed, ("reference", "display"))
        for group, name in names:
            old, new = (_assigned(group, one) for one in (name, changed[group].display))
            if old != new:
                self._revise("Task", func.strpos(TASK.c.body, old) > 0, old, new)

    def _revise(self, name: str, where: ColumnElement[bool], old: str, new: str) -> None:
        """Make new versions of some resources, with one text in the place of another. A client that has former
        versions learns of the change by number and time.
        """
        table, last = BODIES[name].c, -1
        columns = [table[column] for column in CURRENT]
        query = select(*columns).where(where).order_by(table.seq).limit(REVISED_AT_ONCE)
        while rows := self.connection.execute(query.where(table.seq > last)).all():
            for current in (CurrentVersion(*row[1:]) for row in rows):
                body = current.body.replace(old, new)
                self._show(name, parse_json(body), current)
            last = rows[-1].seq
            self._flush()

    def _claims(self, records: list[ReadyRecord]) -> None:
        """Store the charges of claims (decision P3)."""
        ids = {record.id for record in records if record.reference in self.known}
        charged = {row[0] for row in self._among(CHARGE, "claim", ids, ("claim",))}
        gone = [record.id for record in records if record.charge is None and record.id in charged]
        if gone:
            self.connection.execute(delete(CHARGE).where(CHARGE.c.claim.in_(gone)))
        for record in records:
            if record.charge:
                row = {"claim": record.id, "patient": record.patient, "created": record.charge.created}
                self._put(CHARGE, row | {"cents": record.charge.cents, "paid": 0}, new=record.id not in charged)

    def _reallocate(self, records: list[ReadyRecord]) -> None:
        """Make the accounts of these claims' patients again, and those of their former patients (REF-08)."""
        before = [self.known[record.reference].patient for record in records if record.reference in self.known]
        reallocate(self.connection, sorted({p for p in [*before, *(r.patient for r in records)] if p}))

    def _observations(self, records: list[ReadyRecord]) -> None:
        """Store observations in their form at the interface."""
        current = self._current("Observation", [record.id for record in records if record.reference in self.known])
        for record in records:
            self._show("Observation", record.shown or {}, current.get(record.id))

    def _reports(self, records: list[ReadyRecord]) -> None:
        """Store reports in their form at the interface, and their documents."""
        changed = [record.id for record in records if record.reference in self.known]
        current = self._current("DiagnosticReport", changed)
        if changed:
            self.connection.execute(delete(DOCUMENT).where(DOCUMENT.c.report.in_(changed)))
        for record in records:
            self._show("DiagnosticReport", record.shown or {}, current.get(record.id))
            for position, document in enumerate(record.documents):
                row = {"report": record.id, "position": position, "content_type": document.content_type}
                self.changes.add(DOCUMENT, row | {"data": document.data})

    def _current(self, name: str, ids: Collection[str]) -> dict[str, CurrentVersion]:
        rows = self._among(BODIES[name], "id", ids, CURRENT)
        return {row[0]: CurrentVersion(*row[1:]) for row in rows}

    def _show(self, name: str, stored: dict[str, Any], old: CurrentVersion | None) -> None:
        body = dump_json(stored).decode()
        if old is None:
            self.changes.add_resource(RESOURCES[name], stored, body, CLIENT, self.tools.now)
        else:
            self.changes.replace_resource(name, old, stored, old.followed(self.tools.now, CLIENT, body))

    # --- questionnaires ---

    def _questionnaires(self, records: list[ReadyRecord]) -> None:
        """Store questionnaires one after another: each may retire another of its name (decision Q2)."""
        for record in records:
            self._questionnaire(record)
            self._flush()

    def _questionnaire(self, record: ReadyRecord) -> None:
        new = record.shown or {}
        current = self._current("Questionnaire", [record.id]).get(record.id)
        stored = current.stored if current else None
        if stored and self._has_responses(record.id) and not questionnaires.same_content(stored, new):
            record.record.flaws.append(
                Flaw("Questionnaire", "the questionnaire has responses: load a new version under a new id")
            )
            return
        names = self._names(questionnaires.base(new["name"]))
        new = questionnaires.versioned(new, stored, [name for _, name, _ in names])
        if new != stored:
            self._show("Questionnaire", new, current)
        if new["status"] == "active":
            self._retire([row for row in names if row[0] != record.id and row[1:] == (new["name"], "active")], names)

    def _has_responses(self, questionnaire_id: str) -> bool:
        query = select(RESPONSE.c.id).where(RESPONSE.c.questionnaire == questionnaire_id).limit(1)
        return self.connection.execute(query).first() is not None

    def _names(self, base: str) -> list[tuple[str, str, str]]:
        """Return (id, name, status) of all stored versions of this name."""
        columns = (QUESTIONNAIRE.c.id, QUESTIONNAIRE.c.name, QUESTIONNAIRE.c.status)
        query = select(*columns).where(QUESTIONNAIRE.c.name.startswith(base, autoescape=True))
        rows = self.connection.execute(query.order_by(QUESTIONNAIRE.c.seq)).all()
        return [(row.id, row.name, row.status) for row in rows if questionnaires.base(row.name) == base]

    def _retire(self, active: list[tuple[str, str, str]], names: list[tuple[str, str, str]]) -> None:
        """Retire the active questionnaire of a name."""
        for old in self._current("Questionnaire", [row[0] for row in active]).values():
            self._show("Questionnaire", questionnaires.retired(old.stored, [name for _, name, _ in names]), old)


def _assigned(group: str, name: str | None) -> str:
    """Return the text of a reference to a group in the body of a task."""
    return dump_json(reference(group, name or group)).decode()


_STORE: dict[str, Callable[[Chunk, list[ReadyRecord]], None]] = {
    "Encounter": Chunk._encounters,
    "Group": Chunk._groups,
    "Claim": Chunk._claims,
    "Questionnaire": Chunk._questionnaires,
    "Observation": Chunk._observations,
    "DiagnosticReport": Chunk._reports,
}


def is_plain(kind: str | None) -> bool:
    """True if a load of records of this type changes nothing beside them."""
    return kind not in _STORE


def unresolved(connection: Connection, dialect: Dialect, wanted: Collection[str]) -> set[str]:
    """Return the references whose record is not stored."""
    found: set[str] = set()
    every = sorted(wanted)
    for start in range(0, len(every), 5000):
        part = every[start : start + 5000]
        rows = dialect.among(connection, RowQuery(RECORD, "reference", part, ("reference",)))
        found.update(row[0] for row in rows)
    return set(every) - found


def by_type(counts: Counter[tuple[str, str]], missing: set[str]) -> dict[str, int]:
    """Count references without a target by the type of their records. counts: by (type, reference)."""
    found: dict[str, int] = defaultdict(int)
    for (kind, target), count in counts.items():
        if target in missing:
            found[kind] += count
    return found

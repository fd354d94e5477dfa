"""The view of a batch: all that its entries ask about, fetched by a constant number of statements.

Each entry sees the effects of the entries before it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, func, select

from fhir_service.interface.billing import Account, Charge, in_order
from fhir_service.interface.json_text import parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.resources.questionnaire import Questionnaire
from fhir_service.interface.resources.questionnaire_response import AUTOMATION
from fhir_service.interface.scopes import unauthenticated
from fhir_service.interface.site import Site
from fhir_service.store.dialect import Dialect, Fetch, Row, RowQuery
from fhir_service.store.tables import ACCOUNT, BODIES, CHARGE, NOT_REVOKED, NOTE, RECORD, SIDES, TOKEN

Code = tuple[str | None, str | None]


@dataclass(slots=True)
class Needs:
    """The keys that the entries of a batch ask about. tokens: hashes of tokens that have to be valid still."""

    records: set[str] = field(default_factory=set)
    questionnaires: set[str] = field(default_factory=set)
    notes: set[str] = field(default_factory=set)
    patients: set[str] = field(default_factory=set)
    identifiers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    current: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    tokens: set[str] = field(default_factory=set)


@dataclass(slots=True)
class StoredNote:
    id: str
    patient: str
    encounter: str | None
    state: str


@dataclass(slots=True)
class StoredRecord:
    patient: str | None
    display: str | None
    note: str | None


@dataclass(slots=True)
class CurrentVersion:
    """The current version of a resource."""

    seq: int
    version: int
    updated_at: datetime
    client: str
    body: str

    @property
    def stored(self) -> dict[str, Any]:
        found: dict[str, Any] = parse_json(self.body)
        return found

    def followed(self, now: datetime, client: str, body: str) -> "CurrentVersion":
        """Return the next version. Its time is later than this one's, even if the clock is behind."""
        return CurrentVersion(self.seq, self.version + 1, _after(self.updated_at, now), client, body)


def _after(last: datetime, now: datetime) -> datetime:
    """Return the time of the version after `last`: now, or just after `last` if the clock is not past it.

    If the clock is behind, add a whole second: dates in requests have no fractions, and must tell the versions apart.
    """
    return now if now > last else last + timedelta(microseconds=1) if now == last else last + timedelta(seconds=1)


class Questionnaires:
    """Parsed questionnaires, kept between batches by their bodies.

    Id and version would not do as the key: a database that is restored, or fails over, may give a version twice.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._parsed: dict[str, Questionnaire] = {}

    def parse(self, body: str) -> Questionnaire:
        if body not in self._parsed:
            if len(self._parsed) >= 1000:
                self._parsed.clear()
            self._parsed[body] = Questionnaire.model_validate(parse_json(self._site.fill(body.encode())))
        return self._parsed[body]


MOST_KEPT = 200_000
MOST_READ = 20_000
"""A table of at most so many rows is read as a whole: single look-ups would take longer."""
_OF_RECORD = ("reference", "patient", "display", "note")
_OF_ACCOUNT = ("patient", "charged", "paid")
_OF_CHARGE = ("patient", "claim", "created", "cents", "paid")
CURRENT = ("id", "seq", "version", "updated_at", "client", "body")
_OF_CODE = ("system", "code", "seq")


def _automation() -> StoredRecord:
    """Return the user that acts if a request names none. No table has it."""
    return StoredRecord(None, "Automation", None)


@dataclass(slots=True)
class KeptRows:
    """Rows that were read, and that each later batch keeps up to date.

    They are valid while no other process writes, and until a batch fails. Records are kept by reference; accounts and
    open charges, in order, by patient, even if a patient has none; loaded notes and questionnaires by id.
    """

    records: dict[str, StoredRecord] = field(default_factory=lambda: {AUTOMATION: _automation()})
    accounts: dict[str, Account] = field(default_factory=dict)
    charges: dict[str, list[Charge]] = field(default_factory=dict)
    notes: dict[str, StoredNote] = field(default_factory=dict)
    questionnaires: dict[str, Questionnaire] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        return max(len(self.records), len(self.accounts), len(self.notes)) > MOST_KEPT

    @classmethod
    def read(cls, connection: Connection) -> "KeptRows":
        """Read the small tables of a store."""
        kept = cls()
        kept.add_records(_all(connection, RECORD, _OF_RECORD))
        if _is_small(connection, CHARGE):
            kept.add_accounts(_all(connection, ACCOUNT, _OF_ACCOUNT))
            kept.add_charges(_all(connection, CHARGE, _OF_CHARGE, CHARGE.c.paid < CHARGE.c.cents))
        return kept

    def forget(self, references: Iterable[str]) -> None:
        """Forget records, so that they are read again when needed."""
        for reference in references:
            self.records.pop(reference, None)
        self.records.setdefault(AUTOMATION, _automation())

    def add_records(self, rows: Iterable[Row]) -> None:
        self.records.update((reference, StoredRecord(*of_it)) for reference, *of_it in rows)

    def add_accounts(self, rows: Iterable[Row]) -> None:
        self.accounts.update((patient, Account(charged, paid, read=paid)) for patient, charged, paid in rows)

    def add_charges(self, rows: Iterable[Row]) -> None:
        """Add the open charges of patients. The rows hold all open charges of a patient."""
        found: dict[str, list[Charge]] = defaultdict(list)
        for patient, *charge in rows:
            found[patient].append(Charge(*charge))
        self.charges.update((patient, in_order(charges)) for patient, charges in found.items())


def _is_small(connection: Connection, table: Table) -> bool:
    return connection.execute(select(func.count()).select_from(table)).scalar_one() <= MOST_READ


def _all(connection: Connection, table: Table, columns: Sequence[str], *where: ColumnElement[bool]) -> list[Row]:
    """Return all rows of a table if it is small, else none."""
    if not _is_small(connection, table):
        return []
    rows = connection.execute(select(*(table.c[name] for name in columns)).where(*where))
    return [tuple(row) for row in rows]


def one_by_one(dialect: Dialect, connect: Callable[[], Connection], asks: Sequence[RowQuery]) -> list[list[Row]]:
    """Answer each ask by a statement. connect: returns the connection; it is called only if one is needed."""
    found = []
    for ask in asks:
        keys = dialect.perhaps(ask.table, ask.keys) if ask.key == "code" else ask.keys
        found.append(dialect.among(connect(), ask._replace(keys=keys)) if keys else [])
    return found


def _by_name(keys: dict[str, set[str]]) -> list[tuple[str, set[str]]]:
    """Return keys by type, in the same order for every batch."""
    return sorted(keys.items())


Owners = dict[str, str | None]
"""The ids of patients by the ids of their resources."""


def _identified(rows: list[Row], numbered: list[Row]) -> dict[Code, Owners]:
    """Return resources by identifier: system and value. numbered: number, id and patient of each resource."""
    found: dict[Code, Owners] = defaultdict(dict)
    owners = {seq: of_it for seq, *of_it in numbered}
    for system, code, seq in rows:
        id, patient = owners[seq]
        found[system, code][id] = patient
    return found


def _of_identified(name: str) -> tuple[str, ...]:
    """Return the columns of `numbered` for `_identified`."""
    owner = RESOURCES[name].of_patient
    if owner is None:
        raise TypeError(f"{name} is no patient's")
    return ("seq", "id", owner.column)


class View:
    """The `interface.vocabulary.State` of one batch. It fetches what `kept` does not have yet.

    There are two rounds: first what the entries name, then what those records name.
    """

    def __init__(self, fetch: Fetch, needs: Needs, parsed: Questionnaires, kept: KeptRows) -> None:
        # `difference` looks each key up in the dict; `- keys()` would iterate over all that is kept.
        patients, unparsed = (
            needs.patients.difference(kept.accounts),
            needs.questionnaires.difference(kept.questionnaires),
        )
        # Ask for accounts before charges: if an account has not changed since it was read, neither have its charges.
        tokens, records, questionnaires, accounts, charges, *others = fetch(
            [
                RowQuery(TOKEN, "hash", needs.tokens, ("hash",), NOT_REVOKED),
                RowQuery(RECORD, "reference", needs.records.difference(kept.records), _OF_RECORD),
                RowQuery(BODIES["Questionnaire"], "id", unparsed, ("id", "body")),
                RowQuery(ACCOUNT, "patient", patients, _OF_ACCOUNT, changing=True),
                RowQuery(CHARGE, "patient", patients, _OF_CHARGE, "paid < cents"),
                *(RowQuery(BODIES[name], "id", ids, CURRENT, changing=True) for name, ids in _by_name(needs.current)),
                *(RowQuery(SIDES[name, "identifier"], "code", c, _OF_CODE) for name, c in _by_name(needs.identifiers)),
            ]
        )
        self._tokens = {digest for (digest,) in tokens}
        kept.add_records(records)
        kept.add_charges(charges)
        # Remember patients without an account, too.
        kept.accounts.update((patient, Account(fresh=True)) for patient in patients)
        kept.add_accounts(accounts)
        self.records, self.accounts, self.charges = kept.records, kept.accounts, kept.charges
        self.exists: Callable[[str], bool] = kept.records.__contains__
        kept.questionnaires |= {name: parsed.parse(body) for name, body in questionnaires}
        self.questionnaires = kept.questionnaires
        current = dict(zip(sorted(needs.current), others, strict=False))
        coded = dict(zip(sorted(needs.identifiers), others[len(current) :], strict=True))
        self.current = {name: {row[0]: CurrentVersion(*row[1:]) for row in rows} for name, rows in current.items()}
        self._follow(fetch, needs, coded, kept)

    def _follow(self, fetch: Fetch, needs: Needs, coded: dict[str, list[Row]], kept: KeptRows) -> None:
        """Fetch the notes of encounters, and the ids of the resources whose identifiers were found.

        Notes that new responses make are not kept: they are rarely named again.
        """
        named = (self.records.get(reference) for reference in needs.records)
        notes = needs.notes | {record.note for record in named if record and record.note}
        asks = [RowQuery(NOTE, "id", notes.difference(kept.notes), ("id", "patient", "encounter", "state"))]
        asks += [
            RowQuery(BODIES[name], "seq", {row[2] for row in rows}, _of_identified(name))
            for name, rows in coded.items()
        ]
        found, *numbered = fetch(asks) if any(ask.keys for ask in asks) else [[] for _ in asks]
        kept.notes |= {row[0]: StoredNote(*row) for row in found}
        self.notes = {each: kept.notes[each] for each in notes if each in kept.notes}
        self.identified = {
            name: _identified(rows, of_them) for (name, rows), of_them in zip(coded.items(), numbered, strict=True)
        }

    def identify(
        self, name: str, id: str, patient: str | None, codes: Iterable[Code], before: Iterable[Code] = ()
    ) -> None:
        """Let later entries find a resource by its new identifiers, and no longer by the ones in `before`."""
        found = self.identified.get(name)
        if found is None:
            return
        for code in before:
            found[code].pop(id, None)
        for code in codes:
            found[code][id] = patient

    def require(self, token: str) -> None:
        """Raise FhirError(AUTHENTICATION) if the token with this hash is no longer valid. Empty means no token."""
        if token and token not in self._tokens:
            raise unauthenticated()

    # --- what rules ask ---

    def questionnaire(self, questionnaire_id: str) -> Questionnaire | None:
        return self.questionnaires.get(questionnaire_id)

    def patient_of(self, reference: str) -> str | None:
        found = self.records.get(reference)
        return found.patient if found else None

    def display(self, reference: str) -> str | None:
        found = self.records.get(reference)
        return found.display if found else None

    def note_of(self, encounter_id: str) -> StoredNote | None:
        found = self.records.get(f"Encounter/{encounter_id}")
        return self.notes.get(found.note) if found and found.note else None

    def note(self, note_id: str) -> StoredNote | None:
        return self.notes.get(note_id)

    def account(self, patient_id: str) -> Account:
        found = self.accounts.get(patient_id)
        if found is None:
            found = self.accounts[patient_id] = Account(fresh=True)
        return found

    def balance(self, patient_id: str) -> int:
        found = self.accounts.get(patient_id)
        return found.charged - found.paid if found else 0

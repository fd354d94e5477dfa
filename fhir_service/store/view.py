"""The view of a batch: what its entries may ask about, fetched with a constant number of statements.

Each entry sees the effects of those before it.
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
from fhir_service.interface.scopes import unauthenticated
from fhir_service.interface.site import Site
from fhir_service.store.dialect import Ask, Dialect, Fetch, Row
from fhir_service.store.tables import ACCOUNT, BODIES, CHARGE, NOT_REVOKED, NOTE, RECORD, SIDES, TOKEN

AUTOMATION = "Practitioner/automation"
Code = tuple[str | None, str | None]


@dataclass(slots=True)
class Needs:
    """The keys that the entries of a batch ask about. tokens: hashes of tokens that are to hold still."""

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
class Current:
    """The version of a resource that is in force."""

    seq: int
    version: int
    updated_at: datetime
    client: str
    body: str

    @property
    def stored(self) -> dict[str, Any]:
        found: dict[str, Any] = parse_json(self.body)
        return found

    def followed(self, now: datetime, client: str, body: str) -> "Current":
        """Return the version that follows this one. Its time is later than this one's, whatever the clock says."""
        return Current(self.seq, self.version + 1, _after(self.updated_at, now), client, body)


def _after(last: datetime, now: datetime) -> datetime:
    """Return the time of the version after `last`: now, unless the clock stands still or is behind.

    A whole second where it is behind: dates of requests are cut to the second, and must tell the versions apart.
    """
    return now if now > last else last + timedelta(microseconds=1) if now == last else last + timedelta(seconds=1)


class Questionnaires:
    """Parsed questionnaires by their bodies, kept between batches.

    Not by id and version: a database that is restored, or fails over, beneath a process may give a version again.
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
"""Rows of a table that are read before they are asked for: a statement for each takes longer than all of them."""
_OF_RECORD = ("reference", "patient", "display", "note")
_OF_ACCOUNT = ("patient", "charged", "paid")
_OF_CHARGE = ("patient", "claim", "created", "cents", "paid")
_OF_CURRENT = ("id", "seq", "version", "updated_at", "client", "body")
_OF_CODE = ("system", "code", "seq")


def _automation() -> StoredRecord:
    """The user that acts where none is named; it is in no table."""
    return StoredRecord(None, "Automation", None)


@dataclass(slots=True)
class Kept:
    """Rows that were read, brought up to date by each batch since; valid while no one else writes and no batch fails.

    Records by reference; accounts and open charges (in order) by patient, also of patients who have none; notes that
    were loaded and questionnaires by id.
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
    def read(cls, connection: Connection) -> "Kept":
        """Return what a store has, of tables that are small."""
        kept = cls()
        kept.add_records(_all(connection, RECORD, _OF_RECORD))
        if _is_small(connection, CHARGE):
            kept.add_accounts(_all(connection, ACCOUNT, _OF_ACCOUNT))
            kept.add_charges(_all(connection, CHARGE, _OF_CHARGE, CHARGE.c.paid < CHARGE.c.cents))
        return kept

    def forget(self, references: Iterable[str]) -> None:
        """Let records be read again when they are asked for."""
        for reference in references:
            self.records.pop(reference, None)
        self.records.setdefault(AUTOMATION, _automation())

    def add_records(self, rows: Iterable[Row]) -> None:
        self.records.update((reference, StoredRecord(*of_it)) for reference, *of_it in rows)

    def add_accounts(self, rows: Iterable[Row]) -> None:
        self.accounts.update((patient, Account(charged, paid, read=paid)) for patient, charged, paid in rows)

    def add_charges(self, rows: Iterable[Row]) -> None:
        """Add the open charges of patients: all of a patient's at once."""
        found: dict[str, list[Charge]] = defaultdict(list)
        for patient, *charge in rows:
            found[patient].append(Charge(*charge))
        self.charges.update((patient, in_order(charges)) for patient, charges in found.items())


def _is_small(connection: Connection, table: Table) -> bool:
    return connection.execute(select(func.count()).select_from(table)).scalar_one() <= MOST_READ


def _all(connection: Connection, table: Table, columns: Sequence[str], *where: ColumnElement[bool]) -> list[Row]:
    """The rows of a small table; none of another."""
    if not _is_small(connection, table):
        return []
    rows = connection.execute(select(*(table.c[name] for name in columns)).where(*where))
    return [tuple(row) for row in rows]


def one_by_one(dialect: Dialect, connect: Callable[[], Connection], asks: Sequence[Ask]) -> list[list[Row]]:
    """Answer asks by a statement each. connect: gives the connection; not called where nothing is to be fetched."""
    found = []
    for ask in asks:
        keys = dialect.perhaps(ask.table, ask.keys) if ask.key == "code" else ask.keys
        found.append(dialect.among(connect(), ask.table, ask.key, keys, ask.columns, ask.where) if keys else [])
    return found


def _by_name(keys: dict[str, set[str]]) -> list[tuple[str, set[str]]]:
    """Return keys by type, in one order for every batch."""
    return sorted(keys.items())


Owners = dict[str, str | None]
"""Whose resources are: ids of patients, by the ids of resources."""


def _identified(rows: list[Row], numbered: list[Row]) -> dict[Code, Owners]:
    """The resources with these identifiers, by (system, value). numbered: number, id and patient of each resource."""
    found: dict[Code, Owners] = defaultdict(dict)
    owners = {seq: of_it for seq, *of_it in numbered}
    for system, code, seq in rows:
        id, patient = owners[seq]
        found[system, code][id] = patient
    return found


def _of_identified(name: str) -> tuple[str, ...]:
    """Return the columns that `_identified` takes."""
    owner = RESOURCES[name].of_patient
    if owner is None:
        raise TypeError(f"{name} is no patient's")
    return ("seq", "id", owner.column)


class View:
    """Implements `interface.vocabulary.State` for one batch. What is in `kept` already is not fetched again.

    It is fetched in two rounds: what the entries name, then what that names.
    """

    def __init__(self, fetch: Fetch, needs: Needs, parsed: Questionnaires, kept: Kept) -> None:
        # `difference` of a dict asks it for each key; `- keys()` would go through all that is kept.
        patients, unparsed = (
            needs.patients.difference(kept.accounts),
            needs.questionnaires.difference(kept.questionnaires),
        )
        # Accounts before charges: of an account that stays as it was read, the charges do too.
        tokens, records, questionnaires, accounts, charges, *others = fetch(
            [
                Ask(TOKEN, "hash", needs.tokens, ("hash",), NOT_REVOKED),
                Ask(RECORD, "reference", needs.records.difference(kept.records), _OF_RECORD),
                Ask(BODIES["Questionnaire"], "id", unparsed, ("id", "body")),
                Ask(ACCOUNT, "patient", patients, _OF_ACCOUNT, changing=True),
                Ask(CHARGE, "patient", patients, _OF_CHARGE, "paid < cents"),
                *(Ask(BODIES[name], "id", ids, _OF_CURRENT, changing=True) for name, ids in _by_name(needs.current)),
                *(Ask(SIDES[name, "identifier"], "code", c, _OF_CODE) for name, c in _by_name(needs.identifiers)),
            ]
        )
        self._tokens = {digest for (digest,) in tokens}
        kept.add_records(records)
        kept.add_charges(charges)
        # Those who have none are remembered, too.
        kept.accounts.update((patient, Account(fresh=True)) for patient in patients)
        kept.add_accounts(accounts)
        self.records, self.accounts, self.charges = kept.records, kept.accounts, kept.charges
        self.exists: Callable[[str], bool] = kept.records.__contains__
        kept.questionnaires |= {name: parsed.parse(body) for name, body in questionnaires}
        self.questionnaires = kept.questionnaires
        current = dict(zip(sorted(needs.current), others, strict=False))
        coded = dict(zip(sorted(needs.identifiers), others[len(current) :], strict=True))
        self.current = {name: {row[0]: Current(*row[1:]) for row in rows} for name, rows in current.items()}
        self._follow(fetch, needs, coded, kept)

    def _follow(self, fetch: Fetch, needs: Needs, coded: dict[str, list[Row]], kept: Kept) -> None:
        """Fetch the notes of encounters, and the ids of the resources whose identifiers were found.

        Notes that responses make are not kept: hardly any is named again.
        """
        named = (self.records.get(reference) for reference in needs.records)
        notes = needs.notes | {record.note for record in named if record and record.note}
        asks = [Ask(NOTE, "id", notes.difference(kept.notes), ("id", "patient", "encounter", "state"))]
        asks += [
            Ask(BODIES[name], "seq", {row[2] for row in rows}, _of_identified(name)) for name, rows in coded.items()
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
        """Let later entries find a patient's resource by its identifiers, and no longer by those that it had before."""
        found = self.identified.get(name)
        if found is None:
            return
        for code in before:
            found[code].pop(id, None)
        for code in codes:
            found[code][id] = patient

    def require(self, token: str) -> None:
        """Raises FhirError(AUTHENTICATION) for the hash of a token that holds no more. An empty one is none."""
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

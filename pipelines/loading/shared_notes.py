"""Notes that responses share: those of a patient and local day that name no encounter and no note of their own.

The first of them makes the note. Each later one is sent with the note-id, read from a response that is at the target.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from threading import Lock
from typing import Any, NamedTuple, Self
from zoneinfo import ZoneInfo

import orjson

from pipelines.client.client import FhirClient
from pipelines.client.comparison import is_note_id
from pipelines.client.replies import TargetUnusable
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.lease import HeldRight
from pipelines.ledger.notes import RESPONSE, Group, keep_members, members_of
from pipelines.ledger.states import ASKED, MADE
from pipelines.loading.load_counts import BatchRun
from pipelines.loading.row import AcceptedRow, RowResult, read_back
from pipelines.loading.sending import Send, SentResults

GROUPS_KEPT = 20_000
"""Groups whose note is remembered: many more than are under way at once. The ledger knows the others."""


class FoundNotes(NamedTuple):
    """The notes of groups, as note-id extensions in JSON. held: groups that may or may not have a note."""

    notes: dict[Group, str]
    held: set[Group]

    def note(self, group: Group | None) -> str | None:
        return self.notes.get(group) if group else None


class SharedNotes:
    """The notes of one load. Safe in several threads: a group is in one lane, so no two threads have one group."""

    def __init__(self, batch: BatchRun, client: FhirClient, ledger: LedgerAccess) -> None:
        self._client, self._ledger = client, ledger
        self._target, self._batch_id, self._source = batch.target, batch.batch_id, batch.feed.source
        self._zone = ZoneInfo(batch.feed.file.timezone)
        self._turn = Lock()
        self._made: dict[Group, str] = {}
        self._notes: dict[Group, str] = {}

    @classmethod
    def of(cls, batch: BatchRun, client: FhirClient, ledger: LedgerAccess) -> Self | None:
        """Return the shared notes of a batch; None if its feed does not use them."""
        return cls(batch, client, ledger) if batch.feed.file.notes == "patient-day" else None

    def group(self, row: AcceptedRow) -> Group | None:
        """Return the group of a row; None if the row does not share a note."""
        return group_of(row, self._zone)

    def keep(self, lease: HeldRight, rows: Iterable[AcceptedRow]) -> None:
        """Note which rows, about to be sent, share a note. Raises `LeaseLost`."""
        groups = ((row, self.group(row)) for row in rows)
        keep_members(
            self._ledger, lease, self._source, [(row.key, row.generation, group) for row, group in groups if group]
        )

    def made(self, group: Group | None, result: RowResult) -> None:
        """Remember a response that is at the target now."""
        if group and result.resource_id and result.state in MADE:
            self._remember(self._made, group, result.resource_id)

    def find(
        self, groups: Collection[Group], sending: Collection[str], read_all: Callable[..., Any] = map
    ) -> FoundNotes:
        """Return the notes that groups have already. sending: keys whose outcome is about to be known.

        Raises `TargetUnusable` if a response that has the note cannot be read, or does not show it.
        """
        notes = {group: note for group in groups if (note := self._notes.get(group))}
        there = {group: [made] for group in groups if group not in notes and (made := self._made.get(group))}
        held: set[Group] = set()
        rest = [group for group in groups if group not in notes and group not in there]
        for member in members_of(self._ledger, self._target, self._source, rest) if rest else ():
            if member.state in MADE and member.resource_id:
                there.setdefault(member.group, []).append(member.resource_id)
            elif member.state in ASKED and member.batch_id != self._batch_id and member.key not in sending:
                held.add(member.group)
        for group, note in self._read(there, read_all).items():
            self._remember(self._notes, group, note)
            notes[group] = note
        return FoundNotes(notes, held.difference(notes))

    def _read(self, there: Mapping[Group, list[str]], read_all: Callable[..., Any]) -> dict[Group, str]:
        """Return the note of the first response of each group that was not taken back."""
        notes: dict[Group, str] = {}
        while there:
            bodies = read_back(self._client, RESPONSE, [ids[0] for ids in there.values()], read_all)
            others: dict[Group, list[str]] = {}
            for group, (first, *rest) in there.items():
                if first not in bodies:
                    raise TargetUnusable("the target could not be used: a response whose note is shared cannot be read")
                body = bodies[first]
                if body is not None and body.get("status") != "entered-in-error":
                    notes[group] = _note_id(body)
                elif rest:
                    others[group] = rest
            there = others
        return notes

    def _remember(self, by_group: dict[Group, str], group: Group, value: str) -> None:
        with self._turn:
            by_group[group] = value
            if len(by_group) > GROUPS_KEPT:
                del by_group[next(iter(by_group))]

    def sending(self, send: Send, read_all: Callable[..., Any]) -> Send:
        """Return a sender in turns: first one row of each group without a note, then the others into its note."""
        return _InTurns(self, send, read_all).send


class _InTurns:
    def __init__(self, notes: SharedNotes, send: Send, read_all: Callable[..., Any]) -> None:
        self._notes, self._send, self._read_all = notes, send, read_all

    def send(self, rows: Sequence[AcceptedRow]) -> SentResults:
        groups = [self._notes.group(row) for row in rows]
        sent, left = SentResults(), list(range(len(rows)))
        while left and not sent.unusable:
            try:
                left = self._turn(rows, groups, left, sent)
            except TargetUnusable as error:
                sent.unusable = str(error)
        for at, row in enumerate(rows):
            sent.results.setdefault(at, RowResult(row.left))
        return sent

    def _turn(
        self, rows: Sequence[AcceptedRow], groups: Sequence[Group | None], left: list[int], sent: SentResults
    ) -> list[int]:
        """Send the rows that may be sent now; return those to be sent next."""
        wanted = {group for at in left if (group := groups[at])}
        found = self._notes.find(wanted, {rows[at].key for at in left}, self._read_all)
        free = [at for at in left if groups[at] not in found.held]
        heads = _heads(rows, groups, free, found.notes)
        going = [at for at in free if groups[at] is None or groups[at] in found.notes or at in heads]
        part = self._send([in_note(rows[at], found.note(groups[at])) for at in going]) if going else SentResults()
        for place, result in part.results.items():
            sent.results[going[place]] = result
            self._notes.made(groups[going[place]], result)
        sent.unusable = part.unusable
        stopped = {rows[at].lane for at in going if sent.results[at].state == "in_doubt"}
        gone = set(going)
        return [at for at in free if at not in gone and rows[at].lane not in stopped]


def _heads(
    rows: Sequence[AcceptedRow], groups: Sequence[Group | None], places: Sequence[int], notes: Mapping[Group, str]
) -> set[int]:
    """Return, for each group without a note, the row that makes it: one that may be there already, else the first."""
    heads: dict[Group, int] = {}
    for at in sorted(places, key=lambda at: not rows[at].intended):
        group = groups[at]
        if group and group not in notes:
            heads.setdefault(group, at)
    return set(heads.values())


# -- rows and their notes


def group_of(row: AcceptedRow, zone: ZoneInfo) -> Group | None:
    """Return patient and local day of a response; None if it names an encounter or a note of its own."""
    if row.patient_id is None or '"encounter":' in row.body or any(map(is_note_id, _extensions(row.body))):
        return None
    at = row.source_at or row.first_attempt_at
    if f'"authored":"{at[:10]}"' in row.body:  # a date, which is the same day everywhere
        return Group(row.patient_id, at[:10])
    return Group(row.patient_id, datetime.fromisoformat(at).astimezone(zone).date().isoformat())


def in_note(row: AcceptedRow, note: str | None) -> AcceptedRow:
    """Return the row as it is sent into a note, which is given as the JSON of the note-id extension."""
    if note is None:
        return row
    if _extensions(row.body):
        return row._replace(body=row.body.replace('"extension":[', f'"extension":[{note},', 1))
    return row._replace(body=f'{row.body[:-1]},"extension":[{note}]}}')


def _extensions(body: str) -> list[dict[str, Any]]:
    return orjson.loads(body).get("extension", []) if '"extension":' in body else []


def _note_id(body: Mapping[str, Any]) -> str:
    """Return the extension with a response's note, as JSON. Raises `TargetUnusable` if the response shows none."""
    for extension in body.get("extension", ()):
        if is_note_id(extension) and extension.get("valueId"):
            return orjson.dumps({"url": extension["url"], "valueId": extension["valueId"]}).decode()
    raise TargetUnusable('the target does not show the notes of its responses, which notes = "patient-day" needs')

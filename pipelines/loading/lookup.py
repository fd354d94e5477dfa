"""Look up rows in doubt at their target: find which are there, which surely are not, and which only a person can
judge.

It only reads; callers write what it finds. It looks by identifier if the target has identifiers, else by content.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson

from pipelines.client.client import FhirClient
from pipelines.client.comparison import fingerprints, moment, own_time, same_content, taken_back
from pipelines.client.identifiers import VALUES_A_SEARCH, identifier_value, is_written_otherwise, specials_of, values_of
from pipelines.client.replies import NoResult, RequestRefused
from pipelines.client.steps import Step
from pipelines.client.whole import whole_search
from pipelines.ledger.lease import Clock, utc_text
from pipelines.ledger.rows import Sighting
from pipelines.loading.row import AcceptedRow, Identity, dated_body

Body = dict[str, Any]
Names = tuple[str | None, str | None]
"""Fingerprints of a body: without its own time, and with it."""
SLACK = timedelta(minutes=5)
"""The difference allowed between a time that a target shows and that of the attempt which made the resource."""
DAY = timedelta(days=1, hours=14) + SLACK
"""The difference allowed if a target shows only a date, whose time zone is unknown."""
NAMED = 3
"""The number of candidates that a message names by id."""
BY_ITSELF = ("QuestionnaireResponse", "Task")
"""Types that may be sent again without a person, because they can be taken back. A payment cannot."""


@dataclass(frozen=True)
class Doubt:
    """A row in doubt, with what was known before it was first sent.

    since: the earliest time, by the target's clock, at which the target can have made it; None if unknown. before: ids
    of the patient's earlier resources; None if they could not be read. asked_at: when its outcome was last missed.
    named: True if it was sent with its identifier, so that the target can be asked by that.
    """

    row: AcceptedRow
    asked_at: datetime
    since: datetime | None
    before: frozenset[str] | None
    named: bool = False


class Finding(NamedTuple):
    """The answer of a look-up: `found` (with the resource's id), `absent`, or the reason why it is unclear.

    there: the resources with the row's identifier, or one resource that has it written otherwise.
    """

    state: str
    resource_id: str | None = None
    why: str | None = None
    there: tuple[Body, ...] = ()


FOUND, ABSENT, UNCLEAR = "found", "absent", "unclear"
NOT_SEARCHED = Finding(UNCLEAR, None, "the target does not search by identifier")
AMONG_ALL = Finding(ABSENT, None, NOT_SEARCHED.why)
"""The finding of a row that is not among all resources, which the target showed in place of the search's result."""
NOT_TOLD = Finding(UNCLEAR, None, "the target does not show by its identifier what is known to be there")
NOT_PROVEN = Finding(UNCLEAR, None, "nothing with such signs in its key is known to be there and shown by the target")
"""The finding of a row whose key a search must escape, if that search shows no known key of this kind."""


def look_up(
    client: FhirClient,
    identity: Identity,
    doubts: Sequence[Doubt],
    ours: Mapping[str | None, set[str]],
    made: Sequence[tuple[str, int]] | None = None,
) -> dict[str, Finding]:
    """Return a finding for each doubt, by key.

    ours: by patient, the resources that the ledger knows. made: key and generation of records that the target has;
    None for a target that keeps identifiers. A search by identifier asks for these too. If it shows none of them, or
    none with a key that has the row's characters to escape, absence is not proven: the row is looked up by content.
    """
    there = None if made is None else [identifier_value(*each) for each in made]
    findings = by_identifier(client, identity, [doubt.row for doubt in doubts if doubt.named], there)
    told = {key for key, finding in findings.items() if finding not in (NOT_TOLD, NOT_PROVEN)}
    together: dict[tuple[str | None, str], list[Doubt]] = defaultdict(list)
    for doubt in (doubt for doubt in doubts if doubt.row.key not in told):
        together[doubt.row.patient_id, _where(identity.resource_type, doubt.row)].append(doubt)
    for (patient_id, _), some in together.items():
        findings.update(_by_content(client, identity, some, ours.get(patient_id, set())))
    return findings


def _where(resource_type: str, row: AcceptedRow) -> str:
    """Return the search by owner for a row without a patient, else an empty text: rows with equal texts go together."""
    return "" if row.patient_id else str(searches(resource_type, orjson.loads(row.body)))


def due(doubt: Doubt, resource_type: str, now: datetime, settling_seconds: float, step: Step) -> bool:
    """True if a row that was not found may be sent again now, without a person.

    Before the settling time has passed, the request may still be under way.
    """
    if doubt.named and step.repeats:
        return True
    by_itself = resource_type in BY_ITSELF or (doubt.named and step.conditional)
    return by_itself and doubt.asked_at + timedelta(seconds=settling_seconds) <= now


# -- by identifier


def not_asked(error: NoResult) -> Finding:
    """Return the finding of a row about which the target gave no answer."""
    return Finding(UNCLEAR, None, f"the target could not be asked ({error})")


def by_identifier(
    client: FhirClient, identity: Identity, rows: Sequence[AcceptedRow], witnesses: Sequence[str] | None
) -> dict[str, Finding]:
    """Return a finding for each row, by key; one search asks for many rows. witnesses: values known to be there."""
    findings: dict[str, Finding] = {}
    for at in range(0, len(rows), VALUES_A_SEARCH):
        findings |= _of_search(client, identity, rows[at : at + VALUES_A_SEARCH], witnesses)
    return findings


def _of_search(
    client: FhirClient, identity: Identity, rows: Sequence[AcceptedRow], witnesses: Sequence[str] | None
) -> dict[str, Finding]:
    """Return the findings of one search, or of one for each value if the target refuses the search."""
    values = {row.key: identifier_value(row.key, row.generation) for row in rows}
    asked = dict.fromkeys([*values.values(), *(witnesses or ())])
    try:
        there = _named(client, identity, list(asked))
    except NoResult as error:
        return {row.key: not_asked(error) for row in rows}
    found = {row.key: _of_row(identity, row, there) for row in rows}
    others = [body for body in there if asked.keys().isdisjoint(values_of(identity.system, body))]
    absent = [row for row in rows if found[row.key].state == ABSENT]
    found |= {row.key: finding for row in absent if (finding := _written_otherwise(identity, row, others))}
    shown = {value for body in there for value in values_of(identity.system, body)}
    proofs = None if witnesses is None else [specials_of(each) for each in witnesses if each in shown]
    among_all = AMONG_ALL if others else None
    return {
        key: (_unproven(values[key], proofs) or among_all or each) if each.state == ABSENT else each
        for key, each in found.items()
    }


def _written_otherwise(identity: Identity, row: AcceptedRow, bodies: Sequence[Body]) -> Finding | None:
    """Return the finding of a row whose content is there with its identifier spelled otherwise; None if it is not."""
    value, sent = identifier_value(row.key, row.generation), orjson.loads(row.body)
    alike = [
        body
        for body in bodies
        if any(is_written_otherwise(value, shown) for shown in values_of(identity.system, body))
        and same_content(identity.resource_type, sent, body)
    ]
    if not alike:
        return None
    named = ", ".join(f"{identity.resource_type}/{body['id']}" for body in alike[:NAMED])
    why = f"the target has its content under another spelling of its identifier: {named}"
    return Finding(UNCLEAR, None, why, tuple(alike[:1]))


def _unproven(value: str, proofs: Sequence[frozenset[str]] | None) -> Finding | None:
    """Return why absence from a search proves nothing; None if it proves that the value is not there.

    proofs: the characters to escape in each value that the search shows and that is known to be there.
    """
    if proofs is None or any(specials_of(value) <= each for each in proofs):
        return None
    return NOT_PROVEN if proofs else NOT_TOLD


def _named(client: FhirClient, identity: Identity, values: Sequence[str]) -> list[Body]:
    """Return the result of a search for these values, or of one for each if that is refused. Raises as it does."""
    try:
        return _all_named(client, identity, values)
    except RequestRefused:
        if len(values) == 1:
            raise
    return [body for value in values for body in _all_named(client, identity, [value])]


def _all_named(client: FhirClient, identity: Identity, values: Sequence[str]) -> list[Body]:
    return list(whole_search(client.named(identity.resource_type, identity.system, values), identity.resource_type))


def _of_row(identity: Identity, row: AcceptedRow, there: Sequence[Body]) -> Finding:
    """Return the finding of a row from a search by identifiers. Only resources with the identifier count."""
    value = identifier_value(row.key, row.generation)
    found = [body for body in there if value in values_of(identity.system, body)]
    if not found and not all(values_of(identity.system, body) for body in there):
        return NOT_SEARCHED
    if not found:
        return Finding(ABSENT)
    if len(found) > 1 or not same_content(identity.resource_type, orjson.loads(row.body), found[0]):
        return Finding(UNCLEAR, None, "the target has other content under its identifier", tuple(found))
    return Finding(FOUND, found[0]["id"], None, tuple(found))


# -- by content


def _by_content(client: FhirClient, identity: Identity, doubts: Sequence[Doubt], ours: set[str]) -> dict[str, Finding]:
    """Settle the doubts of one patient, or of one owner. A resource with the identifier of a row is that row's."""
    try:
        found = [
            body for body in of_patient_of(client, identity.resource_type, doubts[0].row) if body.get("id") not in ours
        ]
    except NoResult as error:
        return {doubt.row.key: not_asked(error) for doubt in doubts}
    plain = {doubt.row.key: each for doubt in doubts if (each := _of_row(identity, doubt.row, found)).there}
    return plain | _alike(identity, [doubt for doubt in doubts if doubt.row.key not in plain], found)


def _alike(identity: Identity, doubts: Sequence[Doubt], found: Sequence[Body]) -> dict[str, Finding]:
    """Settle doubts by the resources without identifiers.

    Rows of equal content cannot be told apart: there must be as many resources as rows.
    """
    resource_type, groups = identity.resource_type, defaultdict[Names, list[Doubt]](list)
    for doubt in doubts:
        groups[fingerprints(resource_type, _sent(resource_type, doubt))].append(doubt)
    there = [body for body in found if not values_of(identity.system, body)]
    shown = [(body, fingerprints(resource_type, body)) for body in there]
    equal = {names: _equal(resource_type, names, group[0], shown, groups) for names, group in groups.items()}
    taken = {body["id"] for some in equal.values() for body in some}
    others = [body for body in found if body["id"] not in taken]
    return {
        doubt.row.key: _unless_altered(identity, doubt, others) if finding.state == ABSENT else finding
        for names, group in groups.items()
        for doubt, finding in zip(group, _of_group(resource_type, group, equal[names]), strict=True)
    }


def _unless_altered(identity: Identity, doubt: Doubt, others: Sequence[Body]) -> Finding:
    """Return that a row is absent, unless there is something new with the row's own time that equals no row.

    That may be the row: targets cut texts. Payments are not checked so, since only a person sends them again.
    """
    if finding := _written_otherwise(identity, doubt.row, others):
        return finding
    resource_type = identity.resource_type
    if resource_type not in BY_ITSELF:
        return Finding(ABSENT)
    at, before = own_time(resource_type, _sent(resource_type, doubt)), doubt.before
    new = [body for body in others if body["id"] not in (before or ()) and not values_of(identity.system, body)]
    times = [(body, own_time(resource_type, body)) for body in new]
    found = [str(body["id"]) for body, when in times if (before is not None if when is None else when == at)]
    if not found:
        return Finding(ABSENT)
    named = ", ".join(f"{resource_type}/{each}" for each in sorted(found)[:NAMED])
    return Finding(UNCLEAR, None, f"a new resource with other content may be the row's: {named}")


def _sent(resource_type: str, doubt: Doubt) -> Body:
    """Return the body as it was sent."""
    return dict(orjson.loads(dated_body(resource_type, doubt.row)))


def _equal(
    resource_type: str, names: Names, doubt: Doubt, shown: Sequence[tuple[Body, Names]], groups: Collection[Names]
) -> list[Body]:
    """Return the resources with a row's content and time, else those with its content and a time that may be the
    row's.

    Such a time is near the row's and no other row's, or missing: a target may round times, or not keep them.
    """
    content, timed = names
    if timed is None:
        return []
    if exact := [body for body, other in shown if other[1] == timed]:
        return exact
    others = {other for _, other in groups}
    alike = [body for body, other in shown if other[0] == content and other[1] not in others]
    at = own_time(resource_type, _sent(resource_type, doubt))
    times = ((body, own_time(resource_type, body)) for body in alike)
    until = max(at, doubt.asked_at) + SLACK if at else None
    return [body for body, when in times if at and until and (when is None or at - SLACK <= when <= until)]


def _of_group(resource_type: str, group: Sequence[Doubt], equal: Sequence[Body]) -> list[Finding]:
    """Return a finding for each doubt about rows of equal content, from the resources with that content."""
    judged = [_judge(resource_type, doubt, equal) for doubt in group]
    made = {str(body["id"]): body for some, _ in judged for body in some}
    perhaps = {str(body["id"]): body for _, some in judged for body in some}
    if not made and not perhaps:
        return [Finding(ABSENT)] * len(group)
    candidates = ", ".join(f"{resource_type}/{name}" for name in [*sorted({*made, *perhaps})][:NAMED])
    if perhaps:
        return [Finding(UNCLEAR, None, (f"a resource with its content may be older than the row: {candidates}"))] * len(
            group
        )
    if len(made) != len(group) or any(len(some) != len(group) for some, _ in judged):
        why = f"{len(made)} at the target and {len(group)} in doubt have the same content: {candidates}"
        return [Finding(UNCLEAR, None, why)] * len(group)
    ordered = sorted(made.values(), key=lambda body: (str(body.get("created", "")), str(body["id"])))
    return [Finding(FOUND, str(body["id"])) for body in ordered]


def _judge(resource_type: str, doubt: Doubt, equal: Sequence[Body]) -> tuple[list[Body], list[Body]]:
    """Return the equal resources that the row's attempts made, and those that may have another origin."""
    said = [(body, _made_by(resource_type, doubt, body)) for body in equal]
    return [body for body, made in said if made], [body for body, made in said if made is None]


def _made_by(resource_type: str, doubt: Doubt, body: Body) -> bool | None:
    """True if the row's attempts made the resource; None if that is unknown.

    If the ids that were there before are known, they decide, and time is a second witness. The clock that a target
    dates with may differ from the one that it answers with, and its times may be cut or rounded. A resource that was
    not there before but shows an older time is left to a person.
    """
    if doubt.before is not None and body.get("id") in doubt.before:
        return False
    if resource_type == "PaymentNotice":
        return _created_since(doubt, body)
    if taken_back(resource_type, orjson.loads(doubt.row.body), body):
        return None if doubt.before is None else False
    if doubt.before is not None:
        return True
    if fingerprints(resource_type, body)[1] == fingerprints(resource_type, _sent(resource_type, doubt))[1]:
        return True
    dated_by_us = dated_body(resource_type, doubt.row) != doubt.row.body
    return True if dated_by_us and own_time(resource_type, body) else None


def _created_since(doubt: Doubt, body: Body) -> bool | None:
    made = moment(body.get("created"))
    if made is None or doubt.since is None:
        return None
    if doubt.before is not None:
        return True if made >= doubt.since - SLACK else None
    if made >= doubt.since:
        return True
    cut_to_its_day = len(str(body["created"])) <= len("2026-01-01")
    return None if made >= doubt.since - (DAY if cut_to_its_day else SLACK) else False


# -- what a target has


def of_patient_of(client: FhirClient, resource_type: str, row: AcceptedRow) -> list[Body]:
    """Return the target's resources among which the row's would be. Raises as searches do."""
    body = orjson.loads(row.body)
    *narrow, widest = searches(resource_type, body)
    for params in narrow:
        try:
            return list(whole_search(client.pages(resource_type, params), resource_type))
        except RequestRefused:  # this target does not know the parameter
            continue
    return list(whole_search(client.pages(resource_type, widest), resource_type))


def searches(resource_type: str, body: Body) -> list[dict[str, str]]:
    """Return searches that find resources equal to the body, narrowest first. The interface documents the last one."""
    if resource_type == "PaymentNotice":
        return [{"request": body["request"]["reference"]}]
    if resource_type == "QuestionnaireResponse":
        return [{"patient": body["subject"]["reference"]}]
    narrow = [{"patient": body["for"]["reference"]}] if "for" in body else []
    return [*narrow, {"owner": body["owner"]["reference"]} if "owner" in body else {}]


def ids_before(client: FhirClient, resource_type: str, row: AcceptedRow) -> str | None:
    """Return the ids of the patient's present resources, separated by blanks; None if the target does not tell."""
    if row.patient_id is None:
        return None
    try:
        return " ".join(str(body["id"]) for body in of_patient_of(client, resource_type, row))
    except (NoResult, KeyError):
        return None


def ahead(client: FhirClient, now: datetime) -> int | None:
    """Return the microseconds that the target's clock is ahead of ours, at least; None if the target shows no clock."""
    said = client.server_time()
    return None if said is None else int((said - now.astimezone(UTC)) / timedelta(microseconds=1))


class PatientLookups:
    """Look-ups of patients in one load. noted: patients whose resources are noted. clock: the ledger's."""

    def __init__(self, client: FhirClient, resource_type: str, clock: Clock) -> None:
        self._client, self._resource_type, self._clock = client, resource_type, clock
        self.noted: set[str] = set()

    def look(self, row: AcceptedRow) -> Sighting:
        """Return the resources that the row's patient has at the target now. Safe to call from any thread."""
        ids = ids_before(self._client, self._resource_type, row)
        now = self._clock()
        return Sighting(row.patient_id or "", utc_text(now), ahead(self._client, now), ids)

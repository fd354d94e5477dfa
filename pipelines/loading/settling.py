"""Looking up rows in doubt at their target: which are there, which surely are not, which only a person can tell.

Only reads; what it finds is written down by the callers. By the identifier where the target has them, else by content.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson

from pipelines.loading.sending import Identity, Row, dated
from pipelines.target.client import FhirClient
from pipelines.target.replies import NotDone, NotSent, Refused, Unknown, resources_of, total_of
from pipelines.verifying.compare import fingerprint, moment, same_content

Body = dict[str, Any]
UNREADABLE = (NotSent, NotDone, Refused, Unknown)
BY_ITSELF = ("QuestionnaireResponse", "Task")
"""What may be sent again without a person: what can be taken back. A payment cannot."""


@dataclass(frozen=True)
class Doubt:
    """A row in doubt with what was known before it was first sent.

    since: the earliest that the target can have made it, by the target's clock; None where that is not known.
    before: ids of the patient's resources that were there already; None where they could not be read.
    asked_at: when its outcome was last missed.
    """

    row: Row
    asked_at: datetime
    since: datetime | None
    before: frozenset[str] | None


class Finding(NamedTuple):
    """What the look-up says: `found` (with the resource's id), `absent`, or why it cannot be told."""

    state: str
    resource_id: str | None = None
    why: str | None = None


FOUND, ABSENT, UNCLEAR = "found", "absent", "unclear"


def look_up(
    client: FhirClient, identity: Identity, doubts: Sequence[Doubt], ours: Mapping[str | None, set[str]], safe: bool
) -> dict[str, Finding]:
    """A finding for each doubt, by key. `ours`: by patient, the resources that the ledger knows already."""
    if safe:
        return {doubt.row.key: _by_identifier(client, identity, doubt.row) for doubt in doubts}
    findings: dict[str, Finding] = {}
    of_patient: dict[str | None, list[Doubt]] = defaultdict(list)
    for doubt in doubts:
        of_patient[doubt.row.patient_id].append(doubt)
    for patient_id, some in of_patient.items():
        findings.update(_by_content(client, identity.resource_type, some, ours.get(patient_id, set())))
    return findings


def due(doubt: Doubt, resource_type: str, now: datetime, settling_seconds: float) -> bool:
    """Whether a row that was not found may be sent again without a person."""
    return resource_type in BY_ITSELF and doubt.asked_at + timedelta(seconds=settling_seconds) <= now


# -- by identifier


def _by_identifier(client: FhirClient, identity: Identity, row: Row) -> Finding:
    path = f"/{identity.resource_type}?_count=2&{orjson.loads(identity.entry(row)[1])}"
    try:
        found = resources_of(client.get(path), identity.resource_type)
    except UNREADABLE as error:
        return Finding(UNCLEAR, None, f"the target could not be asked ({error})")
    if not found:
        return Finding(ABSENT)
    if len(found) > 1 or not same_content(identity.resource_type, orjson.loads(row.body), found[0]):
        return Finding(UNCLEAR, None, "the target has something else under its key")
    return Finding(FOUND, found[0]["id"])


# -- by content


def _by_content(client: FhirClient, resource_type: str, doubts: Sequence[Doubt], ours: set[str]) -> dict[str, Finding]:
    """Doubts of one patient. Rows of equal content are told apart by nobody: as many must be there as there are."""
    try:
        there = [body for body in of_patient_of(client, resource_type, doubts[0].row) if body.get("id") not in ours]
    except UNREADABLE as error:
        return {doubt.row.key: Finding(UNCLEAR, None, f"the target could not be asked ({error})") for doubt in doubts}
    groups: dict[str | None, list[Doubt]] = defaultdict(list)
    for doubt in doubts:
        groups[fingerprint(resource_type, orjson.loads(dated(resource_type, doubt.row)))].append(doubt)
    return {
        doubt.row.key: finding
        for name, group in groups.items()
        for doubt, finding in zip(group, _of_group(resource_type, name, group, there), strict=True)
    }


def _of_group(resource_type: str, name: str | None, group: Sequence[Doubt], there: Iterable[Body]) -> list[Finding]:
    equal = [body for body in there if name is not None and fingerprint(resource_type, body) == name]
    judged = [_judge(resource_type, doubt, equal) for doubt in group]
    proven = {str(body["id"]): body for made, _ in judged for body in made}
    perhaps = any(unclear for _, unclear in judged)
    if not proven and not perhaps:
        return [Finding(ABSENT)] * len(group)
    if perhaps:
        return [Finding(UNCLEAR, None, "something equal is there that may be older")] * len(group)
    if len(proven) != len(group) or any(len(made) != len(group) for made, _ in judged):
        why = f"{len(proven)} equal ones are there for {len(group)} in doubt"
        return [Finding(UNCLEAR, None, why)] * len(group)
    ordered = sorted(proven.values(), key=lambda body: (str(body.get("created", "")), str(body["id"])))
    return [Finding(FOUND, str(body["id"])) for body in ordered]


def _judge(resource_type: str, doubt: Doubt, equal: Sequence[Body]) -> tuple[list[Body], bool]:
    """Of equal resources those that the row's attempts made, and whether there are more that may be."""
    made: list[Body] = []
    unclear = False
    for body in equal:
        match _made_by(resource_type, doubt, body):
            case True:
                made.append(body)
            case None:
                unclear = True
    return made, unclear


def _made_by(resource_type: str, doubt: Doubt, body: Body) -> bool | None:
    """Whether the row's attempts made it: not there before, and not older. None when that cannot be told."""
    if doubt.before is not None and body.get("id") in doubt.before:
        return False
    if resource_type == "PaymentNotice":
        made = moment(body.get("created"))
        if made is None or doubt.since is None:
            return None
        return made >= doubt.since
    if resource_type == "QuestionnaireResponse" and body.get("status") == "entered-in-error":
        return False
    return True if doubt.before is not None or dated(resource_type, doubt.row) != doubt.row.body else None


# -- what a target has


def of_patient_of(client: FhirClient, resource_type: str, row: Row) -> list[Body]:
    """The target's resources among which the row's would be. Raises as searches do."""
    body = orjson.loads(row.body)
    *narrow, widest = searches(resource_type, body)
    for params in narrow:
        try:
            return whole_search(client, resource_type, params)
        except Refused:  # the parameter is not one of this target's
            continue
    return whole_search(client, resource_type, widest)


def whole_search(client: FhirClient, resource_type: str, params: dict[str, str]) -> list[Body]:
    """All that match; `Unknown` when the pages do not come to what the target counts."""
    found: dict[str, Body] = {}
    total = None
    for bundle in client.pages(resource_type, params):
        total = total if total_of(bundle) is None else total_of(bundle)
        found.update((body["id"], body) for body in resources_of(bundle, resource_type))
    if total is not None and total != len(found):
        raise Unknown(f"a search gave {len(found)} of {total}")
    return list(found.values())


def searches(resource_type: str, body: Body) -> list[dict[str, str]]:
    """Searches that find what equals the body, the narrowest first: what the interface shows, and what it may have."""
    if resource_type == "PaymentNotice":
        return [{"request": body["request"]["reference"]}]
    if resource_type == "QuestionnaireResponse":
        return [{"patient": body["subject"]["reference"]}]
    narrow = [{"patient": body["for"]["reference"]}] if "for" in body else []
    return [*narrow, {"owner": body["owner"]["reference"]} if "owner" in body else {}]


def ids_before(client: FhirClient, resource_type: str, row: Row) -> str | None:
    """Ids of what the patient has now, with blanks between; None where the target does not tell."""
    if row.patient_id is None:
        return None
    try:
        return " ".join(str(body["id"]) for body in of_patient_of(client, resource_type, row))
    except (*UNREADABLE, KeyError):
        return None


def ahead(client: FhirClient, now: datetime) -> int | None:
    """Microseconds that the target's clock is ahead of ours, at least."""
    said = client.server_time()
    return None if said is None else int((said - now.astimezone(UTC)) / timedelta(microseconds=1))

"""Checks of a row in doubt at the target, before a person settles it: is it absent, or is a resource another row's."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from pipelines.client.steps import step_for
from pipelines.corrections.moved_resources import owner_of
from pipelines.ledger.doubts import known_resources, made_before
from pipelines.ledger.rows import RecordRow
from pipelines.ledger.tables import NotPossible
from pipelines.loading.accepted import accepted_files
from pipelines.loading.lookup import ABSENT, FOUND, Doubt, look_up
from pipelines.loading.ownership import GIVEN_AGAIN, KnownResource
from pipelines.loading.row import Identity
from pipelines.loading.settling import as_doubts
from pipelines.session.session import Session

NO_NEED = "{}: nothing to decide: the next import settles it by itself, and cannot make a double"


def check_absent(session: Session, doubt: RecordRow, others: Collection[str]) -> None:
    """Raise `NotPossible` if the target may have a resource that the row's attempts made."""
    kind, files = doubt.resource_type, accepted_files(session.batches.folder(doubt.batch_id))
    step = step_for(session.connection.capabilities, kind)
    looked_up = as_doubts(session.ledger, session.target, kind, [doubt], files, step.named)
    if not looked_up:
        raise NotPossible(
            f"{doubt.name}: its source row is no longer in this home, so its content cannot be compared with the"
            " target's"
        )
    if looked_up[0].named and step.conditional:
        raise NotPossible(NO_NEED.format(doubt.name))
    known = known_resources(session.ledger, session.target, kind, [doubt])
    ours = {patient: ids | set(others) for patient, ids in {doubt.patient_id: set[str](), **known}.items()}
    identity = Identity(doubt.source, kind)
    there = made_before(session.ledger, session.target, doubt.source, kind, doubt.batch_id)
    finding = look_up(session.connection.client, identity, [_since_at_least(looked_up[0])], ours, there)[doubt.key]
    if finding.state == FOUND:
        made = f"{kind}/{finding.resource_id}"
        raise NotPossible(
            f"{doubt.name}: not sent again: {made} has its content, and was not there before the row was first sent;"
            f" settle it with chartferry doubts accept {doubt.name} --resource {made},"
            f" or, if another record made that resource, add --apart-from {made}"
        )
    if finding.state != ABSENT:
        hint = "; if other records made them, name each by --apart-from" if "/" in (finding.why or "") else ""
        raise NotPossible(f"{doubt.name}: not sent again: {finding.why}{hint}")


def is_anothers(session: Session, doubt: RecordRow, body: Mapping[str, Any]) -> bool:
    """True if a resource, as read, is another row's by the ledger, or by an identifier of its source."""
    named = owner_of(session, doubt.source, doubt.resource_type).why_not(KnownResource.of(doubt), body)
    known = known_resources(session.ledger, session.target, doubt.resource_type, [doubt])
    return named == GIVEN_AGAIN or any(body["id"] in ids for ids in known.values())


def _since_at_least(doubt: Doubt) -> Doubt:
    """Return the doubt, with its attempt's time by our clock if the target's time is unknown."""
    if doubt.since or not doubt.row.first_attempt_at:
        return doubt
    return replace(doubt, since=datetime.fromisoformat(doubt.row.first_attempt_at))

"""Settle changes of tasks whose outcome is unknown by reading the tasks. Nothing is sent."""

import json
from collections.abc import Collection, Sequence
from datetime import timedelta
from pathlib import Path

from pipelines.client.replies import NoResult
from pipelines.ledger.former_versions import earlier_versions
from pipelines.ledger.rows import Outcome, RecordRow
from pipelines.loading.accepted import rows_in
from pipelines.loading.lookup import not_asked
from pipelines.loading.ownership import KnownResource, Owner
from pipelines.loading.row import Identity
from pipelines.loading.settling import NOT_YET
from pipelines.loading.task_content import has
from pipelines.session.session import Session

SENT_AGAIN = "not there: the next import sends it again"
NOT_ITS_TASK = "its task is gone or another's: the next import settles it"


def settle_changes(
    session: Session, of: tuple[str, str], doubts: Collection[RecordRow], accepted: Sequence[Path]
) -> tuple[dict[str, str], dict[str, str]]:
    """Settle the changes of a source and type whose tasks have the content of their rows.

    Returns:
        The ids of these tasks, and why other changes are left, by key. A change whose row is in no file is in neither.
    """
    rows = rows_in(accepted, {doubt.key: doubt.content_hash for doubt in doubts})
    owner = Owner.at(session.connection.capabilities, session.target, Identity(*of))
    before = {each.key: each for each in earlier_versions(session.ledger, session.target, *of, list(rows), "kept")}
    done, left, due = list[RecordRow](), dict[str, str](), session.ledger.clock()
    due -= timedelta(seconds=session.pace.settling_seconds)
    for doubt in (doubt for doubt in doubts if doubt.key in rows):
        try:
            body = session.connection.client.read(of[1], str(doubt.resource_id))
        except NoResult as error:
            left[doubt.key] = not_asked(error).why or ""
            continue
        earlier = before[doubt.key].patient_id if doubt.key in before else None
        if body is None or owner.why_not(KnownResource.of(doubt, earlier), body):
            left[doubt.key] = NOT_ITS_TASK
        elif has(body, json.loads(rows[doubt.key].body)):
            done.append(doubt)
        else:
            left[doubt.key] = SENT_AGAIN if doubt.asked_at <= due else NOT_YET
    outcomes = [Outcome(doubt.key, doubt.generation, "updated", doubt.resource_id, None) for doubt in done]
    session.ledger.settle(session.target, *of, outcomes)
    return {doubt.key: str(doubt.resource_id) for doubt in done}, left

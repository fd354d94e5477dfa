"""Decisions by hand on rows in doubt. `undo.py` takes batches back.

Each decision runs under the target's lease, and is recorded with user, moment, command and subject.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import orjson

from fhir_service.interface.datatypes import ID_PATTERN
from pipelines.client.comparison import same_content
from pipelines.corrections.absence import NO_NEED, check_absent, is_anothers
from pipelines.home.exits import ALL_LOADED, CommandResult
from pipelines.ledger.doubts import doubtful
from pipelines.ledger.former_versions import earlier_versions, plan_anew
from pipelines.ledger.rows import Outcome, RecordRow
from pipelines.ledger.tables import NotPossible
from pipelines.loading.accepted import accepted_files, rows_in
from pipelines.runs.counting import recount
from pipelines.session.needed_reads import reading
from pipelines.session.session import Session


@dataclass(frozen=True)
class DecisionMessage(CommandResult):
    """The message about a decision, in one line."""

    line: str
    exit_code: int = ALL_LOADED

    def lines(self) -> Iterator[str]:
        yield self.line


def accept(session: Session, name: str, resource_id: str) -> str:
    """Settle a row in doubt by a person's word with its resource. Raises `NotPossible`, `TargetUnusable`."""
    given, resource_id = resource_id, resource_id.rpartition("/")[2]
    if not re.fullmatch(ID_PATTERN, resource_id, re.ASCII):
        raise NotPossible(f"{given!a} is no id of a resource (1 to 64 letters, digits, '-' and '.')")
    with session.lease():
        doubt = _made(session, name)
        kind = doubt.resource_type
        with reading(kind):
            body = session.connection.client.read(kind, resource_id)
        if body is None:
            raise NotPossible(f"the target has no {kind}/{resource_id}")
        if is_anothers(session, doubt, body):
            raise NotPossible(f"{kind}/{resource_id} belongs to another row already")
        files = accepted_files(session.batches.folder(doubt.batch_id))
        row = rows_in(files, {doubt.key: doubt.content_hash}).get(doubt.key)
        if row is None:
            raise NotPossible(
                f"{name}: its source row is no longer in this home, so its content cannot be compared with the target's"
            )
        if not same_content(kind, orjson.loads(row.body), body):
            raise NotPossible(f"{kind}/{resource_id} has other content than {name}")
        session.decide("doubts accept", [name], f"{kind}/{resource_id}")
        replaces = earlier_versions(session.ledger, session.target, doubt.source, kind, [doubt.key])
        state = "superseded" if replaces else "adopted"
        outcome = Outcome(doubt.key, doubt.generation, state, resource_id, None)
        session.ledger.settle(session.target, doubt.source, kind, [outcome])
        recount(session.ledger, session.target, doubt.batch_id)
    return f"{name}: {kind}/{resource_id}"


def resend(session: Session, name: str, apart_from: Collection[str] = ()) -> str:
    """Let the next import send a row in doubt again, because a person is sure that the target does not have it.

    The row is looked up first. apart_from: resources that a person knows to be another row's. Raises `NotPossible`.
    """
    others = {each.rpartition("/")[2] for each in apart_from}
    with session.lease() as lease:
        doubt = _made(session, name)
        check_absent(session, doubt, others)
        of = (doubt.source, doubt.resource_type, doubt.key, doubt.generation)
        session.decide("doubts resend", [name], ", ".join(f"apart from {other}" for other in sorted(others)) or None)
        plan_anew(session.ledger, lease, [of], None)
        recount(session.ledger, session.target, doubt.batch_id)
    return f"{name}: the next import sends it again"


def _made(session: Session, name: str) -> RecordRow:
    """Return a row in doubt that may have made a resource. Raises `NotPossible` for others, also for a change."""
    batch_id, _, line = name.rpartition(":")
    found = [doubt for doubt in doubtful(session.ledger, session.target, batch_id) if str(doubt.line) == line]
    if not found:
        raise NotPossible(f"{name}: no such row in doubt (they are named <batch>:<line>; see: chartferry status BATCH)")
    if found[0].is_change:
        raise NotPossible(NO_NEED.format(name))
    return found[0]

"""Look up the rows in doubt of a target: settle those that are clear, and name the others with reasons."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pipelines.client.steps import step_for
from pipelines.home.exits import ALL_LOADED, IN_DOUBT, CommandResult
from pipelines.ledger.doubts import doubtful
from pipelines.loading.accepted import accepted_files
from pipelines.loading.settling import NOT_YET, settle_doubts
from pipelines.runs.changes_in_doubt import SENT_AGAIN, settle_changes
from pipelines.runs.counting import recount
from pipelines.runs.lines import SHOWN_NEXT
from pipelines.session.session import Session

BY_ITSELF = (SENT_AGAIN, NOT_YET)
"""Why rows are left that no person has to decide."""


@dataclass
class ResolvedDoubts(CommandResult):
    """Rows in doubt that were looked up, by `<batch>:<line>`: an adopted `<Type>/<id>`, or why the row is left."""

    adopted: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        return IN_DOUBT if self.left else ALL_LOADED

    def lines(self) -> Iterator[str]:
        for name, resource in self.adopted.items():
            yield f"{name}: found, {resource}"
        if self.adopted:
            yield SHOWN_NEXT
        for name, why in self.left.items():
            yield f"{name}: still in doubt: {why}"
        if not self.adopted and not self.left:
            yield "no rows in doubt"


def resolve(session: Session, batch_id: str | None = None) -> ResolvedDoubts:
    """Look up rows in doubt of the target, or of one batch, and adopt those that are clear. Sends nothing.

    Raises `NotPossible` for a batch that the ledger does not know.
    """
    if batch_id is not None:
        session.ledger.known_batch(session.target, batch_id)
    with session.lease():
        return resolve_held(session, batch_id)


def resolve_held(session: Session, batch_id: str | None) -> ResolvedDoubts:
    """Do what `resolve` does, under a lease that the caller holds."""
    ledger, target, resolved = session.ledger, session.target, ResolvedDoubts()
    found = doubtful(ledger, target, batch_id)
    for of in sorted({(doubt.source, doubt.resource_type, doubt.batch_id) for doubt in found}):
        accepted = accepted_files(session.batches.folder(of[2]))
        names = {doubt.key: doubt for doubt in found if (doubt.source, doubt.resource_type, doubt.batch_id) == of}
        settled = settle_doubts(
            ledger,
            session.connection.client,
            target,
            of,
            accepted,
            step=step_for(session.connection.capabilities, of[1]),
            settling_seconds=session.pace.settling_seconds,
        )
        for found_row in settled.adopted:
            resolved.adopted[names.pop(found_row.row.key).name] = f"{of[1]}/{found_row.resource_id}"
        whys = {row.key: why for row, why in settled.left}
        whys |= {row.key: SENT_AGAIN for row in settled.resend}
        changes = [doubt for doubt in names.values() if doubt.is_change]
        changed, left = settle_changes(session, of[:2], changes, accepted)
        for key, resource_id in changed.items():
            resolved.adopted[names.pop(key).name] = f"{of[1]}/{resource_id}"
        whys |= left
        resolved.left |= {doubt.name: whys.get(key, "its source row is not here") for key, doubt in names.items()}
        recount(ledger, target, of[2])
    return resolved

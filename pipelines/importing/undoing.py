"""`undo`: takes a batch back, and publishes the tables, which had its records as created."""

from pipelines.corrections.undo import Undone, undo
from pipelines.importing.closing import publish_into, summary_of
from pipelines.session.session import Session


def take_back(session: Session, batch_id: str, dry_run: bool) -> Undone:
    """Take a batch back where the interface allows; publish if anything was taken back. Raises as `undo` does."""
    found = undo(session, batch_id, dry_run)
    if found.taken and not dry_run and not found.unusable:
        summary = summary_of(session)
        publish_into(session, summary)
        if summary.error:
            session.progress.say(f"{summary.error}; until the next publication the tables have the records as created")
    return found

"""A received file through the validate stage, with what the ledger and the target know of it."""

from collections.abc import Mapping
from pathlib import Path

from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import Received
from pipelines.runs.run import Lines
from pipelines.session.session import Session
from pipelines.session.spellings import known_spellings
from pipelines.validation.outcome import Validated
from pipelines.validation.stage import validate
from pipelines.validation.withheld import withhold


def validate_received(
    session: Session,
    received: Received,
    feed: Feed,
    folder: Path,
    only: Lines | None = None,
    before: Mapping[int, str] = {},
) -> Validated:
    """Validate a file with what the ledger and the target know. only, before: as in `validate`.

    Raises `Unreadable`, `TargetUnusable`.
    """
    progress, done = session.progress, 0

    def advance(records: int) -> None:
        nonlocal done
        progress.advance(records - done)
        done = records

    progress.stage("validate", received.batch_id)
    validated = validate(
        received,
        feed,
        session.snapshot_for(feed.resource),
        session.connection.site,
        folder,
        strict=session.strict,
        progress=advance,
        only=only,
        before=before,
        known_as=known_spellings(session.ledger, session.target, feed),
        words=session.words_for(feed.resource),
        people=session.people.tables(received, feed),
    )
    withhold(session, feed, received.batch_id, validated)
    advance(validated.records)
    progress.end(f"as its {validated.found_in} found it; it was not checked again" if validated.found_in else "")
    return validated

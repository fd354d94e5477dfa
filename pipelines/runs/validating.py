"""The validate stage of a run, with what the ledger and the target know of its file, and its rejects in the ledger."""

from collections.abc import Mapping
from pathlib import Path

from pipelines.feeds.files.catalog import Feed
from pipelines.home import traces
from pipelines.home.batch import Received
from pipelines.ledger.rejects import open_by_line
from pipelines.receiving.stage import check_copy
from pipelines.runs.manifest import write_questionnaires
from pipelines.runs.rejects_left import rejects_left
from pipelines.runs.run import Lines, Run
from pipelines.session.session import Session
from pipelines.session.spellings import known_spellings
from pipelines.validation.outcome import Validated
from pipelines.validation.stage import validate
from pipelines.validation.withheld import withhold


def validate_run(session: Session, run: Run) -> Validated:
    """The validate stage, and its rejects in the ledger. Raises `Unreadable`, `TargetUnusable`."""
    with traces.stage("validate", run.received.batch_id, feed=run.feed.name, run=run.number):
        return _validated(session, run)


def _validated(session: Session, run: Run) -> Validated:
    check_copy(run.received)
    write_questionnaires(run.folder, session.snapshot_for(run.feed.resource).versions())
    before = open_by_line(session.ledger, session.target, run.received.batch_id) if run.before else {}
    validated = validate_received(session, run.received, run.feed, run.folder, run.only, before)
    for rejects in rejects_left(session, run.feed, validated):
        session.ledger.reject(session.target, run.feed.source, run.feed.resource, run.received.batch_id, rejects)
    return validated


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
    progress.end()
    return validated

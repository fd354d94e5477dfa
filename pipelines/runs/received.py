"""Validate a received file with what the ledger and the target know of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from fhir_service.leaving import raise_interrupt
from pipelines.feeds.files.catalog import Feed
from pipelines.home import disk
from pipelines.home.batch import NotReadToItsEnd, ReceivedFile
from pipelines.home.exits import ExplainedError
from pipelines.home.faults import fault_clause
from pipelines.runs.run import Lines
from pipelines.session.key_spellings import known_spellings
from pipelines.session.session import Session
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.stage import validate
from pipelines.validation.withheld_files import withhold


def validate_received(
    session: Session,
    received: ReceivedFile,
    feed: Feed,
    folder: Path,
    only: Lines | None = None,
    before: Mapping[int, str] = {},
) -> ValidationResult:
    """Validate a file with what the ledger and the target know. only, before: as in `validate`.

    Raises `Unreadable`, `TargetUnusable`.
    """
    progress, done = session.progress, 0

    def advance(records: int) -> None:
        nonlocal done
        progress.advance(records - done)
        done = records

    progress.stage("validate", received.batch_id)
    known_as = known_spellings(session.ledger, session.target, feed)
    snapshot, words = session.snapshot_for(feed.resource), session.words_for(feed.resource)
    with _faults_of(received):
        validated = validate(
            received,
            feed,
            snapshot,
            session.connection.site,
            folder,
            strict=session.strict,
            progress=advance,
            only=only,
            before=before,
            known_as=known_as,
            words=words,
            people=session.people.tables(received, feed),
        )
    withhold(session, feed, received.batch_id, validated)
    advance(validated.records)
    progress.end(f"as its {validated.found_in} found it; it was not checked again" if validated.found_in else "")
    return validated


@contextmanager
def _faults_of(received: ReceivedFile) -> Iterator[None]:
    """Treat an unforeseen failure as one of the file, so that other files go on. Failures of disk and ledger concern
    all files, and are raised.
    """
    try:
        yield
    except (ExplainedError, SQLAlchemyError, OSError):
        raise
    except Exception as error:
        raise_interrupt(error)
        if disk.is_full(error):
            raise
        raise NotReadToItsEnd(f"{received.file_name}: {fault_clause(error)}; nothing was sent by this run") from None

"""The validate stage of a run, and its rejects in the ledger."""

import json
from collections.abc import Iterator
from pathlib import Path

from pipelines.feeds.files.catalog import Feed
from pipelines.home import spill, traces
from pipelines.home.files import write_whole
from pipelines.ledger.rejects import open_by_line
from pipelines.ledger.rows import Reason, Reject
from pipelines.ledger.standing import Standing, standing_of
from pipelines.receiving.stage import check_copy
from pipelines.runs.manifest import QUESTIONNAIRES
from pipelines.runs.run import Run
from pipelines.session.answers import answers_of
from pipelines.session.session import Session
from pipelines.session.spellings import known_spellings
from pipelines.validation.outcome import Validated
from pipelines.validation.renamed import known_elsewhere
from pipelines.validation.stage import validate
from pipelines.validation.tables import KNOWN
from pipelines.validation.unconfirmed import unconfirmed

ROWS_A_WRITE = 2_000
OF_REJECT = "line lines key stage patient_id amount_cents reasons content_hash".split()
OF_REASON = "rule_id expression column message retryable line".split()


def validate_run(session: Session, run: Run) -> Validated:
    """The validate stage, and its rejects in the ledger. Raises `Unreadable`, `TargetUnusable`."""
    with traces.stage("validate", run.received.batch_id, feed=run.feed.name, run=run.number):
        return _validated(session, run)


def _validated(session: Session, run: Run) -> Validated:
    progress = session.progress
    progress.stage("validate", run.received.batch_id)
    check_copy(run.received)
    done = 0

    def advance(records: int) -> None:
        nonlocal done
        progress.advance(records - done)
        done = records

    snapshot = session.snapshot_for(run.feed.resource)
    if snapshot.questionnaires:
        write_whole(run.folder / QUESTIONNAIRES, json.dumps(snapshot.versions()).encode())
    validated = validate(
        run.received,
        run.feed,
        snapshot,
        session.connection.site,
        run.folder,
        strict=session.strict,
        progress=advance,
        only=run.only,
        before=open_by_line(session.ledger, session.target, run.received.batch_id) if run.before else {},
        known_as=known_spellings(session.ledger, session.target, run.feed),
        words=session.words_for(run.feed.resource),
        people=session.people.tables(run.received, run.feed),
    )
    validated.known_elsewhere = known_elsewhere(session, run.feed, run.received.batch_id, validated)
    validated.unconfirmed = unconfirmed(session, run.feed, run.received.batch_id, validated)
    progress.advance(validated.records - done)
    progress.end()
    for rejects in rejects_left(session, run.feed, validated):
        session.ledger.reject(session.target, run.feed.source, run.feed.resource, run.received.batch_id, rejects)
    return validated


def rejects_left(session: Session, feed: Feed, validated: Validated) -> Iterator[list[Reject]]:
    """Yield the rejects, without doubtful records that the target has with this content: these count as accepted."""
    with spill.Writer(validated.folder / "known.parquet", KNOWN, needed=False) as there:
        for rejects in _rejects(validated.folder):
            yield _without_known(session, feed, rejects, validated, there)


def _without_known(
    session: Session, feed: Feed, rejects: list[Reject], validated: Validated, there: spill.Writer
) -> list[Reject]:
    keys = [reject.source_key for reject in rejects if reject.content_hash and reject.source_key]
    known = session.ledger.known(session.target, feed.source, feed.resource, keys) if keys else {}
    left: list[Reject] = []
    for reject in rejects:
        record = known.get(reject.source_key or "")
        content = reject.content_hash or ""
        if record and content and standing_of(record) is Standing.THERE and record.holds(content):
            about = (record.patient_id, record.source_at, record.amount_cents)
            there.add(reject.line, reject.lines, record.key, *about)
            validated.is_known(record.amount_cents or 0, {reason.rule_id for reason in reject.reasons})
        else:
            left.append(reject)
    return left


def _rejects(folder: Path) -> Iterator[list[Reject]]:
    answers = answers_of(folder)
    for part in spill.batches(folder / "rejects.parquet", ROWS_A_WRITE, OF_REJECT):
        yield [
            Reject(
                row["line"],
                row["lines"],
                row["key"],
                row["stage"],
                row["patient_id"],
                None,
                row["amount_cents"],
                [Reason(*(reason[name] for name in OF_REASON)) for reason in row["reasons"]],
                answers.get(row["line"], ()),
                row["content_hash"],
            )
            for row in part.to_pylist()
        ]

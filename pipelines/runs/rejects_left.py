"""The rejects of a run for the ledger: all but doubtful records that the target has with this content.

A record that names a reject which is done with gets that as a further reason.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from pipelines.feeds.files.catalog import Feed
from pipelines.home import spill
from pipelines.ledger.row_fates import AnsweringRow, RejectFate, fates
from pipelines.ledger.rows import Reason, Reject
from pipelines.ledger.standing import Standing, standing_of
from pipelines.loading.accepted import utc_texts
from pipelines.loading.ended_records import SENTENCES, reason_of
from pipelines.session.answered_rejects import answers_of
from pipelines.session.session import Session
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.tables import KNOWN

ROWS_A_WRITE = 2_000
OF_REJECT = "line lines key stage patient_id source_at amount_cents reasons content_hash".split()
OF_REASON = "rule_id expression column message retryable line".split()


def rejects_left(session: Session, feed: Feed, batch_id: str, validated: ValidationResult) -> Iterator[list[Reject]]:
    """Yield the rejects, without doubtful records that the target has with this content: these count as accepted."""
    answers = answers_of(validated.folder)
    of = (session.target, feed.source, feed.resource)
    with spill.ParquetWriter(validated.folder / "known.parquet", KNOWN, needed=False) as there:
        for rejects in _rejects(validated.folder, answers):
            left = _without_known(session, feed, rejects, validated, there)
            naming = [AnsweringRow(reject.source_key, answers[reject.line]) for reject in left if reject.answers]
            found = iter(fates(session.ledger, of, batch_id, naming) if naming else ())
            yield [_with_ended(each, next(found), validated) if each.answers else each for each in left]


def _without_known(
    session: Session, feed: Feed, rejects: list[Reject], validated: ValidationResult, there: spill.ParquetWriter
) -> list[Reject]:
    """Return the rejects without the doubtful records that the target has with just this content."""
    keys = [reject.source_key for reject in rejects if reject.content_hash and reject.source_key]
    known = session.ledger.known(session.target, feed.source, feed.resource, keys) if keys else {}
    left: list[Reject] = []
    for reject in rejects:
        record = known.get(reject.source_key or "")
        holds = record is not None and reject.content_hash is not None and record.holds(reject.content_hash)
        if record and holds and standing_of(record) is Standing.THERE:
            about = (record.patient_id, record.source_at, record.amount_cents)
            there.add(reject.line, reject.lines, record.key, *about)
            validated.is_known(record.amount_cents or 0, {reason.rule_id for reason in reject.reasons})
        else:
            left.append(reject)
    return left


def _with_ended(reject: Reject, fate: RejectFate, validated: ValidationResult) -> Reject:
    if not (fate.is_named and fate in SENTENCES):
        return reject
    validated.reasons["LEDGER-07"] += 1
    return reject._replace(reasons=[*reject.reasons, reason_of(fate)])


def _rejects(folder: Path, answers: Mapping[int, Mapping[str, str]]) -> Iterator[list[Reject]]:
    for part in spill.batches(folder / "rejects.parquet", ROWS_A_WRITE, OF_REJECT):
        yield [
            Reject(
                row["line"],
                row["lines"],
                row["key"],
                row["stage"],
                row["patient_id"],
                at,
                row["amount_cents"],
                [Reason(*(reason[name] for name in OF_REASON)) for reason in row["reasons"]],
                list(answers.get(row["line"], ())),
                row["content_hash"],
            )
            for row, at in zip(part.drop_columns("source_at").to_pylist(), utc_texts(part["source_at"]), strict=True)
        ]

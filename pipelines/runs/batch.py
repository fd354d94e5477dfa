"""One batch through the stages, receive, validate, load, and the publication at the end.

Used by the command line and by Dagster: `import_file` does all; `begin`, `validate_run`, `load_run`, `end` a step each.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.client.client import TargetUnusable
from pipelines.feeds.files.catalog import Feed
from pipelines.home import spill
from pipelines.home.batch import Received, Unreadable
from pipelines.home.files import write_whole
from pipelines.home.progress import Progress
from pipelines.home.scratch import remove_abandoned
from pipelines.home.spill import batches
from pipelines.ledger.lease import Holder, Lease, utc_text
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rejects import open_by_line
from pipelines.ledger.rows import Reason, Reject, SoFar
from pipelines.ledger.so_far import with_outcomes
from pipelines.ledger.standing import Standing, standing_of
from pipelines.ledger.states import OUTCOMES
from pipelines.ledger.tables import COPAYMENTS, LINE_COUNTS, NotPossible
from pipelines.loading.stage import Batch, Loaded, load
from pipelines.receiving.stage import check_copy, receive
from pipelines.reports.publish import Publication, publish
from pipelines.runs.cut_off import close_cut_off, lines_left, was_retried
from pipelines.runs.lost import lost_before
from pipelines.runs.manifest import QUESTIONNAIRES, rules_version, software_version, write_manifest
from pipelines.runs.run import Lines, Result, Run
from pipelines.session.answers import answers_of
from pipelines.session.session import Session, Waiting
from pipelines.session.spellings import known_spellings
from pipelines.session.sweeping import sweep_target
from pipelines.validation.renamed import known_elsewhere
from pipelines.validation.stage import Validated, validate
from pipelines.validation.sums import total_said
from pipelines.validation.tables import KNOWN
from pipelines.validation.unconfirmed import unconfirmed

ROWS_A_WRITE = 2_000
ENDED = ("finished", "failed", "stopped")


# -- one batch


def import_file(session: Session, waiting: Waiting, remap: bool = False) -> Result:
    """One file through all stages. Says what became of it; raises `LedgerError` and `LeaseLost` only.

    remap: rows that changed only because the feed did follow its policy too.
    """
    try:
        received = waiting.received or receive(waiting.path, waiting.feed, session.home, inbox=session.inbox)
    except Unreadable as error:
        gone = not waiting.path.exists() and not waiting.path.is_symlink()
        message = f"{waiting.name}: taken by another importer, or removed" if gone else str(error)
        return Result(None, None, waiting.feed.name, waiting.name, "gone" if gone else "failed", message=message)
    return run_batch(session, received, waiting.feed, whole=waiting.received is None or remap, remap=remap)


def run_batch(session: Session, received: Received, feed: Feed, whole: bool, remap: bool = False) -> Result:
    """A received file through validate and load; see `begin`. Raises `LedgerError` and `LeaseLost` only."""
    try:
        run = begin(session, received, feed, whole, remap=remap)
    except NotPossible as error:
        return Result(received.batch_id, None, feed.name, received.file_name, "failed", message=str(error))
    return run_through(session, run)


def run_through(session: Session, run: Run) -> Result:
    """A run through validate and load, to its end."""
    try:
        validated = validate_run(session, run)
    except Unreadable as error:
        return end_without_load(session, run, Validated(run.folder), "failed", str(error))
    except TargetUnusable as error:
        return end_without_load(session, run, Validated(run.folder), "running", str(error))
    if validated.stop:
        return end_without_load(session, run, validated, "stopped", f"{run.received.file_name}: {validated.stop}")
    return end(session, run, validated, load_run(session, run, validated))


def begin(
    session: Session,
    received: Received,
    feed: Feed,
    whole: bool = False,
    adopting: bool = False,
    only: Lines | None = None,
    remap: bool = False,
    taken_back: bool = False,
) -> Run:
    """Note batch and run in the ledger and make the run's folder.

    only, remap, taken_back: as in `Run`. Where such a run of a finished batch was cut off, or left
    doubts, this one is over what is left, unless it is to be over the whole file.
    Raises `NotPossible` when sending could make second ones, since the ledger of runs is lost; not while adopting.
    """
    target, batch_id = session.target, received.batch_id
    if not (adopting or session.is_safe(feed.resource)) and (lost := lost_before(session, feed, batch_id)):
        what = "it" if lost == batch_id else f"nothing was sent, since {lost}"
        raise NotPossible(
            f"{batch_id}: {what} was loaded before, and the ledger does not know that: chartferry verify --adopt"
        )
    before = note_batch(session, received, feed)
    if before == "running" and not whole and was_retried(session, batch_id):
        before, only = "finished", lines_left(session, batch_id) if only is None else only
    if remap:
        session.decide("import --remap", [batch_id])
    number = session.ledger.start_run(
        target,
        batch_id,
        feed_hash=feed.hash,
        rules_version=rules_version(),
        software_version=software_version(),
    )
    batch = session.home / "batches" / batch_id
    remove_abandoned(batch.glob("run-*"))
    folder = _run_folder(batch, number)
    [started_at] = (run["started_at"] for run in session.ledger.runs(target, batch_id) if run["run"] == number)
    run = Run(received, feed, number, folder, before, time.monotonic(), started_at, only, remap, taken_back)
    write_manifest(session, run, _result(run, Validated(folder), {}, None, "running"), None)
    return run


def note_batch(session: Session, received: Received, feed: Feed) -> str | None:
    """Note a batch in the ledger where it is new; return the state that it had, None of a new one."""
    known = session.ledger.batch(session.target, received.batch_id)
    if known is None:
        session.ledger.start_batch(
            session.target,
            received.batch_id,
            feed=feed.name,
            source=feed.source,
            resource_type=feed.resource,
            file_name=received.file_name,
            file_sha256=received.sha256,
            received_at=utc_text(received.received_at),
        )
    return known["state"] if known else None


def _run_folder(batch: Path, number: int) -> Path:
    """`run-<n>`; with another ledger or target the numbers start anew, and a folder of that name is kept as it is."""
    names = [f"run-{number}", *(f"run-{number}-{copy}" for copy in range(2, 1000))]
    for name in names:
        try:
            (batch / name).mkdir(parents=True, mode=0o700)
        except FileExistsError:
            continue
        return batch / name
    raise FileExistsError(batch / names[-1])


def validate_run(session: Session, run: Run) -> Validated:
    """The validate stage, and its rejects in the ledger. Raises `Unreadable`, `TargetUnusable`."""
    progress = session.progress
    progress.stage("validate", run.received.batch_id)
    check_copy(run.received)
    done = 0

    def advance(records: int) -> None:
        nonlocal done
        progress.advance(records - done)
        done = records

    snapshot = session.snapshot_for(run.feed)
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
    columns = "line lines key stage patient_id amount_cents reasons content_hash".split()
    answers = answers_of(folder)
    for part in batches(folder / "rejects.parquet", ROWS_A_WRITE, columns):
        yield [
            Reject(
                row["line"],
                row["lines"],
                row["key"],
                row["stage"],
                row["patient_id"],
                None,
                row["amount_cents"],
                [Reason(*(reason[name] for name in REASON)) for reason in row["reasons"]],
                answers.get(row["line"], ()),
                row["content_hash"],
            )
            for row in part.to_pylist()
        ]


REASON = "rule_id expression column message retryable line".split()


def load_run(session: Session, run: Run, validated: Validated) -> Loaded:
    """The load stage, under the target's lease."""
    batch_id, progress = run.received.batch_id, session.progress
    resuming = run.before not in ENDED
    counts = run_counts(validated, Loaded())
    session.ledger.count_run(session.target, SoFar(batch_id, run.number, counts))
    batch = Batch(
        session.target,
        batch_id,
        run.feed,
        run.folder,
        resuming,
        session.pace,
        run.remap,
        run.number,
        counts,
        run.taken_back,
    )
    with lease_of(session) as lease:
        if run.before in ENDED and validated.accepted > validated.skipped:
            session.ledger.reopen_batch(session.target, batch_id)
        progress.stage("load", batch_id, validated.accepted - validated.skipped)
        loaded = load(
            batch, session.connection.client, session.connection.capabilities, session.ledger, lease, progress
        )
        progress.end(_in_words(loaded), "stopped" if loaded.unusable else "done")
    return loaded


def _in_words(loaded: Loaded) -> str:
    """Return the rows of a load by outcome."""
    counted = ((name, loaded.counts[name]) for name in (*OUTCOMES, "rejected"))
    said = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in counted if number)
    return said or ("nothing loaded" if loaded.unusable else "nothing to load")


def lease_of(session: Session) -> Lease:
    """The target's lease, which says whom it waits for."""
    return session.ledger.lease(session.target, _teller(session.progress))


def _teller(progress: Progress) -> Any:
    told: set[str] = set()

    def waiting(holder: Holder) -> None:
        if holder.owner not in told:
            told.add(holder.owner)
            progress.say(f"waiting for process {holder.pid} on {holder.host}, which loads into this target")

    return waiting


# -- the end of a batch


def end(session: Session, run: Run, validated: Validated, loaded: Loaded) -> Result:
    """Close run and batch in the ledger and write the manifest."""
    counts = run_counts(validated, loaded)
    waiting = counts["accepted"] - sum(counts[name] for name in OUTCOMES)
    state = "running" if waiting or counts["in_doubt"] else "finished"
    result = _result(run, validated, counts, loaded.unusable or _told(run, validated, loaded), state)
    result.taken_back = loaded.undone
    result.reasons = dict(Counter(result.reasons) + loaded.reasons)
    result.waiting, result.unusable = waiting, loaded.unusable is not None
    result.waits_for = sorted(loaded.waits_for)
    _close(session, run, result)
    return result


def _told(run: Run, validated: Validated, loaded: Loaded) -> str | None:
    """The sentences for a person: a total among the rows, rows taken back or read otherwise, rows that wait."""
    said = [_total(run, validated), _taken_back(run, loaded), _read_otherwise(run, loaded), _waits(run, loaded)]
    return "; ".join(each for each in said if each) or None


def _total(run: Run, validated: Validated) -> str | None:
    said = total_said(validated)
    return f"{run.received.batch_id}: {said}" if said else None


def _read_otherwise(run: Run, loaded: Loaded) -> str | None:
    if not loaded.read_otherwise:
        return None
    return (
        f"{run.received.batch_id}: {loaded.read_otherwise:,} rows are read otherwise since the feed file changed, and"
        f" stay as they were loaded; chartferry import --remap applies the feed's policy to them"
        f' (changed = "{run.feed.changed}")'
    )


def _waits(run: Run, loaded: Loaded) -> str | None:
    if not loaded.waits_for:
        return None
    names = ", ".join(sorted(loaded.waits_for))
    return (
        f"{run.received.batch_id}: rows wait for others of their patient, encounter or note in {names}; chartferry"
        f" import goes on once those are settled, and chartferry status BATCH names their rows in doubt"
    )


def _taken_back(run: Run, loaded: Loaded) -> str | None:
    batch_id, said = run.received.batch_id, []
    if loaded.undone:
        said.append(f"{loaded.undone:,} of these were taken back by undo; chartferry import --again {batch_id}")
    if loaded.taken_back:
        said.append(
            f"{loaded.taken_back:,} rows are at the target under their keys and have been taken back there; chartferry"
            f" import --again {batch_id} makes them anew"
        )
    return f"{batch_id}: {'. '.join(said)}" if said else None


def end_without_load(session: Session, run: Run, validated: Validated, state: str, message: str) -> Result:
    """End the run of a file from which nothing was sent."""
    session.progress.end()
    result = _result(run, validated, run_counts(validated, Loaded()), message, state)
    result.unusable = state == "running"
    _close(session, run, result)
    return result


def run_counts(validated: Validated, loaded: Loaded) -> dict[str, int]:
    """Return the ledger's counts of a run: lines, records, outcomes, and amounts in cents."""
    names = (*LINE_COUNTS, "amount_received", "amount_accepted", *COPAYMENTS)
    return loaded.counts_with({name: getattr(validated, name) for name in names})


def _result(run: Run, validated: Validated, counts: dict[str, int], message: str | None, state: str) -> Result:
    return Result(
        run.received.batch_id,
        run.number,
        run.feed.name,
        run.received.file_name,
        state,
        counts,
        seconds=round(time.monotonic() - run.began, 3),
        message=message,
        reasons=dict(validated.reasons),
        warnings=dict(validated.warnings),
        unnamed_columns=list(validated.unnamed_columns),
        without_claim=validated.without_claim if validated.copayments else None,
    )


def _close(session: Session, run: Run, result: Result) -> None:
    ledger, target, batch_id = session.ledger, session.target, run.received.batch_id
    ledger.finish_run(target, batch_id, run.number, state=result.state, counts=result.counts, message=result.message)
    before = ledger.batch(target, batch_id) if run.before == "finished" else None
    is_open = result.counts["in_doubt"] or result.waits_for
    state = "finished" if before and not is_open else result.state
    counts: Mapping[str, int] = before or result.counts
    if state == "finished" and (before or run.only is None):
        counts = _first_outcomes(ledger, target, batch_id, counts)
    elif state == "running":
        counts = with_outcomes(ledger, target, batch_id, counts)
    if before or run.only is None:
        ledger.finish_batch(target, batch_id, state, counts, before["finished_at"] if before else None)
    close_cut_off(session, run)
    ledger.copy_journal()
    write_manifest(session, run, result, utc_text(datetime.now(UTC)))


def _first_outcomes(ledger: Ledger, target: str, batch_id: str, counts: Mapping[str, int]) -> dict[str, int]:
    """The batch's own counts: each record's first outcome, whatever later runs of the same file met."""
    rows = ledger.row_counts(target, batch_id)
    outcomes = {name: rows.get(name, (0, 0)) for name in OUTCOMES}
    accepted = sum(number for number, _ in outcomes.values())
    kept = {name: counts[name] for name in ("header", "lines", "not_taken", "records", "amount_received", *COPAYMENTS)}
    return {
        **kept,
        "accepted": accepted,
        "rejected": counts["records"] - accepted,
        **{name: number for name, (number, _) in outcomes.items()},
        "amount_accepted": sum(cents for _, cents in outcomes.values()),
        "amount_created": outcomes["created"][1],
    }


def recount(ledger: Ledger, target: str, batch_id: str) -> None:
    """The batch's counts after rows of it were settled outside a run; finished once nothing of it is open."""
    before = ledger.batch(target, batch_id)
    if before is None:
        return
    counts = _first_outcomes(ledger, target, batch_id, before)
    if before["state"] == "finished":
        left = any(record.state in ("planned", "sending") for record in ledger.unsettled(target, batch_id))
        ledger.finish_batch(target, batch_id, "running" if left else "finished", counts)
        return
    whole = counts["accepted"] == before["accepted"] and not ledger.unsettled(target, batch_id)
    kept = ("accepted", "rejected", "amount_accepted")
    ledger.finish_batch(
        target, batch_id, "finished" if whole else before["state"], {**counts, **{name: before[name] for name in kept}}
    )


# -- publishing


def publish_reports(session: Session) -> Publication:
    """Sweep the reports and publish all tables in one step. Raises `TargetUnusable`, `PublicationError`."""
    session.progress.stage("publish", "reports")
    published = publish(session.home, session.ledger, sweep_target(session))
    session.ledger.copy_journal()
    session.progress.end()
    return published

"""End a run: write its counts and its batch's to the ledger, and its manifest."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipelines.home.batch import NotReadToItsEnd, UnreadableFile
from pipelines.ledger.batch_counts import are_of_lines, counts_so_far, hold_batch, rows_left, with_outcomes
from pipelines.ledger.states import ASKED, CUT_OFF, LANDED, NOT_LOADED, OUTCOMES
from pipelines.loading.load_counts import LoadCounts, without_outcome
from pipelines.reports.newer_load import tell_newer
from pipelines.runs.counting import run_counts
from pipelines.runs.killed_runs import close_earlier
from pipelines.runs.manifest import write_manifest
from pipelines.runs.run import Run, RunResult
from pipelines.runs.sentences import run_sentences
from pipelines.session.session import Session
from pipelines.validation.outcome import ValidationResult


def end(
    session: Session, run: Run, validated: ValidationResult, loaded: LoadCounts, is_retried: bool = False
) -> RunResult:
    """Close run and batch in the ledger, and write the manifest.

    is_retried: True if an earlier try of this first run of its batch sent rows. They count as this run's.
    """
    counts = run_counts(validated, loaded)
    if is_retried:
        counts = with_outcomes(session.ledger, session.target, run.received.batch_id, counts)
    waiting, state = without_outcome(counts), "running" if loaded.has_left(counts) else "finished"
    result = result_of(run, validated, counts, loaded.unusable or run_sentences(run, validated, loaded), state)
    result.taken_back = loaded.noted["undone"]
    result.reasons, result.refused_by = dict(Counter(result.reasons) + loaded.reasons), dict(loaded.reasons)
    result.waiting, result.unusable = waiting, loaded.unusable is not None
    result.waits_for = sorted(loaded.waits_for)
    _close(session, run, result, loaded.is_cut_short or bool(loaded.waits_for or counts["in_doubt"]))
    if waiting and session.ledger.known_batch(session.target, run.received.batch_id)["state"] != "running":
        result.sent_by = "chartferry rejects retry"  # their rejects are open
    return result


def end_unread(session: Session, run: Run, error: UnreadableFile) -> RunResult:
    """End the run of a file that was not read to its end, by a fault of the file, or of this program (`cut off`)."""
    message = f"{error}{_loaded_before(session, run)}"
    return end_without_load(session, run, "failed", message, is_cut_off=isinstance(error, NotReadToItsEnd))


def _loaded_before(session: Session, run: Run) -> str:
    """Return words on the records that earlier, killed runs have loaded of a batch; empty text if there are none."""
    earlier = session.ledger.batch(session.target, run.received.batch_id) if run.before == "running" else None
    counts = counts_so_far(session.ledger, earlier) if earlier else {}
    loaded = sum(counts.get(name, 0) for name in LANDED)
    return f"; earlier runs loaded {loaded:,} of its records" if loaded else ""


def end_stopped(session: Session, run: Run, validated: ValidationResult) -> RunResult:
    """End the run of a file of which nothing may be sent."""
    return end_without_load(session, run, "stopped", f"{run.received.file_name}: {validated.stop}", validated)


def end_without_load(
    session: Session,
    run: Run,
    state: str,
    message: str,
    validated: ValidationResult | None = None,
    *,
    is_cut_off: bool = False,
) -> RunResult:
    """End the run of a file of which nothing was sent. validated: its findings, if the file was read."""
    validated = validated or ValidationResult(run.folder)
    session.progress.end()
    result = result_of(run, validated, run_counts(validated, LoadCounts()), message, state)
    result.unusable = state == "running"
    _close(session, run, result, is_cut_off=is_cut_off)
    return result


def result_of(
    run: Run, validated: ValidationResult, counts: dict[str, int], message: str | None, state: str
) -> RunResult:
    return RunResult(
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
        amounts=validated.amounts,
        amounts_accepted=validated.amounts_accepted,
        without_claim=validated.without_claim if validated.copayments else None,
        found_in=validated.found_in,
    )


def _close(session: Session, run: Run, result: RunResult, is_left: bool = False, *, is_cut_off: bool = False) -> None:
    ledger, target, batch_id = session.ledger, session.target, run.received.batch_id
    of_run = replace(result, state=CUT_OFF) if is_cut_off else result
    with ledger.transaction():
        ledger.finish_run(
            target, batch_id, run.number, state=of_run.state, counts=of_run.counts, message=of_run.message
        )
        hold_batch(ledger, target, batch_id)
        _end_batch(session, run, result, is_left)
    close_earlier(session, run)
    write_manifest(session, run, of_run, ledger.now())
    session.batches.keep(batch_id, f"{run.folder.name}/*")
    ledger.copy_journal()
    tell_newer(session.home, ledger, target)


def _lines_of(session: Session, run: Run, result: RunResult, before: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the counts of a batch's lines: its first run's, or this run's if a mended feed reads the file
    otherwise.
    """
    if not before or run.only is not None or result.state != "finished":
        return before or result.counts
    counts = with_outcomes(session.ledger, session.target, run.received.batch_id, before, all_have_one=True)
    return before if are_of_lines(counts, before) else result.counts


def _end_batch(session: Session, run: Run, result: RunResult, is_left: bool) -> None:
    """Set state and counts of a run's batch from the ledger's present content, which others may have changed.

    A run over some records of a batch that has not finished leaves it to the run that goes on with the batch. is_left:
    True if the run has left something, whatever the ledger has of its rows.
    """
    ledger, target, batch_id = session.ledger, session.target, run.received.batch_id
    now = ledger.known_batch(target, batch_id)
    before = now if "finished" in (run.before, now["state"]) else None
    if not before and run.only is not None:
        return
    lines = _lines_of(session, run, result, before)
    if result.state in NOT_LOADED and not before:
        went_on = run.before == "running"
        counts = counts_so_far(ledger, now) if went_on else with_outcomes(ledger, target, batch_id, lines)
        is_open = any(counts[name] for name in OUTCOMES) and without_outcome(counts) > 0
        is_open = is_open or bool(rows_left(ledger, target, batch_id, 1, ASKED))
        state = "running" if went_on and is_open else result.state
    else:
        is_open = is_left or (result.state == "running" and not before)
        is_open = is_open or bool(rows_left(ledger, target, batch_id, 1))
        state = "running" if is_open else "finished"
        counts = with_outcomes(ledger, target, batch_id, lines, all_have_one=state == "finished")
    ledger.finish_batch(target, batch_id, state, counts, before["finished_at"] if before else None)

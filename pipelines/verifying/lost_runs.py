"""Write runs that the ledger lacks, as far as manifests tell of them, and validate their batches again."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pipelines.home.batch import UnreadableFile
from pipelines.ledger.columns import COUNTS
from pipelines.runs.beginning import begin, note_batch
from pipelines.runs.ending import end_unread, end_without_load
from pipelines.runs.lost_runs import NOTED, LostBatch
from pipelines.runs.run import Run
from pipelines.runs.validating import validate_run
from pipelines.session.session import Session
from pipelines.session.waiting_files import WaitingFile
from pipelines.validation.outcome import ValidationResult

OF_RUN = ("feed_hash", "key_hash", "rules_version", "software_version")
NOT_TOLD = "what it did is not told any more"
NOTHING_SENT = "nothing of it has been sent; import the file again"


class ValidatedBatch(NamedTuple):
    """A lost batch, and the run that has validated it again."""

    lost: LostBatch
    run: Run
    validated: ValidationResult


def validate_lost(session: Session, lost: LostBatch, waiting: WaitingFile) -> ValidatedBatch:
    """Begin a run of a lost batch, validate it, and write its rejects to the ledger.

    Raises `UnreadableFile`, also if no lost run has sent anything of the file: the run then ends as stopped. A file
    that cannot be read and may have been sent stays lost until it comes again, or is purged.
    """
    session.decide("verify --adopt", [lost.name])
    note_batch(session, waiting.in_batch, waiting.feed)
    note_runs(session, lost)
    run = begin(session, waiting.in_batch, waiting.feed, whole=True, adopting=True)
    try:
        validated = validate_run(session, run)
    except UnreadableFile as error:
        if not lost.may_have_sent:
            end_runs(session, lost)
        end_unread(session, run, error)
        raise
    if not lost.may_have_sent:
        end_runs(session, lost)
        message = f"{run.received.file_name}: {validated.stop or NOTHING_SENT}"
        end_without_load(session, run, "stopped", message, validated)
        raise UnreadableFile(message)
    return ValidatedBatch(lost, run, validated)


def note_runs(session: Session, lost: LostBatch) -> None:
    """Write the lost runs without their ends. If this process is killed, they count as lost until `end_runs`."""
    ledger, target = session.ledger, session.target
    runs, is_new = ledger.runs(target, lost.name), ledger.batch(target, lost.name) is None
    known = {run["started_at"]: run["run"] for run in runs}
    with ledger.transaction():
        if is_new:
            _note_batch(session, lost)
        for manifest in lost.manifests:
            about = {name: _text(manifest, name) for name in OF_RUN}
            started_at = str(manifest["started_at"])
            number = known.get(started_at) or ledger.start_run(target, lost.name, started_at=started_at, **about)
            ledger.cut_off_run(target, lost.name, number, NOTED, NOT_TOLD)
        told = {str(manifest["started_at"]) for manifest in lost.manifests}
        for _ in range(lost.untold - sum(run["state"] == NOTED and run["started_at"] not in told for run in runs)):
            ledger.cut_off_run(target, lost.name, ledger.start_run(target, lost.name), NOTED, NOT_TOLD)


def end_runs(session: Session, lost: LostBatch) -> None:
    """Write the ends of the lost runs from their manifests, so that they no longer count as lost."""
    ledger, target = session.ledger, session.target
    manifests = {str(manifest["started_at"]): manifest for manifest in lost.manifests}
    noted = [run for run in ledger.runs(target, lost.name) if run["state"] == NOTED]
    with ledger.transaction():
        for run in noted:
            manifest = manifests.get(run["started_at"], {})
            ended_at = manifest.get("ended_at")
            ledger.finish_run(
                target,
                lost.name,
                run["run"],
                state=(_text(manifest, "state") if ended_at else None) or "failed",
                counts={name: said for name, said in manifest.get("counts", {}).items() if name in COUNTS},
                message=_text(manifest, "message") or NOT_TOLD,
                finished_at=ended_at,
            )


def _note_batch(session: Session, lost: LostBatch) -> None:
    """Note a batch without its file; only the manifest of its last run is known."""
    last: dict[str, Any] = lost.manifests[-1] if lost.manifests else {}
    session.ledger.start_batch(
        session.target,
        lost.name,
        feed=_text(last, "feed") or lost.name.rpartition("-")[0],
        source=_text(last, "source"),
        resource_type=_text(last, "resource"),
        file_name=_text(last, "file"),
        file_sha256=_text(last, "file_sha256"),
    )
    session.ledger.finish_batch(session.target, lost.name, "failed", {}, last.get("ended_at"))


def _text(manifest: Mapping[str, Any], name: str) -> str | None:
    said = manifest.get(name)
    return said if isinstance(said, str) else None

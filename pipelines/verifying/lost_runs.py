"""Write runs that the ledger lacks, as far as manifests tell of them, and close rejects that later batches answered."""

from collections.abc import Mapping
from typing import Any

from pipelines.ledger.columns import COUNTS
from pipelines.ledger.reject_state import write_states
from pipelines.ledger.rejects import open_in_batch
from pipelines.ledger.states import LANDED
from pipelines.runs.lost_runs import NOTED, UNREAD, LostBatch
from pipelines.session.session import Session

OF_RUN = ("feed_hash", "key_hash", "rules_version", "software_version")
NOT_TOLD = "what it did is not told any more"


def may_have_sent(lost: LostBatch) -> bool:
    """True if the file could be read by a lost run. A file that cannot be read now stays lost until it comes again, or
    is purged.
    """
    return bool(lost.untold) or any(
        manifest.get("state") not in UNREAD or not manifest.get("ended_at") for manifest in lost.manifests
    )


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


def close_answered(session: Session) -> None:
    """Close rejects whose record their own batch or a later one has loaded, since batches were adopted out of order."""
    batches = session.ledger.batches(session.target)
    came = {row["batch_id"]: row["received_at"] for row in batches}
    for batch in batches:
        name, of = batch["batch_id"], (session.target, batch["source"], batch["resource_type"])
        opened = open_in_batch(session.ledger, session.target, name)
        keys = {reject.source_key for reject in opened if reject.source_key is not None}
        for key, record in session.ledger.known(*of, keys).items():
            answers = record.batch_id == name or came[record.batch_id] > came[name]
            if answers and record.state in LANDED:
                ids = [reject.reject_id for reject in opened if reject.source_key == key]
                write_states(
                    session.ledger, [("closed", record.batch_id, session.target, reject_id) for reject_id in ids]
                )

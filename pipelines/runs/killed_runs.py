"""Killed runs: find their unfinished rows, and close them when a later run ends."""

from collections.abc import Iterable
from typing import Any

from pipelines.ledger.columns import COUNTS
from pipelines.ledger.doubts import undecided
from pipelines.ledger.manifests import MANIFEST, KeptRun, put_manifest, runs_in
from pipelines.ledger.rejects import reject_places, unmet_since
from pipelines.ledger.row_fates import OPEN
from pipelines.ledger.states import CUT_OFF
from pipelines.runs.run import Run
from pipelines.session.answered_rejects import answers_of
from pipelines.session.session import Session


def retry_of(session: Session, batch_id: str) -> KeptRun | None:
    """Return the newest run of a batch if it was over some records of a file whose rows had outcomes before; else
    None.

    Only the rows that such a run left go on, since a later file may have replaced the file's other rows. The ledger
    decides which run is the newest. Run folders that it does not know, as after the loss of a ledger, do not count.
    """
    numbers = {run["started_at"]: run["run"] for run in session.ledger.runs(session.target, batch_id)}
    told = runs_in(session.batches.folder(batch_id), session.target)
    known = {number: each for each in told if (number := numbers.get(each.manifest["started_at"]))}
    return known[max(known)] if known and known[max(known)].manifest.get("some_records") else None


def lines_left(session: Session, batch_id: str, retry: KeptRun) -> dict[int, list[str]]:
    """Return the lines of the batch's rows without an outcome, each with the open rejects that its record answers.

    The ledger has no such rows for those that waited for others of their patient, encounter or note. They are found by
    their rejects, which were not set aside again since.
    """
    left = {record.line: list[str]() for record in undecided(session.ledger, session.target, batch_id)}
    answers = answers_of(retry.folder)
    names = {name for each in answers.values() for name in each}
    waiting = unmet_since(session.ledger, session.target, retry.manifest["started_at"], names)
    left |= {line: [] for line, each in answers.items() if not waiting.isdisjoint(each)}
    for each in reject_places(session.ledger, session.target, batch_id, OPEN):
        if each.batch_id == batch_id and each.line in left:
            left[each.line].append(each.reject_id)
    return left


def close_earlier(session: Session, run: Run) -> None:
    """Close earlier runs of the batch without an end, now that this one has ended. If such a run is still at work, its
    own end overwrites this.
    """
    earlier = [row for row in session.ledger.runs(session.target, run.received.batch_id) if row["run"] < run.number]
    said = f"it was killed or terminated, only validated, or the machine went down; run {run.number} went on with it"
    close_cut_off(session, run.received.batch_id, earlier, said)


def close_cut_off(session: Session, batch_id: str, runs: Iterable[dict[str, Any]], said: str) -> None:
    """Close those of a batch's runs that have no end, with this message."""
    ledger = session.ledger
    for row in runs:
        if row["finished_at"] or row["state"] == CUT_OFF:
            continue
        ledger.cut_off_run(session.target, batch_id, row["run"], CUT_OFF, said)
        for _, folder, manifest in runs_in(session.batches.folder(batch_id), session.target):
            if manifest["started_at"] == row["started_at"] and not manifest.get("ended_at"):
                manifest |= {"state": CUT_OFF, "message": said, "counts": {name: row[name] for name in COUNTS}}
                put_manifest(folder, manifest)
                session.batches.keep(batch_id, f"{folder.name}/{MANIFEST}")

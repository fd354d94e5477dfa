"""Killed runs: find their unfinished rows, and close them when a later run ends."""

from pipelines.ledger.answering import OPEN
from pipelines.ledger.columns import COUNTS
from pipelines.ledger.manifests import MANIFEST, KeptRun, put_manifest, runs_in
from pipelines.ledger.rejects import reject_places, unmet_since
from pipelines.ledger.states import CUT_OFF
from pipelines.runs.run import Run
from pipelines.session.answers import answers_of
from pipelines.session.session import Session


def retry_of(session: Session, batch_id: str) -> KeptRun | None:
    """The newest run of a batch, if it was over some records of a file whose rows had their outcomes before.

    Of what such a run leaves, those rows alone go on: what others of the file say, a later file may have replaced.
    Which is the newest is what the ledger says. Folders of runs that it lacks, such as of a lost ledger, tell nothing.
    """
    numbers = {run["started_at"]: run["run"] for run in session.ledger.runs(session.target, batch_id)}
    told = runs_in(session.batches.folder(batch_id), session.target)
    known = {number: each for each in told if (number := numbers.get(each.manifest["started_at"]))}
    return known[max(known)] if known and known[max(known)].manifest.get("some_records") else None


def lines_left(session: Session, batch_id: str, retry: KeptRun) -> dict[int, list[str]]:
    """The lines of the batch's rows without an outcome, each with the open rejects that its record answers.

    Rows that waited for others of their patient, encounter or note have none: their rejects were not met since.
    """
    left = {record.line: list[str]() for record in session.ledger.unsettled(session.target, batch_id)}
    answers = answers_of(retry.folder)
    names = {name for each in answers.values() for name in each}
    waiting = unmet_since(session.ledger, session.target, retry.manifest["started_at"], names)
    left |= {line: [] for line, each in answers.items() if not waiting.isdisjoint(each)}
    for each in reject_places(session.ledger, session.target, batch_id, OPEN):
        if each.batch_id == batch_id and each.line in left:
            left[each.line].append(each.reject_id)
    return left


def close_cut_off(session: Session, run: Run) -> None:
    """Close earlier runs of the batch that have no end, now that this one has ended. A run that is at work after all
    writes its own end over that.
    """
    ledger, batch_id = session.ledger, run.received.batch_id
    said = f"it was killed or terminated, only validated, or the machine went down; run {run.number} went on with it"
    for row in ledger.runs(session.target, batch_id):
        if row["finished_at"] or row["run"] >= run.number or row["state"] == CUT_OFF:
            continue
        ledger.cut_off_run(session.target, batch_id, row["run"], CUT_OFF, said)
        for _, folder, manifest in runs_in(session.batches.folder(batch_id), session.target):
            if manifest["started_at"] == row["started_at"] and not manifest.get("ended_at"):
                manifest |= {"state": CUT_OFF, "message": said, "counts": {name: row[name] for name in COUNTS}}
                put_manifest(folder, manifest)
                session.batches.keep(batch_id, f"{folder.name}/{MANIFEST}")

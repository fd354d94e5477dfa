"""Remove source rows, which hold patient data, by hand (`purge`) or by age. Ledger, counts and manifests stay."""

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fhir_service.paths import is_folder, is_link, matching
from pipelines.home.batch_files import NONE, WITHOUT_ROWS, is_of
from pipelines.home.counted import counted, word_for
from pipelines.home.user import user_name
from pipelines.ledger.lease import utc_text
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rejects import open_here
from pipelines.ledger.standing import next_step
from pipelines.ledger.tables import NotPossible
from pipelines.ledger.unanswered_records import is_unanswered
from pipelines.session.ledger import ledger_of, nothing_in
from pipelines.session.session import Session

MOST_APART = timedelta(hours=1)
"""Clocks of two machines may differ by this much although neither is wrong."""
NAMED = 5
"""The number of kept files that an import names. A clinic that leaves rejects open has more each week."""


Row = Mapping[str, Any]


def purge(home: Path, ledger: Ledger, rows: Sequence[Row], user: str, why: str | None) -> None:
    """Remove a finished batch's source rows, which all targets share; ledger, counts and manifests stay.

    The decision is recorded for each target. rows: the batch's rows of the ledger, one for each target. Raises
    `NotPossible`.
    """
    batch_id = str(rows[0]["batch_id"])
    if any(row["state"] == "running" for row in rows):
        raise NotPossible(
            f"{batch_id}: its source rows are kept, because it is not finished and needs them; run chartferry"
            " import first"
        )
    if number := sum(open_here(ledger, row["target"], batch_id) for row in rows):
        rejects, them = counted(number, "of its rejects is", "of its rejects are"), word_for(number, "it", "them")
        raise NotPossible(f"{batch_id}: {rejects} open: export and correct, or discard {them} first")
    for row in rows:
        ledger.note_decisions(row["target"], user, "purge", [batch_id], why)
    ledger.batches_in(home).remove(batch_id)
    remove_rows(home / "batches" / batch_id)


def purge_in(home: Path, environ: Mapping[str, str], batch_id: str, why: str | None) -> str:
    """Purge a batch in a home, without asking its targets."""
    with ledger_of(home, environ) as ledger:
        if ledger is None:
            raise NotPossible(nothing_in(home))
        ledger.take_up_journal(home)
        rows = [row for row in ledger.batches() if row["batch_id"] == batch_id]
        if not rows:
            raise NotPossible(f"{batch_id}: no such batch (chartferry status lists them)")
        batches = ledger.batches_in(home)
        if not batches.has_source(batch_id):
            batches.remove(batch_id)  # removes files that another machine was just putting to the store
            return f"{batch_id}: nothing to remove: its source rows were removed before"
        purge(home, ledger, rows, user_name(), why)
    return f"{batch_id}: its source rows are removed"


def remove_rows(folder: Path) -> None:
    """Remove a batch's files and folders, except its runs' folders and the files without a row."""
    runs = {each for each in matching(folder, "run-*") if is_folder(each)}
    for path in {*matching(folder, "*"), *matching(folder, "run-*/*")} - runs:
        if is_folder(path) and not is_link(path):
            shutil.rmtree(path)
        elif not is_of(str(path.relative_to(folder)), WITHOUT_ROWS):
            path.unlink()


def purge_older(home: Path, ledger: Ledger, target: str, days: float, now: datetime) -> dict[str, str | None]:
    """Purge batches of a target whose last run ended more than `days` ago, at other targets too.

    Return by name why a batch was kept; None if it was purged. A file that was not loaded is kept as long as nothing
    answers its rows: only a person can say that they are done with. A file that came again is as young as that run,
    since `import --again` may need its rows.
    """
    before, done = utc_text(now - timedelta(days=days)), dict[str, str | None]()
    by_name = defaultdict[str, list[Row]](list)
    for row in ledger.batches():
        by_name[row["batch_id"]].append(row)
    old = {
        name: rows
        for name, rows in by_name.items()
        if any(row["target"] == target for row in rows)
        and all((row["finished_at"] or row["received_at"]) <= before for row in rows)
    }
    batches = ledger.batches_in(home)
    batches.bring(list(old), NONE)
    for name in filter(batches.has_source, old):
        runs = (run for row in old[name] for run in ledger.runs(row["target"], name))
        if any((run["finished_at"] or "") > before for run in runs):
            continue
        if left := next((row for row in old[name] if is_unanswered(ledger, batches, row)), None):
            *_, last = (None, *(run["state"] for run in ledger.runs(left["target"], name)))
            step = next_step(name, left["state"], last, open_here(ledger, left["target"], name))
            done[name] = f"{name}: it was not loaded, and no later file answers its rows. {step}"
            continue
        try:
            purge(home, ledger, old[name], "retention", f"older than {days:g} days")
            done[name] = None
        except NotPossible as error:
            done[name] = str(error)
    return done


def retain(session: Session) -> None:
    """Purge batches and reports of rehearsals that are older than the home keeps them; tell the user what was kept."""
    if session.keep_days is None:
        return
    now, age = _present(session), f"older than {session.keep_days:g} days"
    done = purge_older(session.home, session.ledger, session.target, session.keep_days, now)
    for name in (name for name, why in done.items() if why is None):
        session.progress.say(f"{name}: {age}: its source rows are removed")
    kept = [why for why in done.values() if why]
    for why in kept[:NAMED]:
        session.progress.say(f"{age}, and kept: {why}")
    if more := len(kept[NAMED:]):
        session.progress.say(f"{age}, and kept: {counted(more, 'more file', 'more files')}; see chartferry status")
    for path in matching(session.home / "rehearsals", "*.json"):
        if path.stat().st_mtime < (now - timedelta(days=session.keep_days)).timestamp():
            path.unlink()


def _present(session: Session) -> datetime:
    """Return the ledger's time, or the target's if that is much earlier: removed rows cannot be brought back.

    By a clock that is ahead, everything seems old.
    """
    now, shown = session.ledger.clock(), session.connection.client.server_time()
    return shown if shown and now - shown > MOST_APART else now

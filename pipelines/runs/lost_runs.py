"""Find batches with runs in the home that the ledger lacks: it was lost with its journal, or both are old copies.

A run is in the ledger before its folder is made, and its end is there before its manifest has it. So a run is lost if
its folder has more than the ledger. A run without an end is also lost if the ledger's server has another history now,
as after a failover. So it is if the server lacks the last line that the run wrote, as after a restore. The ledger may
then lack the last facts of the run.
"""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from fhir_service.paths import matching
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch_files import MANIFESTS
from pipelines.ledger.database import history_of
from pipelines.ledger.last_journal_line import is_lacking
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.manifests import is_of, manifest_in, number_of
from pipelines.ledger.states import CUT_OFF, NOT_LOADED
from pipelines.ledger.tables import NotPossible
from pipelines.loading.target_clock import ahead_in
from pipelines.session.session import Session

LOOK = "check the chart before you import these rows again"
UNSENT = (*NOT_LOADED, CUT_OFF)
"""States of runs that have ended, and that have sent nothing."""
NOTED = "lost"
"""The state of a lost run that is in the ledger again, while its rows are not there yet."""


class LostBatch(NamedTuple):
    """A batch with the manifests of its runs at this target that the ledger lacks. untold: the number of run folders
    without a usable manifest.
    """

    folder: Path
    manifests: list[dict[str, Any]]
    untold: int

    @property
    def name(self) -> str:
        return self.folder.name

    def is_about(self, feed: Feed) -> bool:
        """True if the batch may have records of a feed's source and kind."""
        about = {(each["source"], each["resource"]) for each in self.manifests}
        return bool(self.untold) or (feed.source, feed.resource) in about

    @property
    def may_have_sent(self) -> bool:
        """True if one of the runs may have sent rows."""
        ended = [each.get("state") for each in self.manifests if each.get("ended_at")]
        return bool(self.untold) or len(ended) < len(self.manifests) or not set(ended) <= set(UNSENT)

    def begun(self, came: str) -> tuple[str, timedelta | None]:
        """Return since when its runs may have sent rows, and how far the target's clock was ahead then; None if not
        all noted it.

        came: when the file came, which is before any run without a manifest. All moments are UTC text.
        """
        runs = [(str(each["started_at"]), ahead_in(each)) for each in self.manifests]
        since = min([*(at for at, _ in runs), *([came] if self.untold or not runs else [])])
        known = [datetime.fromisoformat(at) + by for at, by in runs if by is not None]
        if self.untold or not runs or len(known) < len(runs):
            return since, None
        return since, min(known) - datetime.fromisoformat(since)


def lost_batches(session: Session) -> list[LostBatch]:
    """Return the batches with runs at this target that the ledger lacks, by name."""
    ended, batches, found = session.ledger.ended_runs(session.target), session.batches, list[LostBatch]()
    names = batches.names()
    batches.bring(names, MANIFESTS)
    for folder in (batches.path / name for name in names):
        runs = list(matching(folder, "run-*"))
        if not {f"run-{number}" for number in ended.get(folder.name, ())}.issuperset(run.name for run in runs):
            lost = _lost_runs(session, folder, runs)
            found += [lost] if lost.manifests or lost.untold else []
    return found


def lost_before(session: Session, feed: Feed, batch_id: str) -> str | None:
    """Return a batch that may have sent records of this feed which the ledger does not know. The given batch comes
    first.

    Lost batches are looked up once in a session.
    """
    if session.lost is None:
        session.lost = lost_batches(session)
    names = [each.name for each in session.lost if each.is_about(feed) and each.may_have_sent]
    return batch_id if batch_id in names else next(iter(names), None)


def refuse_lost(session: Session, feed: Feed, batch_id: str) -> None:
    """Raise `NotPossible` if sending could make second resources, since the ledger does not know what was sent."""
    if not session.is_safe(feed.resource) and (lost := lost_before(session, feed, batch_id)):
        what = "it" if lost == batch_id else f"nothing was sent, since {lost}"
        raise NotPossible(
            f"{batch_id}: {what} was loaded before, and the ledger does not know that: chartferry verify --adopt"
        )


def _lost_runs(session: Session, folder: Path, runs: list[Path]) -> LostBatch:
    """Return the lost runs of a batch. A known run that ended later replaces them, unless it sent nothing."""
    told = {run: manifest for run in runs if (manifest := manifest_in(run))}
    known = {run["started_at"]: run for run in session.ledger.runs(session.target, folder.name)}
    is_news = _FolderNews(session.ledger, known)
    ended = max((at for at, run in known.items() if run["finished_at"] and run["state"] not in UNSENT), default="")
    lost = [
        manifest
        for run, manifest in told.items()
        if is_of(manifest, session.target) and manifest["started_at"] > ended and is_news(run, manifest)
    ]
    newest = session.ledger.newest_run(folder.name)
    untold = sum(number_of(run) > newest for run in runs if run not in told)
    moments = {manifest["started_at"] for manifest in told.values()}
    untold += sum(_is_noted(run) for at, run in known.items() if at not in moments)
    return LostBatch(folder, sorted(lost, key=lambda each: str(each["started_at"])), untold)


class _FolderNews:
    """Test if a run's folder has more than the ledger. known: the ledger's runs, by their beginning."""

    def __init__(self, ledger: Ledger, known: dict[str, Any]) -> None:
        self._ledger, self._known = ledger, known

    def __call__(self, folder: Path, manifest: dict[str, Any]) -> bool:
        run = self._known.get(manifest["started_at"])
        if run is None or _is_noted(run):
            return True
        return not run["finished_at"] and (bool(manifest["ended_at"]) or self._is_behind(folder, manifest))

    def _is_behind(self, folder: Path, manifest: dict[str, Any]) -> bool:
        with self._ledger.reading() as connection:
            is_another = manifest.get("ledger_history") not in (None, history_of(connection))
            return is_another or is_lacking(connection, folder)


def _is_noted(run: dict[str, Any]) -> bool:
    return run["state"] == NOTED and not run["finished_at"]

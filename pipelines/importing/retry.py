"""Run open rejects through the stages again, under today's feed, rules, questionnaires and target. `rejects retry`
does so, and an import does so by itself for rejects whose crosswalk may have an entry now.

Each batch gets one more run, over the records of its open rejects alone.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from pipelines.corrections.exporting import LeftRejects, of_batch
from pipelines.corrections.sources import NO_ENTRY, Lines, OutOfReach, lines_by_batch, rejected_by, source_of
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import ReceivedFile
from pipelines.home.exits import ALL_LOADED, UNREADABLE
from pipelines.importing.begin_and_end import publish_into, summary_of
from pipelines.ledger.rejects import RejectPlace, reject_places, settle_resubmitted
from pipelines.ledger.row_fates import OPEN
from pipelines.runs.batch import run_over
from pipelines.runs.run import ENDED_BY_UNDO, UNDER_WAY, RunResult, is_ended_by_undo
from pipelines.runs.summary import Summary
from pipelines.session.session import Session

STOPPED = "its batch was stopped, so none of its records may be sent: import the file again"


@dataclass
class RetryResult:
    """The result of a retry: an import's summary, and the rejects that could not be tried. asked_for: in words."""

    summary: Summary
    left: list[LeftRejects]
    asked_for: str

    @property
    def exit_code(self) -> int:
        return max(self.summary.exit_code, UNREADABLE if self.left else ALL_LOADED)

    def as_json(self) -> dict[str, Any]:
        return {**self.summary.as_json(), "left": [asdict(each) for each in self.left]}

    def lines(self) -> Iterator[str]:
        if self.summary.results or self.summary.error:
            yield from self.summary.lines()
        else:
            yield f"target: {self.summary.target}"
            yield "nothing to retry" if self.left else f"no {self.asked_for}"
        yield from (each.line("cannot be tried again") for each in self.left)


def retry(session: Session, batch_id: str | None, taken_back: bool) -> RetryResult:
    """Try the open rejects of the target, or of one batch, again, and publish. Close rejects answered meanwhile.

    taken_back: try only rejects whose records were taken back, and load these once more.
    """
    summary, left = summary_of(session), list[LeftRejects]()
    settle_resubmitted(session.ledger, session.target)
    if taken_back:
        found: Iterable[RejectPlace] = rejected_by(session.ledger, session.target, "TAKEN-BACK", batch_id)
    else:
        found = reject_places(session.ledger, session.target, batch_id, OPEN)
    wanted = lines_by_batch(found)
    order = [row["batch_id"] for row in session.ledger.batches(session.target) if row["batch_id"] in wanted]
    with summary.saying_why():
        for name in order:
            try:
                received, feed = _source(session, name)
            except OutOfReach as error:
                left.append(LeftRejects(name, len({each for ids in wanted[name].values() for each in ids}), str(error)))
                continue
            if not summary.take(partial(_retry_batch, session, received, feed, wanted[name], taken_back)):
                break
        settle_resubmitted(session.ledger, session.target)
        if summary.results and not summary.error:
            publish_into(session, summary)
    asked_for = "open rejects of records that were taken back" if taken_back else "open rejects"
    return RetryResult(summary, left, f"{asked_for}{of_batch(batch_id)}")


def _source(session: Session, batch_id: str) -> tuple[ReceivedFile, Feed]:
    row = session.ledger.batch(session.target, batch_id)
    if row and row["state"] == "stopped":
        raise OutOfReach(ENDED_BY_UNDO.format(batch_id) if is_ended_by_undo(session, batch_id) else STOPPED)
    return source_of(session.home, session.ledger, session.catalog, session.target, batch_id)


def _retry_batch(session: Session, received: ReceivedFile, feed: Feed, lines: Lines, taken_back: bool) -> RunResult:
    session.decide("rejects retry --taken-back" if taken_back else "rejects retry", [received.batch_id])
    return run_over(session, received, feed, lines, taken_back)


def mended_rejects(session: Session) -> Iterator[Callable[[], RunResult]]:
    """Yield a run for each batch with rejects that lack a crosswalk entry, unless a run with today's feed has ended.
    The run is over these rejects alone. A run that the target stopped leaves rows, and is `running`.
    """
    for batch_id, lines in lines_by_batch(rejected_by(session.ledger, session.target, NO_ENTRY)).items():
        row = session.ledger.batch(session.target, batch_id)
        if row is None or row["state"] != "finished":
            continue
        try:
            received, feed = source_of(session.home, session.ledger, session.catalog, session.target, batch_id)
        except OutOfReach:
            continue
        runs = session.ledger.runs(session.target, batch_id)
        if feed.hash not in {run["feed_hash"] for run in runs if run["state"] != UNDER_WAY}:
            yield partial(run_over, session, received, feed, lines)

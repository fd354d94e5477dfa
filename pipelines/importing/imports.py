"""The work of `chartferry import` and `reports`, between their options and their summary."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from pipelines.client.client import TargetUnusable
from pipelines.corrections.decisions import read_by
from pipelines.corrections.retention import retain
from pipelines.corrections.undo import plan_again
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import Unreadable
from pipelines.importing.figures import write_figures
from pipelines.importing.mended import Mended, mended
from pipelines.ledger.rejects import settle_resubmitted
from pipelines.ledger.tables import LedgerError, NotPossible
from pipelines.rehearsing.dry_run import try_file
from pipelines.reports.publish import PublicationError
from pipelines.runs.batch import import_file, publish_reports, run_through
from pipelines.runs.beginning import begin
from pipelines.runs.run import Result
from pipelines.runs.summary import Summary
from pipelines.session.confirmed import COMMAND, is_confirmed, waits
from pipelines.session.connections import STORE
from pipelines.session.queries import asked, note_mark, with_queries
from pipelines.session.session import Session
from pipelines.session.waiting import Left, Waiting, find_files, received_batches, unfinished, without_feed

NO_BATCH = "{}: no such batch at this target (chartferry status lists them)"
NO_SOURCE = "{}: its source rows are not here: import its file once more, then try again"


def import_paths(session: Session, paths: Sequence[Path], dry_run: bool = False, remap: bool = False) -> Summary:
    """Import the files of the paths (default: the inbox), and publish once at the end.

    The files of the inbox are in their batches once they are received, so that an import of the inbox goes on with the
    batches that have no end. An import of other paths names them.
    """
    summary, inbox = summary_of(session), session.home / "inbox"
    files, summary.unmatched = find_files(paths or [inbox], session.catalog, session.ledger, session.inbox)
    left = [] if dry_run else unfinished(session)
    queries, again = list[Feed](), list[Mended]()
    if any(path.resolve() == inbox.resolve() for path in paths or [inbox]):
        queries, again = with_queries(session), [] if dry_run else list(mended(session))
        batches = session.home / "batches"
        no_feed = {} if dry_run else without_feed(session)
        summary.unmatched = [*summary.unmatched, *(Left(batches / b, why) for b, why in no_feed.items())]
    else:
        summary.without_end, left = {_name(each): each.name for each in left}, []
    return _import_all(session, summary, [*left, *files], dry_run, remap, queries, again)


def import_query(session: Session, feed: Feed) -> Summary:
    """Import what is new in the database of a feed."""
    return _import_all(session, summary_of(session), [], queries=[feed])


def import_whole(session: Session, feed: str, dry_run: bool = False) -> Summary:
    """Ask the database of a feed for all of its rows, whatever was read before. Raises `NotPossible`."""
    found = session.catalog.named(feed)
    if found is None or not found.file.query:
        raise NotPossible(f"{feed}: there is no feed of this name that has a query")
    return _import_all(session, summary_of(session), [], dry_run, queries=[found], whole=True)


def import_again(session: Session, batch_id: str) -> Summary:
    """Load what was taken back of a batch, or is gone from the target. Raises `NotPossible`, `TargetUnusable`."""
    found = received_batches(session, [batch_id])
    if not session.ledger.batch(session.target, batch_id):
        raise NotPossible(NO_BATCH.format(batch_id))
    if not found:
        raise NotPossible(NO_SOURCE.format(batch_id))
    plan_again(session, batch_id)
    return _import_all(session, summary_of(session), found)


def import_confirmed(session: Session, batch_id: str) -> Summary:
    """Load a file of copayments alone that waits for a confirmation, and keep that. Raises `NotPossible`."""
    ledger, target = session.ledger, session.target
    if not ledger.batch(target, batch_id):
        raise NotPossible(NO_BATCH.format(batch_id))
    found = received_batches(session, [batch_id])
    if not found:
        raise NotPossible(NO_SOURCE.format(batch_id))
    if not is_confirmed(ledger, target, found[0].feed, batch_id):
        if not waits(ledger, target, batch_id):
            raise NotPossible(f"{batch_id}: it does not wait for a confirmation of its copayments")
        session.decide(COMMAND, [batch_id])
    return _import_all(session, summary_of(session), found)


def import_remapped(session: Session, paths: Sequence[Path]) -> Summary:
    """Import files, or the batches that an earlier version of their feed read, by today's feed and its policy."""
    if paths:
        return import_paths(session, paths, remap=True)
    names = [row["batch_id"] for row in session.ledger.batches(session.target) if row["state"] != "failed"]
    old = [w for w in received_batches(session, names) if read_by(session, _name(w)) - {w.feed.hash}]
    return _import_all(session, summary_of(session), old, remap=True)


def _name(waiting: Waiting) -> str:
    assert waiting.received is not None  # noqa: S101 - these come from their batches
    return waiting.received.batch_id


def _import_all(
    session: Session,
    summary: Summary,
    files: Sequence[Waiting],
    dry_run: bool = False,
    remap: bool = False,
    queries: Sequence[Feed] = (),
    again: Sequence[Mended] = (),
    whole: bool = False,
) -> Summary:
    """Try rejects again that wait for a feed file, import files, then the rows of queries, and publish.

    whole: all rows of a query, not those since the last time.
    """
    results = chain(
        (_try_again(session, each, summary) for each in again),
        (try_file(session, waiting) if dry_run else _import(session, waiting, summary, remap) for waiting in files),
        (_import_query(session, feed, summary, dry_run, whole) for feed in queries),
    )
    for result in results:
        if result is None and summary.error:
            return summary
        if result is None:
            continue
        summary.results.append(result)
        if result.unusable:
            summary.error = result.message
            return summary
    if not dry_run:
        settle_resubmitted(session.ledger, session.target)
        publish_into(session, summary)
        retain(session)
        write_figures(session.home, session.ledger)
    return summary


def _try_again(session: Session, rejects: Mended, summary: Summary) -> Result | None:
    try:
        return run_through(session, begin(session, rejects.received, rejects.feed, only=rejects.lines))
    except LedgerError as error:
        summary.error = str(error)
        return None


def _import_query(session: Session, feed: Feed, summary: Summary, dry_run: bool, whole: bool) -> Result | None:
    """Import what the database of a feed has; None where there is nothing new, or the ledger fails."""
    try:
        with asked(session, feed, whole) as found:
            if found.waiting is None:
                summary.nothing_new.append(feed.name)
                return None
            if dry_run:
                return try_file(session, found.waiting)
            result = _import(session, found.waiting, summary, remap=False)
            if result and not result.unusable:
                note_mark(session, found, result.batch_id, result.state)
            return result
    except Unreadable as error:
        return Result(None, None, feed.name, feed.name, "failed", message=str(error))


def publish_only(session: Session, pseudonymous: int = 0) -> Summary:
    """Sweep and publish. Raises `TargetUnusable`, and `LedgerError` for tables that are not what they must be.

    pseudonymous: the least count that a pseudonymous publication shows in a cell; 0 for the ordinary publication.
    """
    summary = summary_of(session)
    publish_into(session, summary, is_asked_for=True, pseudonymous=pseudonymous)
    if summary.error:
        raise TargetUnusable(summary.error)
    return summary


def summary_of(session: Session) -> Summary:
    store = session.home / STORE if session.connection.bundled else None
    left = Counter(row["target"] for row in session.ledger.batches() if row["state"] == "running")
    return Summary(session.connection.label, session.target, session.other_targets, store=store, left_there=left)


def _import(session: Session, waiting: Waiting, summary: Summary, remap: bool) -> Result | None:
    try:
        return import_file(session, waiting, remap)
    except LedgerError as error:
        summary.error = str(error)
        return None


def publish_into(session: Session, summary: Summary, is_asked_for: bool = False, pseudonymous: int = 0) -> None:
    """Publish the tables, and say so in the summary. is_asked_for: see `sweep_target`; pseudonymous: `publish_only`."""
    try:
        published = publish_reports(session, is_asked_for, pseudonymous)
    except (TargetUnusable, PublicationError) as error:
        summary.error = str(error)
    else:
        summary.published, summary.tables = published.path, published.rows

"""The imports that commands ask for: of files, of a database, or by a feed that has changed."""

from collections.abc import Callable, Sequence
from pathlib import Path

from pipelines.corrections.records import read_by
from pipelines.feeds.files.catalog import Feed
from pipelines.importing.all_files import import_all
from pipelines.importing.begin_and_end import summary_of
from pipelines.importing.objects import TakenIn, take_objects
from pipelines.importing.retry import mended_rejects
from pipelines.ledger.tables import NotPossible
from pipelines.runs.run import RunResult
from pipelines.runs.summary import Summary
from pipelines.session.queries import with_queries
from pipelines.session.session import Session
from pipelines.session.waiting_files import (
    LeftFile,
    WaitingFile,
    find_files,
    named_of,
    received_batches,
    unfinished,
    without_feed,
)


def import_paths(session: Session, paths: Sequence[Path], dry_run: bool = False, remap: bool = False) -> Summary:
    """Import the files of the paths (default: the inbox), and publish once at the end.

    Received files of the inbox are in their batches, so an import of the inbox, or of a file in it, continues the
    unfinished batches. An import of other paths only names them.
    """
    summary, inbox = summary_of(session), session.home / "inbox"
    summary.looked_in = paths = paths or [inbox]
    of_inbox = any(path.resolve() == inbox.resolve() for path in paths)
    beyond = take_objects(session, dry_run) if of_inbox else TakenIn()
    left = [] if dry_run else unfinished(session)
    named = named_of(paths, left)
    files, others = find_files(named.here, session.catalog, session.ledger, session.inbox)
    summary.unmatched = [*named.missing, *others]
    queries, again = list[Feed](), list[Callable[[], RunResult]]()
    if of_inbox:
        queries = with_queries(session)
        again = [] if dry_run else list(mended_rejects(session))
        batches = session.home / "batches"
        no_feed = {} if dry_run else without_feed(session)
        no_feed_left = [LeftFile(batches / b, why) for b, why in no_feed.items()]
        summary.unmatched = [*summary.unmatched, *beyond.left, *no_feed_left]
        going_on = {each.in_batch.batch_id for each in left}
        left += [each for each in beyond.waiting if each.in_batch.batch_id not in going_on]
    else:
        summary.without_end = {each.in_batch.batch_id: each.name for each in left if each not in named.going_on}
        left = named.going_on
    import_all(session, summary, [*left, *files], dry_run, remap, queries, again)
    beyond.note(session)
    return summary


def import_whole(session: Session, feed: str, dry_run: bool) -> Summary:
    """Import all rows in the database of a feed, whatever was read before. Raises `NotPossible`."""
    found = session.catalog.named(feed)
    if found is None or not found.file.query:
        raise NotPossible(f"{feed}: no feed of this name has a query")
    return import_all(session, summary_of(session), [], dry_run, queries=[found], whole=True)


def import_remapped(session: Session, paths: Sequence[Path]) -> Summary:
    """Import files, or else the batches that an earlier version of their feed read, by today's feed and its policy."""
    if paths:
        return import_paths(session, paths, remap=True)
    names = [row["batch_id"] for row in session.ledger.batches(session.target)]
    old = [each for each in received_batches(session, names) if _is_read_by_another(session, each)]
    return import_all(session, summary_of(session), old, remap=True)


def _is_read_by_another(session: Session, waiting: WaitingFile) -> bool:
    """True if an earlier version of its feed read records of a batch, or skipped rows of it at its last reading.

    A run that read no record, such as a failed one, does not count. Nor does a failed batch of which nothing was sent.
    """
    name, today = waiting.in_batch.batch_id, waiting.feed.hash
    if read_by(session, name) - {today}:
        return True
    for run in reversed(session.ledger.runs(session.target, name)):
        if run["records"] and (run["skipped"] or run["feed_hash"] == today):
            return bool(run["feed_hash"] != today)
    return False

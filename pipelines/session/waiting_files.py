"""Files to import: those in folders, those that a run left without an end, and those of batches by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fhir_service.paths import exists, is_file, is_folder, is_link
from pipelines.feeds.files.catalog import Catalog, Feed, FeedError
from pipelines.home.batch import CONTROL, SOURCE, ReceivedFile, is_control, printable_name, received_before
from pipelines.home.inbox import LEADS_OUT, Inbox
from pipelines.ledger.ledger import Ledger
from pipelines.session.answered_rejects import feed_of
from pipelines.session.confirmations import without_end
from pipelines.session.session import Session


@dataclass(frozen=True)
class WaitingFile:
    """A file to import. received: set if the file is in its batch already, from a run that did not end."""

    path: Path
    feed: Feed
    received: ReceivedFile | None = None

    @property
    def name(self) -> str:
        """The file's name, as a person reads it."""
        return printable_name(self.path.name)

    @property
    def in_batch(self) -> ReceivedFile:
        """The received file of a batch that waits to go on."""
        assert self.received is not None  # noqa: S101 - such files come from their batches
        return self.received


@dataclass(frozen=True)
class LeftFile:
    """A file or folder among those to import that is left where it is, with the reason."""

    path: Path
    why: str
    is_file: bool = True


def find_files(
    paths: Sequence[Path], catalog: Catalog, ledger: Ledger | None = None, inbox: Inbox | None = None
) -> tuple[list[WaitingFile], list[LeftFile]]:
    """Return the files to import, feed by feed in the order of their names, and those left where they are.

    With a ledger, files that answer its rejects go to their feed whatever their name. With an inbox, links in it that
    it refuses are left.
    """
    found = [file for path in paths for file in (sorted(path.iterdir()) if is_folder(path) else [path])]
    matched: dict[Path, WaitingFile] = {}
    left: list[LeftFile] = []
    for file in found:
        if file.name.startswith("."):
            continue
        if kept := _no_export(file, inbox):
            left.append(kept)
        elif not is_control(file.name):
            try:
                feed = feed_of(file, catalog, ledger)
            except FeedError as error:
                left.append(LeftFile(file, str(error).removeprefix(f"{file.name}: ")))
                continue
            if feed:
                matched[file] = WaitingFile(file, feed)
            else:
                left.append(LeftFile(file, "no feed takes a file of this name (see: chartferry feeds check)"))
    order = {feed.name: place for place, feed in enumerate(catalog.feeds)}
    return sorted(matched.values(), key=lambda w: (order[w.feed.name], w.path.name, str(w.path))), left


def _no_export(path: Path, inbox: Inbox | None) -> LeftFile | None:
    """Return why an entry is left: it is no file, a refused link, or control totals without their file. None if it is
    an export.
    """
    if is_folder(path):
        return LeftFile(path, "a folder, whose files are not looked at; to import them name it", is_file=False)
    if is_link(path) and not exists(path):
        return LeftFile(path, "a link that leads to no file")
    if inbox and inbox.refuses(path):
        return LeftFile(path, LEADS_OUT)
    if exists(path) and not is_file(path):
        return LeftFile(path, "not a regular file")  # a pipe, a socket or a device cannot be read to its end
    if is_control(path.name) and not exists(path.with_name(path.name.removesuffix(CONTROL))):
        return LeftFile(path, "control totals, and the file that they are of is not here")
    return None


def unfinished(session: Session) -> list[WaitingFile]:
    """Return batches that a killed or stopped run left without an end at this target, oldest first."""
    named = ((received, session.catalog.named(name)) for received, name in _without_end(session))
    return [WaitingFile(received.path_in_batch, feed, received) for received, feed in named if feed]


@dataclass(frozen=True)
class NamedFiles:
    """The files named for an import. here: existing files. going_on: batches without an end whose files were taken
    from the inbox. missing: all others.
    """

    here: list[Path]
    going_on: list[WaitingFile]
    missing: list[LeftFile]


def named_of(paths: Sequence[Path], left: Sequence[WaitingFile]) -> NamedFiles:
    """Sort the named paths. A missing path may be a file taken from the inbox. left: the batches without an end."""
    gone = {path: printable_name(path.name) for path in paths if not (exists(path) or is_link(path))}
    going_on = [each for each in left if each.name in gone.values()]
    names = {each.name for each in going_on}
    missing = [LeftFile(path, "there is no such file") for path, name in gone.items() if name not in names]
    return NamedFiles([path for path in paths if path not in gone], going_on, missing)


def without_feed(session: Session) -> dict[str, str]:
    """Return batches without an end that no feed file describes any more, each with advice."""
    return {
        received.batch_id: f"no feed file describes {name} any more: put it back among the feed files"
        for received, name in _without_end(session)
        if session.catalog.named(name) is None
    }


def _without_end(session: Session) -> list[tuple[ReceivedFile, str]]:
    """Return files of batches without an end at this target, oldest first, with the names of their feeds."""
    found = []
    left = without_end(session.ledger, session.target, session.batches.names(), session.catalog)
    for name, row in left.items():
        if received := received_before(session.batches.folder(name)):
            found.append((received, row["feed"] if row else name.rpartition("-")[0]))
    return sorted(found, key=lambda each: each[0].received_at)


def received_batches(session: Session, names: Sequence[str]) -> list[WaitingFile]:
    """Return batches of this target whose source is here, in the order named."""
    session.batches.bring(names, *SOURCE)
    found = (waiting_in(session, session.batches.path / name) for name in names)
    return [each for each in found if each]


def waiting_in(session: Session, folder: Path) -> WaitingFile | None:
    """Return the file in a batch's folder, with its feed; None if it is purged, or no feed describes it any more."""
    row, received = session.ledger.batch(session.target, folder.name), received_before(folder)
    feed = session.catalog.named(row["feed"] if row else folder.name.rpartition("-")[0])
    return WaitingFile(received.path_in_batch, feed, received) if feed and received else None

"""A session: the home, feeds, ledger and target that all batches of a command share, and the files to import."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.vocabulary import check
from pipelines.client.pace import USUAL, Pace, pace_of, retention_of
from pipelines.client.profiles import member
from pipelines.client.replies import NotDone, NotSent, Refused, TargetUnusable, Unknown
from pipelines.client.steps import BARE, Step, step_for
from pipelines.feeds.files.catalog import CONTROL, Catalog, Feed, FeedError, is_control, load_feeds
from pipelines.home.batch import Received, shown
from pipelines.home.dagster_folder import prepare_dagster_home
from pipelines.home.folder import make_private
from pipelines.home.inbox import LEADS_OUT, Inbox
from pipelines.home.progress import Progress
from pipelines.home.scratch import remove_leftovers
from pipelines.home.user import user_name
from pipelines.ledger.access import JOURNAL
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import LedgerError
from pipelines.reports.pages import SweepIncomplete
from pipelines.session.answers import feed_of
from pipelines.session.confirmed import confirmed_since
from pipelines.session.connections import Connection, connect
from pipelines.session.known_target import known_target
from pipelines.session.questionnaires import Snapshot
from pipelines.session.upgrading import take_outcomes

FOLDERS = ("inbox", "feeds", "batches")


@dataclass(frozen=True)
class Waiting:
    """A file to be imported; `received` when it is in its batch already, from a run that did not end."""

    path: Path
    feed: Feed
    received: Received | None = None

    @property
    def name(self) -> str:
        """The file's name, as a person reads it."""
        return shown(self.path.name)


@dataclass(frozen=True)
class Left:
    """A file or folder among those to import that is left where it is, and why."""

    path: Path
    why: str
    is_file: bool = True


@dataclass
class Session:
    """The parts that all batches of a command share: home, feeds, ledger, target, and the target's questionnaires.

    target: its name in the ledger. why: the reason of decisions by hand. lost: batches with runs that the ledger lacks,
    once looked up.
    """

    home: Path
    catalog: Catalog
    ledger: Ledger
    connection: Connection
    target: str
    other_targets: list[str]
    inbox: Inbox
    progress: Progress = field(default_factory=Progress)
    strict: bool = False
    pace: Pace = USUAL
    keep_days: float | None = None
    why: str | None = None
    lost: list[Any] | None = None

    @classmethod
    def at(
        cls,
        connection: Connection,
        home: Path,
        catalog: Catalog,
        ledger: Ledger,
        inbox: Inbox | None = None,
        **settings: Any,
    ) -> Self:
        """A session at the target of a connection, which the ledger notes. Raises `TargetUnusable`."""
        target = known_target(connection, ledger, home)
        others = ledger.note_target(target, connection.base_url)
        session = cls(home, catalog, ledger, connection, target, others, inbox or Inbox(home / "inbox"), **settings)
        session.strict = session.strict or connection.ours
        return session

    def decide(self, command: str, subjects: Iterable[str], about: str | None = None) -> None:
        """Keep a decision by hand: the user, the moment, its subjects, and the reason where one was given."""
        why = ": ".join(said for said in (about, self.why) if said) or None
        self.ledger.note_decisions(self.target, user_name(), command, list(subjects), why)

    def step(self, resource_type: str) -> Step:
        """Return how records of a type were sent.

        A target that is known by its address, and shows an id now, got them without an identifier.
        """
        connection = self.connection
        return step_for(connection.capabilities, resource_type) if self.target == connection.id else BARE

    def is_safe(self, resource_type: str) -> bool:
        """True if records of a type can be sent again at once without doubling."""
        return self.step(resource_type).repeats

    @cached_property
    def snapshot(self) -> Snapshot:
        """The target's questionnaires as they are now. Raises `TargetUnusable`."""
        site, resource = self.connection.site, RESOURCES["Questionnaire"]
        with reading("Questionnaire"):
            bodies = list(self.connection.client.search_all("Questionnaire"))
        checked = (check(resource, body, site, needs=()).model for body in bodies)
        known = (model for model in checked if model is not None)
        return Snapshot.of(known, () if self.connection.ours else bodies)

    def words_for(self, resource_type: str) -> dict[str, str]:
        """Members of a body as the interface has them, each with what the target has in their place."""
        canonicals = self.snapshot.canonicals if resource_type == "QuestionnaireResponse" else {}
        address = partial(self.connection.site.url, "Questionnaire")
        named = {
            member("questionnaire", address(name)): member("questionnaire", url) for name, url in canonicals.items()
        }
        return {**self.connection.profile.words(resource_type), **named}

    def snapshot_for(self, feed: Feed) -> Snapshot:
        return self.snapshot if feed.resource == "QuestionnaireResponse" else Snapshot()


@contextmanager
def open_session(
    home: Path,
    environ: Mapping[str, str],
    feed_folders: Sequence[Path] = (),
    insecure: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
    anew: bool = False,
    why: str | None = None,
) -> Iterator[Session]:
    """A session at the target of the environment. Raises FeedError, BadTarget, BadPace, TargetUnusable, LedgerError.

    anew: whether a journal that is gone is begun with what the ledger has. why: the reason of decisions by hand.
    """
    progress = progress or Progress()
    pace, keep_days = pace_of(environ), retention_of(environ)
    prepare_home(home)
    catalog = load_feeds(feed_folders_of(home, environ, feed_folders))
    with connect(home, environ, insecure, progress.say) as connection:
        ledger = open_ledger(home, environ, anew)
        try:
            inbox = Inbox.of(home, environ)
            settings = {"progress": progress, "strict": strict, "pace": pace, "keep_days": keep_days, "why": why}
            yield Session.at(connection, home, catalog, ledger, inbox, **settings)
        finally:
            ledger.close()


def open_ledger(home: Path, environ: Mapping[str, str], anew: bool = False) -> Ledger:
    """The home's ledger, or the one that the environment names. Raises `LedgerError`.

    anew: whether a journal that is gone is begun with what the ledger has.
    """
    url = environ.get("CHARTFERRY_LEDGER")
    if url and "://" not in url:
        raise LedgerError("CHARTFERRY_LEDGER is not the URL of a database (postgresql+psycopg://...)")
    batches = home / "batches"
    return Ledger.open(
        url or home / "ledger.db", anew=anew, copies=batches / "journal", first=partial(take_outcomes, batches)
    )


def has_ledger(home: Path, environ: Mapping[str, str]) -> bool:
    """True if there is a ledger to look into, without making one."""
    return bool(environ.get("CHARTFERRY_LEDGER")) or any((home / name).exists() for name in ("ledger.db", JOURNAL))


def prepare_home(home: Path) -> None:
    """The state folder and its parts, for the owner only; what a killed run left half made goes. Raises `BadHome`."""
    os.umask(0o077)
    make_private(home)
    remove_leftovers(home)
    for name in FOLDERS:
        (home / name).mkdir(exist_ok=True)
    prepare_dagster_home(home)


def feed_folders_of(home: Path, environ: Mapping[str, str], named: Sequence[Path] = ()) -> list[Path]:
    """Return the folders of feed files: those named, `CHARTFERRY_FEEDS`, and the home's own. Raises FeedError."""
    more = [Path(name) for name in environ.get("CHARTFERRY_FEEDS", "").split(os.pathsep) if name]
    for folder in more:
        if not folder.is_dir():
            raise FeedError(f"CHARTFERRY_FEEDS: {folder}: there is no such folder")
    return [*named, *more, home / "feeds"]


# -- which files


def find_files(
    paths: Sequence[Path], catalog: Catalog, ledger: Ledger | None = None, inbox: Inbox | None = None
) -> tuple[list[Waiting], list[Left]]:
    """The files to import, feed by feed in the order of their names, and what is left where it is.

    With a ledger, files that answer its rejects go to their feed whatever their name. With an inbox, links in it that
    it refuses are left.
    """
    found = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    matched: dict[Path, Waiting] = {}
    left: list[Left] = []
    for file in found:
        if file.name.startswith("."):
            continue
        if kept := _no_export(file, inbox):
            left.append(kept)
        elif not is_control(file.name):
            try:
                feed = feed_of(file, catalog, ledger)
            except FeedError as error:
                left.append(Left(file, str(error).removeprefix(f"{file.name}: ")))
                continue
            if feed:
                matched[file] = Waiting(file, feed)
            else:
                left.append(Left(file, "no feed takes a file of this name (see: chartferry feeds check)"))
    order = {feed.name: place for place, feed in enumerate(catalog.feeds)}
    return sorted(matched.values(), key=lambda w: (order[w.feed.name], w.path.name, str(w.path))), left


def _no_export(path: Path, inbox: Inbox | None) -> Left | None:
    """Return why an entry is left: it is no file, a link that is not taken, or a file that says nothing by itself."""
    if path.is_dir():
        return Left(path, "a folder, whose files are not looked at; to import them name it", is_file=False)
    if path.is_symlink() and not path.exists():
        return Left(path, "a link that leads to no file")
    if inbox and inbox.refuses(path):
        return Left(path, LEADS_OUT)
    if path.exists() and not path.is_file():
        return Left(path, "not a regular file")  # a pipe, a socket, a device: nothing that can be read to its end
    if is_control(path.name) and not path.with_name(path.name.removesuffix(CONTROL)).exists():
        return Left(path, "control totals, and the file that they are of is not here")
    return None


def unfinished(session: Session) -> list[Waiting]:
    """Batches that a killed or stopped run left without an end at this target, oldest first."""
    named = ((received, session.catalog.named(name)) for received, name in _without_end(session))
    return [Waiting(received.path_in_batch, feed, received) for received, feed in named if feed]


def without_feed(session: Session) -> dict[str, str]:
    """Such batches that no feed file describes any more, each with what to do."""
    return {
        received.batch_id: f"no feed file describes {name} any more: put it back among the feed files"
        for received, name in _without_end(session)
        if session.catalog.named(name) is None
    }


def _without_end(session: Session) -> list[tuple[Received, str]]:
    """Files of batches without an end at this target, oldest first, and the names of their feeds.

    One that waited for a confirmation has none either, once its feed file gives that.
    """
    known = {row["batch_id"] for row in session.ledger.batches()}
    here = {row["batch_id"]: row for row in session.ledger.batches(session.target)}
    going_on = confirmed_since(session.ledger, session.catalog, session.target)
    going_on |= {name for name, row in here.items() if row["state"] == "running"}
    found = []
    for folder in sorted((session.home / "batches").iterdir()):
        row = here.get(folder.name)
        left = folder.name in going_on if row else folder.name not in known
        if left and (received := received_before(folder)):
            found.append((received, row["feed"] if row else folder.name.rpartition("-")[0]))
    return sorted(found, key=lambda each: each[0].received_at)


def received_batches(session: Session, names: Sequence[str]) -> list[Waiting]:
    """Batches of this target whose source is here, in the order named."""
    found = []
    for name in names:
        row, received = session.ledger.batch(session.target, name), received_before(session.home / "batches" / name)
        feed = session.catalog.named(row["feed"]) if row else None
        if feed and received:
            found.append(Waiting(received.path_in_batch, feed, received))
    return found


def received_before(folder: Path) -> Received | None:
    """The file of a batch folder; None when the folder holds none (purged, or not a batch).

    It came when its hash was written down: the copy is a new one each time that the same file comes again.
    """
    try:
        sha256, time = (folder / "sha256").read_text(errors="replace").strip(), came(folder)
        path = next(p for p in sorted((folder / "source").iterdir()) if not is_control(p.name))
    except (OSError, StopIteration):
        return None
    about = path.stat()
    return Received(folder.name, sha256, path, shown(path.name), about.st_size, time)


def came(folder: Path) -> datetime:
    """Return the time at which the file of a batch came. Raises `OSError` where that is not known."""
    return datetime.fromtimestamp((folder / "sha256").stat().st_mtime, UTC)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn the failure of a read into `TargetUnusable`."""
    try:
        yield
    except (NotSent, NotDone, Refused, Unknown, SweepIncomplete) as error:
        raise TargetUnusable(f"{what} could not be read from the target ({error})") from None

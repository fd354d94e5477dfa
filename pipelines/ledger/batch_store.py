"""Batches kept at a store: any machine with access to the store and the ledger can continue any batch.

The folders of the home are scratch: requested files are brought there, and each is compared with its hash.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from fhir_service.paths import exists, is_folder, matching
from pipelines.home.batch import CONTROL, SOURCE, ReceivedFile, is_control, printable_name
from pipelines.home.batch_files import REPLACED, WITHOUT_ROWS, files_of, is_of, is_source, is_what_came, mark_of
from pipelines.home.batch_log import BatchHistory, BatchLog, FileVersion, LogEntry, number_of
from pipelines.home.deployment_owner import OWNER, is_owned, own
from pipelines.home.files import sha256_of
from pipelines.home.scratch import throwaway_folder
from pipelines.home.stores import Folder, Store, StoreUnusable, store_at
from pipelines.ledger.home_batches import COPY, JOURNAL, HomeBatches, copies_beyond
from pipelines.ledger.tables import LedgerError

LOGS = ".logs"
"""The folder with copies of logs, which never change."""
FEW = 8
"""Up to this many batches are looked up one by one; for more, the logs of all are listed."""
ANOTHER = (
    f"another deployment keeps its batches there ({OWNER}): name a prefix of its own. Where the ledger's database was"
    f" lost, copy {JOURNAL}/ there to batches/{JOURNAL} of this home, and name an empty one; where the copies are lost,"
    " too, remove that object"
)


GONE = (
    f"nothing of what this deployment kept is there any more: mount it, restore it, or copy it there from where it was;"
    f" where it is to begin anew, remove batches/{LOGS} of this home"
)


class BatchesUnusable(LedgerError):
    """The store of batches cannot be used. The text is one sentence."""


class StoredBatches(HomeBatches):
    """Batches kept at a store. Every method raises BatchesUnusable.

    place: the store's address. deployment: returns the id of the deployment that owns the store; None before it has
    one.
    """

    def __init__(self, path: Path, place: str, deployment: Callable[[], str | None]) -> None:
        super().__init__(path)
        self._place, self._deployment = place, deployment
        self._logs: BatchLogs | None = None
        self._brought: set[str] = set()

    def names(self) -> list[str]:
        with self._open() as logs:
            return sorted({*super().names(), *(logs.names() if logs else ())})

    def folder(self, batch_id: str) -> Path:
        return super().folder(batch_id) if batch_id in self._brought else self.renew(batch_id)

    def bring(self, batch_ids: Collection[str], *files: str) -> None:
        with self._open() as logs:
            for batch_id, log in logs.of_all(batch_ids) if logs else ():
                _Folder(self.path / batch_id, log).fill(files or ("*",))
                if not files:
                    self._brought.add(batch_id)

    def received(self, batch_id: str) -> ReceivedFile | None:
        with self._open() as logs:
            history = self._known(logs, batch_id)
            if history is None:
                return super().received(batch_id)
            came, files = history.now.get("sha256"), sorted(filter(is_source, history.now))
            if came is None or not files:
                return None
            file, path = history.now[files[0]], self.path / batch_id / files[0]
            return ReceivedFile(batch_id, file.sha256, path, printable_name(path.name), file.size, _made_at(came))

    def copied_at(self, batch_id: str) -> datetime | None:
        with self._open() as logs:
            history = self._known(logs, batch_id)
            if history is None:
                return super().copied_at(batch_id)
            return next((_made_at(file) for path, file in sorted(history.now.items()) if is_source(path)), None)

    def has_source(self, batch_id: str) -> bool:
        with self._open() as logs:
            history = self._known(logs, batch_id)
            if history is None:
                return super().has_source(batch_id)
            return history.purging or any(map(_has_rows, history.now))

    def claim(self, batch_id: str, run: str, /) -> bool:
        with self._open() as logs:
            return logs is None or logs.of(batch_id).append(
                lambda history: None if run in history.runs else LogEntry(begins=(run,))
            )

    def keep(self, batch_id: str, *files: str) -> None:
        with self._open() as logs:
            if logs:
                folder = _Folder(self.path / batch_id, logs.of(batch_id))
                logs.of(batch_id).append(lambda history: folder.news(history, files))
                folder.drop()

    def agree(self) -> None:
        with self._open() as logs:
            if logs is None:
                return
            entries = logs.entries()
            for batch_id in super().names():
                if batch_id not in entries:
                    self.keep(batch_id, *SOURCE, "run-*/*")
                elif not logs.of(batch_id).is_done(entries[batch_id]):
                    logs.of(batch_id).read(entries[batch_id])
                    _Folder(self.path / batch_id, logs.of(batch_id)).drop()
                    logs.of(batch_id).note_done()

    def keep_journal(self, copy: Callable[[Iterable[str], Path], None]) -> None:
        with self._open() as logs:
            if logs:
                logs.keep_journal(copy, self.path.parent)

    @contextmanager
    def journal_beyond(self, number: int) -> Iterator[list[Path]]:
        with self._open() as logs, throwaway_folder(self.path.parent) as scratch:
            yield logs.fetch_journal(number, scratch) if logs else []

    def remove(self, batch_id: str) -> None:
        with self._open() as logs:
            if logs is None:
                return
            log = logs.of(batch_id)

            def without(history: BatchHistory) -> LogEntry | None:
                gone = tuple(filter(_has_rows, history.now))
                return LogEntry(gone=gone, purges=True) if gone else None

            log.append(without)
            log.delete_old()

    def _known(self, logs: "BatchLogs | None", batch_id: str) -> BatchHistory | None:
        """Return the history of a batch as first read; None if the store does not have the batch."""
        if logs is None or not (history := logs.of(batch_id).known()).entries:
            return None
        _Folder(self.path / batch_id, logs.of(batch_id)).drop()
        return history

    @contextmanager
    def _open(self) -> Iterator["BatchLogs | None"]:
        """Yield the logs of the store, which belongs to this deployment; None if neither has anything yet."""
        try:
            if self._logs is None and (deployment := self._owner(store := store_at(self._place))):
                self._logs = BatchLogs(store, self._copies_of(store, deployment))
            yield self._logs
        except StoreUnusable as error:
            raise BatchesUnusable(f"the batches are out of reach: {error}") from None

    def _copies_of(self, store: Store, deployment: str) -> Path:
        """Make sure that a store belongs to this deployment; return the folder for copies of its logs.

        Raises StoreUnusable also if this home has kept batches, here or at another place, and the store is empty.
        """
        logs = self.path / LOGS
        known = logs / f"{hashlib.sha256(self._place.encode()).hexdigest()[:16]}.known"
        if any(matching(logs, "*.known")) and not is_owned(store) and not store.names("log/"):
            raise StoreUnusable(f"{self._place}: {GONE}")
        if isinstance(store, Folder) and not is_folder(store.path.absolute().parent):
            raise StoreUnusable(f"{self._place}: the folder that it is to lie in is not there: make it, or mount it")
        since = own(store, deployment, ANOTHER)
        if not exists(known):
            with suppress(OSError):  # a full disk: noted the next time
                logs.mkdir(mode=0o700, parents=True, exist_ok=True)
                known.touch(mode=0o600)
        return logs / hashlib.sha256(f"{self._place} {since}".encode()).hexdigest()[:16]

    def _owner(self, store: Store) -> str | None:
        deployment = self._deployment()
        if deployment is None and is_owned(store):
            raise StoreUnusable(ANOTHER)
        return deployment


class BatchLogs:
    """The logs of all batches at a store. copies: the folder for copies of their entries."""

    def __init__(self, store: Store, copies: Path) -> None:
        self._store, self._copies = store, copies
        self._logs: dict[str, BatchLog] = {}

    def names(self) -> list[str]:
        """Return the names of all batches at the store."""
        return self._store.names("log/")

    def keep_journal(self, copy: Callable[[Iterable[str], Path], None], home: Path) -> None:
        """Put new lines of the ledger's journal beside the batches."""
        with throwaway_folder(home) as scratch:
            copy(filter(COPY.fullmatch, self._store.names(f"{JOURNAL}/")), scratch)
            for path in matching(scratch, "*.ndjson.gz"):
                self._store.put(f"{JOURNAL}/{path.name}", path)

    def fetch_journal(self, number: int, folder: Path) -> list[Path]:
        """Fetch the copies of the journal that `copies_beyond` names to a folder. Raises `LedgerError`."""
        names = copies_beyond(self._store.names(f"{JOURNAL}/"), number)
        for name in names:
            if not self._store.fetch(f"{JOURNAL}/{name}", folder / name):
                raise LedgerError(f"{JOURNAL}/{name} was removed from beside the batches just now. Nothing was sent")
        return [folder / name for name in names]

    def of(self, batch_id: str) -> BatchLog:
        """Return the log of a batch, as far as it was read."""
        if batch_id not in self._logs:
            self._logs[batch_id] = BatchLog(self._store, batch_id, self._copies / batch_id)
        return self._logs[batch_id]

    def of_all(self, batch_ids: Collection[str]) -> Iterator[tuple[str, BatchLog]]:
        """Yield the logs of these batches, read up to their present ends."""
        listed = self.entries() if len(batch_ids) > FEW else None
        for batch_id in batch_ids:
            log = self.of(batch_id)
            log.read(None if listed is None else listed.get(batch_id, 0))
            yield batch_id, log

    def entries(self) -> dict[str, int]:
        """Return the number of entries of each log."""
        found: dict[str, int] = {}
        for key in self._store.ages("log/"):
            match key.split("/"):
                case [_, batch_id, name] if number := number_of(name):
                    found[batch_id] = max(number, found.get(batch_id, 0))
        return found


class _Folder:
    """The folder of a batch and its log."""

    def __init__(self, path: Path, log: BatchLog) -> None:
        self._path, self._log = path, log

    def drop(self) -> None:
        """Remove files that the batch no longer has."""
        history = self._log.history
        for path in set(history.seen).difference(history.now):
            if (mark := mark_of(self._path / path)) and history.has_seen(path, mark):
                (self._path / path).unlink(missing_ok=True)
        for path in files_of(self._path) if history.purged else ():
            # A killed run may leave rows that it never kept. Rows of the batch's own file have a mark.
            if path.partition("/")[0] in history.purged and _has_rows(path) and path not in history.now:
                (self._path / path).unlink(missing_ok=True)
        if history.purges and not any(map(is_source, history.now)):
            shutil.rmtree(self._path / "rejects", ignore_errors=True)  # exported from rows that are gone

    def fill(self, files: Collection[str]) -> None:
        """Bring the files that match these patterns to their present versions, and remove those no longer listed."""
        self.drop()
        history = self._log.history
        wanted = {path: version for path, version in history.now.items() if is_of(path, files)}
        lacking = {path: version for path, version in wanted.items() if self._lacks(path, version)}
        if lacking:
            with throwaway_folder(self._path.parent.parent) as scratch:
                for path, version in lacking.items():
                    self._fetch(path, version, scratch / version.sha256)

    def news(self, history: BatchHistory, files: Collection[str]) -> LogEntry | None:
        """Put new files that match these patterns to the store; return the log entry for them."""
        new = dict[str, FileVersion]()
        for path in files_of(self._path):
            mark = mark_of(self._path / path)
            if not is_of(path, files) or mark is None or history.has_seen(path, mark):
                continue
            is_there = path in history.now and not is_of(path, REPLACED)
            if is_there and not is_source(path):
                continue
            sha256 = sha256_of(self._path / path)
            if not is_what_came(self._path, path, sha256):
                continue
            if is_source(path):
                self._mend(history, path, sha256)
            new[path] = FileVersion(self._log.put(history, sha256, self._path / path), sha256, *mark)
        if not any(path.startswith("source/") for path in new):
            return LogEntry(new) if new else None
        # Equal bytes under another name replaced the earlier file. Its control totals stay.
        gone = {path for path in history.now if path.startswith("source/") and not exists(self._path / path)}
        for path in list(filter(is_source, new)):
            control = f"{path}{CONTROL}"
            gone -= {control}
            if control not in new and (of_gone := sorted(filter(is_control, gone))):
                new[control] = history.now[of_gone[0]]
        return LogEntry(new, tuple(sorted(gone)))

    def _mend(self, history: BatchHistory, path: str, sha256: str) -> None:
        """Put the batch's file to the store once more if its object there is damaged or gone."""
        there = {version.key: version for version in history.now.values() if version.sha256 == sha256}
        for version in there.values():
            with throwaway_folder(self._path.parent.parent) as scratch:
                part = scratch / sha256
                if not self._log.fetch(version, part) or sha256_of(part) != sha256:
                    self._log.put_again(version, self._path / path)

    def _lacks(self, path: str, version: FileVersion) -> bool:
        """True if a file is not the version that the batch has."""
        file = self._path / path
        mark = mark_of(file)
        if mark == version.mark:
            return False
        if mark and is_of(path, REPLACED):
            return self._log.history.has_seen(path, mark)  # otherwise it was written here since, and is not kept yet
        if mark and mark[0] == version.size and sha256_of(file) == version.sha256:
            _set_time(file, version)
            return False
        return True

    def _fetch(self, path: str, version: FileVersion, part: Path) -> None:
        if not self._log.fetch(version, part):
            if self._log.read().now.get(path) != version:  # purged just now
                return
            raise StoreUnusable(f"{version.key} is not there any more: restore it")
        if sha256_of(part) != version.sha256:
            raise StoreUnusable(f"{version.key} is not what was put there: restore it")
        part.chmod(0o600)
        _set_time(part, version)
        (self._path / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.replace(self._path / path)


def _has_rows(path: str) -> bool:
    return not is_of(path, WITHOUT_ROWS)


def _made_at(version: FileVersion) -> datetime:
    return datetime.fromtimestamp(version.micros / 1e6, UTC)


def _set_time(file: Path, version: FileVersion) -> None:
    os.utime(file, ns=(version.micros * 1000, version.micros * 1000))

"""Places beyond the home: a folder, or a prefix of an object store (S3, Google Cloud Storage, Azure).

Only `swap` replaces objects that others read, and it fails if another writer was first. Credentials of an object store
come from the variables that its own tools read. No message contains an answer of a store.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple, Protocol

from fhir_service.paths import is_folder
from pipelines.home.batch import reason_of
from pipelines.home.exits import ExplainedError
from pipelines.home.files import locked, write_whole, written_whole
from pipelines.home.object_listing import lying_past, unread_key

SCHEMES = ("s3://", "gs://", "az://")
LACKING = "needs obstore, which is not installed: pip install 'chartferry[cluster]'"
READ_ONLY = 0o444
BLOCK = 1 << 20
SECONDS_OF_A_REQUEST, SECONDS_OF_CONNECTING = 60, 5
TRIES, SECONDS_OF_TRIES = 3, 60
ALLOW_HTTP = ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP", "AZURE_STORAGE_USE_EMULATOR", "GOOGLE_ALLOW_HTTP")
STATUS = re.compile(r"status code: ([345][0-9]{2})\b")
EXPIRED = re.compile(r"<Code>(ExpiredToken|TokenRefreshRequired)</Code>")
"""Matches an answer about expired credentials, which S3 gives with status 400."""


class StoreUnusable(ExplainedError):
    """The store cannot be used. The text is one sentence with its name and the reason."""


class SomebodyElse(Exception):
    """Another writer replaced an object first."""


@dataclass(frozen=True)
class HeldObject:
    """An object as it was read. mark: differs after each change."""

    content: bytes
    mark: Any


CONFLICT = "it refuses a write as one of two at once, again and again: start the same command again"
UNREAD = "unread"
"""The mark of an object whose name is no path."""


class ListedObject(NamedTuple):
    """An object as a listing shows it. mark: differs after each change. at: when it was written."""

    mark: str
    at: datetime


class Store(Protocol):
    """A place for files by key. Every method raises StoreUnusable."""

    def put(self, key: str, file: Path) -> None:
        """Copy a file to a key that nobody reads yet."""

    def read(self, key: str) -> HeldObject | None:
        """Return an object; None if there is none."""

    def swap(self, key: str, content: bytes, before: HeldObject | None) -> None:
        """Replace an object in one step. Raises SomebodyElse if it is no longer as `before`."""

    def fetch(self, key: str, file: Path) -> bool:
        """Copy an object to a new file; return False if there is no such object."""

    def ages(self, below: str = "") -> dict[str, datetime]:
        """Return when each object was written, by key. below: `a/b/` for keys that begin so."""

    def names(self, below: str) -> list[str]:
        """Return the names directly below `a/b/`, sorted."""

    def lying(self) -> dict[str, ListedObject]:
        """Return by name the objects directly below the place itself; with the mark `UNREAD` those of unreadable
        names.
        """

    def seen(self, key: str) -> ListedObject | None:
        """Return an object as it is now, without its content; None if there is none."""

    def remove(self, keys: Collection[str]) -> None:
        """Remove objects that exist."""

    def above(self) -> Iterator[str]:
        """Yield the addresses of the places that contain this one, nearest first."""


def store_at(place: str) -> Store:
    """Return the store that a setting names. Raises StoreUnusable."""
    if place.startswith(SCHEMES):
        if any(sign in place for sign in "@?#"):
            # Not repeated, since it may contain a password.
            raise StoreUnusable(
                "the address of the store has `@`, `?` or `#`: name bucket and prefix alone, and give"
                " credentials by the variables of the store's own tools"
            )
        return Bucket.at(place)
    if "://" in place:
        raise StoreUnusable(f"{place.partition('://')[0]}:// is no store: name a folder, {', '.join(SCHEMES)}")
    return Folder(Path(place).expanduser())


@dataclass(frozen=True)
class Folder:
    """A folder as a store. Writers take turns by a lock."""

    path: Path

    def put(self, key: str, file: Path) -> None:
        final = self.path / key
        with _not_of(file), self._told():
            final.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with written_whole(final, READ_ONLY) as part:
                shutil.copyfile(file, part)

    def read(self, key: str) -> HeldObject | None:
        with self._told():
            try:
                content = (self.path / key).read_bytes()
            except FileNotFoundError:
                return None
        return HeldObject(content, hashlib.sha256(content).hexdigest())

    def swap(self, key: str, content: bytes, before: HeldObject | None) -> None:
        with self._told():
            (self.path / key).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with locked(self.path / ".lock"):
                now = self.read(key)
                if (now and now.mark) != (before and before.mark):
                    raise SomebodyElse
                write_whole(self.path / key, content, READ_ONLY)

    def fetch(self, key: str, file: Path) -> bool:
        with self._told():
            try:
                found = (self.path / key).open("rb")
            except FileNotFoundError:
                return False
        with found:
            _write(file, iter(partial(found.read, BLOCK), b""), self._told)
        return True

    def ages(self, below: str = "") -> dict[str, datetime]:
        found: dict[str, datetime] = {}
        with self._told():
            for folder, _, names in os.walk(self.path / below, onerror=_unless_gone):
                for path in (Path(folder, name) for name in names if name != ".lock"):
                    with suppress(FileNotFoundError):  # a writer has renamed or removed it
                        at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
                        found[str(path.relative_to(self.path))] = at
        return found

    def names(self, below: str) -> list[str]:
        with self._told():
            try:
                found = [path.name for path in (self.path / below).iterdir()]
            except FileNotFoundError:
                return []
        # Remains of a killed writer are no objects.
        return sorted(name for name in found if not name.startswith(".") and not name.endswith(".part"))

    def lying(self) -> dict[str, ListedObject]:
        with self._told():  # a missing folder may not be mounted
            names = [path.name for path in self.path.iterdir()]
        return {name: seen for name in names if (seen := self.seen(name))}

    def seen(self, key: str) -> ListedObject | None:
        with self._told():
            try:
                about = (self.path / key).lstat()
            except FileNotFoundError:
                return None
        # A link could lead to a file that is no export.
        changed = max(about.st_mtime_ns, about.st_ctime_ns)
        at = datetime.fromtimestamp(changed / 1e9, UTC)
        return ListedObject(f"{about.st_size}-{about.st_mtime_ns}-{changed}", at) if S_ISREG(about.st_mode) else None

    def remove(self, keys: Collection[str]) -> None:
        with self._told():
            for key in keys:
                (self.path / key).unlink(missing_ok=True)
            for folder in {self.path / key for key in keys}:
                self._remove_empty(folder.parent)

    def above(self) -> Iterator[str]:
        yield from map(str, self.path.absolute().parents)

    def _remove_empty(self, folder: Path) -> None:
        while folder != self.path and is_folder(folder) and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnusable(f"{self.path}: {reason_of(error)}") from None


@dataclass(frozen=True)
class Bucket:
    """A prefix of an object store. place: its address. store: of obstore."""

    place: str
    store: Any

    @classmethod
    def at(cls, place: str) -> "Bucket":
        """Return the store at an address, with obstore's settings from the environment. Raises StoreUnusable."""
        try:
            from obstore.store import from_url
        except ImportError:
            raise StoreUnusable(f"{place}: {LACKING}") from None
        plain = any(os.environ.get(name, "").lower() in ("1", "true", "yes") for name in ALLOW_HTTP)
        client = {
            "timeout": timedelta(seconds=SECONDS_OF_A_REQUEST),
            "connect_timeout": timedelta(seconds=SECONDS_OF_CONNECTING),
        }
        retries = {"max_retries": TRIES, "retry_timeout": timedelta(seconds=SECONDS_OF_TRIES)}
        try:
            made = from_url(place.rstrip("/"), client_options={**client, "allow_http": plain}, retry_config=retries)  # type: ignore[call-overload,unused-ignore]
        except Exception:  # noqa: BLE001 - its text may contain settings of the environment
            raise StoreUnusable(f"{place}: is not the address of a bucket, or its settings are not whole") from None
        return cls(place, made)

    def put(self, key: str, file: Path) -> None:
        with _not_of(file), self._told():
            self.store.put(key, file)

    def read(self, key: str) -> HeldObject | None:
        with self._told():
            try:
                found = self.store.get(key)
                meta = found.meta
                content = bytes(found.bytes())
            except FileNotFoundError:
                return None
        return HeldObject(content, {name: meta[name] for name in ("e_tag", "version") if meta.get(name)})

    def swap(self, key: str, content: bytes, before: HeldObject | None) -> None:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._told():
            for _ in range(TRIES):
                try:
                    self.store.put(key, content, mode=before.mark if before else "create", use_multipart=False)
                except (AlreadyExistsError, PreconditionError):
                    now = self.read(key)
                    if now and now.content == content:  # our write succeeded, and its answer was lost
                        return
                    if (now and now.mark) != (before and before.mark):
                        raise SomebodyElse from None
                    # S3 refuses one of two writes at once (409), even if the other fails.
                else:
                    return
            raise StoreUnusable(f"{self.place}: {CONFLICT}")

    def fetch(self, key: str, file: Path) -> bool:
        with self._told():
            try:
                found = self.store.get(key)
            except FileNotFoundError:
                return False
            blocks = iter(found)
        _write(file, blocks, self._told)
        return True

    def ages(self, below: str = "") -> dict[str, datetime]:
        with self._told():
            pages = self.store.list(below or None)
            return {each["path"]: each["last_modified"] for page in pages for each in page}

    def names(self, below: str) -> list[str]:
        with self._told():
            found = self.store.list_with_delimiter(below or None)
            paths = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    def lying(self) -> dict[str, ListedObject]:
        with self._told():
            try:
                return {each["path"]: _seen(each) for each in self.store.list_with_delimiter()["objects"]}
            except Exception as error:
                if unread_key(error) is None:
                    raise
            found, unread = lying_past(self.store, self._prefix)
        nameless = dict.fromkeys(unread, ListedObject(UNREAD, datetime.fromtimestamp(0, UTC)))
        return {each["path"]: _seen(each) for each in found} | nameless

    @property
    def _prefix(self) -> str:
        """The common beginning of all keys of the place."""
        within = self.place.rstrip("/").partition("://")[2].partition("/")[2]
        return within and f"{within}/"

    def seen(self, key: str) -> ListedObject | None:
        with self._told():
            try:
                return _seen(self.store.head(key))
            except FileNotFoundError:
                return None

    def remove(self, keys: Collection[str]) -> None:
        with self._told():
            for key in keys:
                try:
                    self.store.delete(key)
                except FileNotFoundError:
                    continue

    def above(self) -> Iterator[str]:
        scheme, _, rest = self.place.rstrip("/").partition("://")
        bucket, *parts = rest.split("/")
        for length in range(len(parts) - 1, -1, -1):
            yield f"{scheme}://{'/'.join([bucket, *parts[:length]])}"

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn a failure into a sentence without the store's own words."""
        try:
            yield
        except (StoreUnusable, SomebodyElse):
            raise
        except Exception as error:  # noqa: BLE001 - obstore's classes have no closer common base
            raise StoreUnusable(f"{self.place}: {_why(error)}") from None


def _seen(about: Mapping[str, Any]) -> ListedObject:
    """Return an object of a listing. Its mark has the time, because the etag may be a hash of the bytes, which may be
    put again. The time is in whole seconds, since some stores show more digits only in listings.
    """
    tag, at = (about["e_tag"] or "").strip('"'), about["last_modified"]
    return ListedObject(f"{tag}-{about['size']}-{int(at.timestamp())}", at)


def _write(file: Path, blocks: Iterator[Any], told: Callable[[], AbstractContextManager[None]]) -> None:
    """Write a store's content to a local file. A failure of that file is not reported as the store's."""
    with file.open("wb") as into:
        while True:
            with told():
                block = next(blocks, None)
            if block is None:
                return
            into.write(block)


@contextmanager
def _not_of(file: Path) -> Iterator[None]:
    """Raise `OSError` in place of StoreUnusable if the local file is missing."""
    try:
        yield
    except StoreUnusable:
        file.stat()
        raise


def _unless_gone(error: OSError) -> None:
    """Ignore an error about a folder that is gone, or is a file."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _why(error: Exception) -> str:
    """Return why a store cannot be used."""
    kind, status = type(error).__name__, STATUS.search(str(error))
    if EXPIRED.search(str(error)):
        return "these credentials have expired"
    if unread := unread_key(error):
        return f"the name of an object is not a path ({unread}), so no object can be listed; rename or remove it"
    said = status[1] if status else ""  # for a listing, the library's class says nothing
    if said in ("401", "403") or kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return f"it refuses these credentials ({said or kind})"
    if said == "404" or isinstance(error, FileNotFoundError):
        return "there is no such bucket or container"
    if said:
        elsewhere = f"it is elsewhere ({said}): check region and address"
        return elsewhere if said.startswith("3") else f"it answers with an error ({said})"
    return "it does not answer, or the connection to it was lost"

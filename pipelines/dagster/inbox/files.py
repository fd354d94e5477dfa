"""The files of the inbox: their marks, if they have stopped growing, and how long they have been there."""

import hashlib
import os
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from stat import S_ISREG

from fhir_service.paths import is_folder
from pipelines.home import file_growth
from pipelines.home.batch import is_control
from pipelines.home.file_growth import QUIET
from pipelines.home.preparing import INBOX, check_mounted

BYTES_OF_MARK = 6
LAIN_TOO_LONG = timedelta(hours=1)


def is_quiet(path: Path, about: os.stat_result, now: datetime) -> bool:
    """True if a file has not changed for some seconds, by a clock that can be trusted."""
    return file_growth.is_quiet(path, max(about.st_mtime, about.st_ctime), now.timestamp(), QUIET)


def has_inbox(home: Path, environ: Mapping[str, str]) -> bool:
    """True if there is an inbox. Raises `BadHome` if the inbox of a clinic has vanished."""
    check_mounted(home, environ)
    return is_folder(home / INBOX)


def lain_for(inbox: Path, now: datetime, least: timedelta) -> dict[str, datetime]:
    """Return the files in the inbox for `least` or longer, and since when. Files without a feed are included."""
    if not is_folder(inbox):
        return {}
    came = {path.name: datetime.fromtimestamp(about.st_ctime, UTC) for path, about in files_in(inbox)}
    return {name: at for name, at in came.items() if at <= now - least}


def mark_of(path: Path, about: os.stat_result) -> str:
    """Return the mark of a file: a hash of name, size, and times of change and modification.

    The time of change (ctime) shows a replaced file even if its modification time was set back.
    """
    return short_hash([path.name, str(about.st_size), str(about.st_ctime_ns), str(about.st_mtime_ns)])


def short_hash(parts: Iterator[str] | Sequence[str]) -> str:
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).digest()
    return urlsafe_b64encode(digest[:BYTES_OF_MARK]).decode()


def files_in(inbox: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the files of the inbox by name. Names that begin with a dot are left out: they are still being written."""
    with os.scandir(inbox) as entries:
        named = sorted(entry.path for entry in entries if not entry.name.startswith("."))
    for path in map(Path, named):
        if not is_control(path.name):
            try:
                about = path.stat()
            except OSError:  # removed since, or a broken link
                continue
            if S_ISREG(about.st_mode):
                yield path, about

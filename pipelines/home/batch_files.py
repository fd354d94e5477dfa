"""The files of a batch's folder that are kept: which files these are, and how one is recognized as unchanged."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from fhir_service.paths import is_file, matching
from pipelines.home.batch import is_control

MANIFESTS = "run-*/manifest.json"
ACCEPTED = "run-*/accepted.parquet"
NONE = ""
"""A pattern of no file, for when only the batch's list of files is needed."""
WARNINGS = "run-*/warnings.parquet"
WITHOUT_ROWS = ("sha256", MANIFESTS, WARNINGS, "run-*/.told")
"""The files of a batch without any row of it. A purge keeps them."""
REPLACED = (MANIFESTS, "run-*/validated.json", "source/*.control.json")
"""The files of a batch that are written more than once. All other files are written once and never changed."""

Mark = tuple[int, int]
"""Size and time of a file, the time in microseconds since 1970."""


def files_of(folder: Path) -> list[str]:
    """Return the paths of a batch's files, without half-written files and those made for people."""
    found = [*matching(folder, "sha256"), *matching(folder, "source/*"), *matching(folder, "run-*/*")]
    return sorted(
        str(path.relative_to(folder))
        for path in found
        if is_file(path) and not path.name.startswith(".") and path.suffix != ".part"
    )


def is_of(path: str, patterns: Iterable[str]) -> bool:
    """True if a path matches one of these patterns."""
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def holds_rows(folder: Path) -> bool:
    """True if any file in a batch's folder contains rows of it. Half-written files count."""
    return any(
        is_file(path) and not is_of(str(path.relative_to(folder)), WITHOUT_ROWS) for path in matching(folder, "**")
    )


def mark_of(file: Path) -> Mark | None:
    """Return the mark of a file; None if the file is missing."""
    try:
        about = file.stat()
    except OSError:
        return None
    return about.st_size, about.st_mtime_ns // 1000


def is_source(path: str) -> bool:
    """True if a path is that of the batch's file."""
    return path.startswith("source/") and not is_control(path)


def is_what_came(folder: Path, path: str, sha256: str) -> bool:
    """False for a copy of the batch's file that was changed since it came."""
    if not is_source(path):
        return True
    try:
        return (folder / "sha256").read_text(errors="replace").strip() == sha256
    except OSError:
        return False

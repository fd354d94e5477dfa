"""Received files as plain bytes: as they are, or unpacked from gzip, Zstandard or a zip archive.

The unpacked size is bounded, so that a small file cannot keep an import busy for long. Nothing is written to disk.
"""

import gzip
import hashlib
import io
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from pipelines.home.batch import UnreadableFile, printable_name, reading_file

GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
ZSTANDARD = (b"\x28\xb5\x2f\xfd", *(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60)))
"""The first bytes of a frame, and of skippable frames, which parallel packers write first."""
EMPTY_ZIP = b"PK\x05\x06"
ALWAYS_TAKEN = 256 << 20
MOST_TIMES = 100
"""A file may unpack to this many times its size, and to `ALWAYS_TAKEN` bytes in any case."""
MOST_FILES = 1_000
BLOCK = 1 << 16
UNTAKEN = "ZIP-FILES"
_NAMED = ((".gz", "gzip"), (".zst", "Zstandard"))
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, zipfile.BadZipFile, OSError)
_MARKS_OF_OFFICE = {"[Content_Types].xml", "mimetype", "META-INF/manifest.xml"}


@dataclass(frozen=True)
class Content:
    """The plain bytes of a received file, or of one file in a zip archive.

    * name: the name in messages; it says so if the file is not packed as its name tells.
    * file_name: the name that shows the format; for a file in an archive, its own.
    * open: returns the bytes from their beginning. Reading them raises Unreadable if they are damaged or too many.
    """

    name: str
    file_name: str
    open: Callable[[], BinaryIO]


@dataclass(frozen=True)
class Contents:
    """The contents of a received file: the file itself, or the files of a zip archive in the order of their names.

    untaken: the names of files in the archive that the feed does not take.
    """

    files: tuple[Content, ...]
    untaken: tuple[str, ...] = ()


def contents(path: Path, name: str, patterns: Sequence[str] = ()) -> Contents:
    """Return the contents of a file. patterns: the file names that its feed takes. Raises Unreadable."""
    with reading_file(name):
        with path.open("rb") as file:
            start = file.read(4)
        most = max(ALWAYS_TAKEN, MOST_TIMES * path.stat().st_size)
        if start in (ZIP, EMPTY_ZIP):
            return _of_zip(path, name, patterns, most)
    plain = name.removesuffix(".gz").removesuffix(".zst")
    if start.startswith(GZIP):
        return Contents((Content(name, plain, _unpacked(lambda: gzip.open(path), name, "gzip", most)),))
    if start in ZSTANDARD:
        return Contents((Content(name, plain, _unpacked(_zstandard(path), name, "Zstandard", most)),))
    lacking = next((f", which is not {packing} data" for end, packing in _NAMED if name.lower().endswith(end)), "")
    return Contents((Content(name + lacking, plain, lambda: path.open("rb")),))


def first_content(path: Path) -> Content:
    """Return the first of a file's contents. Raises Unreadable."""
    return contents(path, path.name).files[0]


def unpacked_sha256(path: Path) -> str | None:
    """Return the hash of the only file in a packed file; None if the file is not packed, or cannot be read."""
    try:
        with path.open("rb") as file:
            if not file.read(4).startswith((GZIP, ZIP, *ZSTANDARD)):
                return None
        files, digest = contents(path, path.name).files, hashlib.sha256()
        if len(files) > 1:
            return None
        with files[0].open() as content:
            while block := content.read(BLOCK):
                digest.update(block)
        return digest.hexdigest()
    except (OSError, UnreadableFile):
        return None


def _zstandard(path: Path) -> Callable[[], Any]:
    def opener() -> Any:
        import pyarrow as pa  # slow to import, and few files need it

        return pa.CompressedInputStream(pa.OSFile(str(path)), "zstd")

    return opener


# --- Zip archives ---------------------------------------------------------------------------------


def _of_zip(path: Path, name: str, patterns: Sequence[str], most: int) -> Contents:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [each for each in archive.infolist() if _is_file(each.filename)]
            if _MARKS_OF_OFFICE & set(archive.namelist()):
                raise UnreadableFile(
                    f"{name}: the file is a workbook (.xlsx, .ods) or another document; export the sheet "
                    'as CSV, or describe an .xlsx by a feed file with format = "xlsx"'
                )
            if _has_more_than_one(archive, path):
                raise UnreadableFile(
                    f"{name}: the file holds several archives, one after another; put them in as separate files"
                )
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        raise UnreadableFile(
            f"{name}: the file is a workbook (.xlsx, .ods) or a zip archive, and is cut off or damaged; export it again"
        ) from None
    if not members:
        raise UnreadableFile(f"{name}: the archive has no file in it; export it again")
    taken = [each for each in members if is_taken(each.filename, patterns)] or members
    if len(members) > MOST_FILES:
        raise UnreadableFile(
            f"{name}: {len(members):,} files are in the archive, and an archive may have {MOST_FILES:,}; split it"
        )
    if len(taken) > 1 and patterns and not is_taken(taken[0].filename, patterns):
        raise UnreadableFile(
            f"{name}: {len(members):,} files are in the archive, and the feed does not say which of them to read; "
            "name the wanted ones in files = [...] of the feed file"
        )
    if sum(each.file_size for each in taken) > most:
        raise UnreadableFile(_too_much(name, most))
    taken.sort(key=lambda each: each.filename)
    untaken = sorted(printable_name(each.filename) for each in members if each not in taken)
    names = Counter(PurePosixPath(each.filename).name for each in taken)
    alike = {each.filename for each in taken if names[PurePosixPath(each.filename).name] > 1}
    return Contents(tuple(_member(path, name, each, most, alike) for each in taken), tuple(untaken))


def _has_more_than_one(archive: zipfile.ZipFile, path: Path) -> bool:
    """True if the file has members of another archive before this one's, or after its directory.

    The directory names none of those. Of two concatenated archives, the second is read, or the first if the second is
    cut off.
    """
    with path.open("rb") as file:
        file.seek(archive.start_dir)
        behind = file.read()
    return ZIP in behind or min((each.header_offset for each in archive.infolist()), default=0) > 0


def _is_file(inner: str) -> bool:
    """True for a file of the archive: no folder, and none of the hidden files that systems add.

    A file is hidden by its own name only. If the name of a folder counted, an export in `.export/` would vanish without
    a message.
    """
    path = PurePosixPath(inner)
    return not inner.endswith("/") and not path.name.startswith(".") and "__MACOSX" not in path.parts


def is_taken(inner: str, patterns: Sequence[str]) -> bool:
    """True if the name of a file in an archive fits one of these patterns."""
    return any(fnmatchcase(PurePosixPath(inner).name, pattern) for pattern in patterns)


def _member(path: Path, name: str, member: zipfile.ZipInfo, most: int, alike: Collection[str]) -> Content:
    """Return a file of an archive. alike: files whose names occur in several folders; messages name the folder."""
    inner = printable_name(member.filename if member.filename in alike else PurePosixPath(member.filename).name)
    label = f"{name}: {inner}"
    if member.flag_bits & _ENCRYPTED:
        raise UnreadableFile(f"{label} needs a password; put in an archive without one")
    if member.compress_type not in _METHODS:
        raise UnreadableFile(f"{label} is packed by a method that cannot be read; pack it with the usual one (Deflate)")
    return Content(label, inner, _unpacked(lambda: zipfile.ZipFile(path).open(member), label, "zip", most))


# --- Bytes ----------------------------------------------------------------------------------------


def _unpacked(opener: Callable[[], Any], name: str, packing: str, most: int) -> Callable[[], BinaryIO]:
    return lambda: io.BufferedReader(_Unpacked(opener, name, packing, most), BLOCK)


def _too_much(name: str, most: int) -> str:
    return (
        f"{name}: unpacks to more than {most >> 20:,} MB, far more than an export of its size; "
        "if it is one, put it in unpacked"
    )


class _Unpacked(io.RawIOBase):
    """Unpacked bytes, up to a bound."""

    def __init__(self, opener: Callable[[], Any], name: str, packing: str, most: int) -> None:
        self._opener, self._name, self._packing, self._most = opener, name, packing, most
        self._stream: Any = None
        self._place = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            self._stream = self._stream or self._opener()
            block = self._stream.read(len(buffer))
        except _DAMAGED:
            raise UnreadableFile(
                f"{self._name}: the {self._packing} data is cut off or damaged; export the file again"
            ) from None
        self._place += len(block)
        if self._place > self._most:
            raise UnreadableFile(_too_much(self._name, self._most))
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        if self._stream:
            self._stream.close()
        super().close()

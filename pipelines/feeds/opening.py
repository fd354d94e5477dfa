"""Files as text: unpacked, decoded, and refused with one sentence when they are surely no text."""

import codecs
import gzip
import io
import zlib
from pathlib import Path
from typing import Any, TextIO

from pipelines.batch import Unreadable
from pipelines.feeds.schema import FeedFile

GZIP = b"\x1f\x8b"
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
GZIP_DAMAGED = "the gzip data is cut off or damaged; export the file again"
NAME_THE_ENCODING = 'export it as UTF-8, or name its encoding in the feed file (encoding = "windows-1252")'
_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_WIDE = ("utf-16", "utf-32")


def open_text(path: Path, name: str, feed: FeedFile) -> TextIO:
    """The file as text, unpacked when it is gzip. Raises Unreadable for what is surely no text."""
    encoding = codecs.lookup(feed.encoding).name
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
        with gzip.open(path) if packed else path.open("rb") as file:
            start = file.read(4096)
        _surely_text(start, name, encoding)
        stream: Any = gzip.open(path) if packed else path.open("rb")  # noqa: SIM115 - the reader closes it
    except DAMAGED:
        raise Unreadable(f"{name}: {GZIP_DAMAGED}") from None
    except OSError as error:
        raise Unreadable(f"{name}: cannot be read: {error.strerror}") from None
    errors = "surrogatepass" if encoding.startswith(_WIDE) else "surrogateescape"
    return io.TextIOWrapper(stream, _with_mark(start, encoding), errors, newline="")


def _with_mark(start: bytes, encoding: str) -> str:
    """The encoding, its byte order mark looked at; UTF-16 without one is little-endian, as most systems write it."""
    if encoding == "utf-8":
        return "utf-8-sig"
    if encoding == "utf-16" and start[:2] not in _BOMS:
        return "utf-16-le"
    return encoding


def _surely_text(start: bytes, name: str, encoding: str) -> None:
    if not start:
        raise Unreadable(f"{name}: the file is empty; export it again")
    if encoding.startswith(_WIDE):
        if encoding.startswith("utf-16") and start[:2] not in _BOMS and 0 not in start[:400]:
            raise Unreadable(f"{name}: the file is not UTF-16, as its feed says; {NAME_THE_ENCODING}")
        return
    if start[:2] in _BOMS:
        raise Unreadable(f'{name}: the file is UTF-16; export it as UTF-8, or say encoding = "utf-16" in the feed file')
    if start.startswith((b"PK\x03\x04", b"%PDF", b"\xd0\xcf\x11\xe0")):
        raise Unreadable(f"{name}: the file is a workbook, an archive or a PDF; export it as CSV")
    if start.count(0) * 10 > len(start):
        raise Unreadable(f"{name}: the file is binary or in another encoding; {NAME_THE_ENCODING}")

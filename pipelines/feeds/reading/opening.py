"""Files as text: decode them, and refuse those that are surely no text, with one sentence."""

import codecs
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from pipelines.feeds.reading.packed import GZIP, ZIP, ZSTANDARD, Content
from pipelines.feeds.terms.schema import FeedFile
from pipelines.home.batch import UnreadableFile, reading_file

BEGINNING = 4096
ZEROS = "zero bytes instead of rows, as an unfinished copy has; copy or export it again"
FEW_ZEROS = 64
FIRST_LINES = 60
NAME_THE_ENCODING = 'export it as UTF-8, or name its encoding in the feed file (encoding = "windows-1252")'
_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_WIDE = ("utf-16", "utf-32")


def open_text(content: Content, feed: FeedFile, *, takes_array: bool = False) -> TextIO:
    """Return a file as text. Raises Unreadable if it is surely no text, or an array of JSON that is not expected."""
    encoding = codecs.lookup(feed.encoding).name
    with reading_file(content.name):
        with content.open() as file:
            start = file.read(BEGINNING)
        _surely_text(start, content.name, encoding, JSON_ARRAY if takes_array else None)
        stream = content.open()
    errors = "surrogatepass" if encoding.startswith(_WIDE) else "surrogateescape"
    return io.TextIOWrapper(stream, _with_mark(start, encoding), errors, newline="")


@contextmanager
def decoding(name: str, encoding: str) -> Iterator[None]:
    """Raise Unreadable for bytes that are no text in the encoding."""
    try:
        yield
    except UnicodeError:
        raise UnreadableFile(f"{name}: the file is not text in {encoding}; {NAME_THE_ENCODING}") from None


def first_lines(content: Content, feed: FeedFile) -> list[str]:
    """Return the first lines of a text file, as far as they can be decoded."""
    found: list[str] = []
    try:
        with open_text(content, feed) as file:
            while len(found) < FIRST_LINES and (line := file.readline(BEGINNING)):
                found.append(line)
    except (UnicodeError, UnreadableFile):
        pass
    return found


def _with_mark(start: bytes, encoding: str) -> str:
    """Return the encoding, considering the byte order mark.

    UTF-16 without a mark has the order that its zero bytes show. Without zero bytes it is little-endian, as most
    systems write it.
    """
    if encoding == "utf-8":
        return "utf-8-sig"
    if encoding == "utf-16" and start[:2] not in _BOMS:
        return unmarked_utf_16(start) or "utf-16-le"
    return encoding


def unmarked_utf_16(start: bytes) -> str | None:
    """Return UTF-16 with its byte order for a text without a byte order mark; None for other bytes.

    Delimiters, digits and line breaks have a zero byte each, always on the same side.
    """
    pairs = len(start) // 2
    for encoding, zeros, others in (("utf-16-le", start[1::2], start[::2]), ("utf-16-be", start[::2], start[1::2])):
        if zeros.count(0) * 4 > pairs and zeros.count(0) > 10 * others.count(0):
            text = start[: pairs * 2].decode(encoding, "replace").encode()
            return None if is_binary(text) or what_it_is(start) else encoding
    return None


def what_it_is(start: bytes) -> str | None:
    """Return the name of a file that is no text of rows, with advice, from its first bytes; None if unrecognized."""
    if start[257:262] == b"ustar":
        return _ARCHIVE
    begins = start.removeprefix(codecs.BOM_UTF8).lstrip()[:64].lower()
    if _ARRAY.match(begins):
        return JSON_ARRAY
    known = next((said for mark, said in _BEGINNINGS if start.startswith(mark)), None)
    return known or next((said for mark, said in _TEXTS if begins.startswith(mark)), None)


JSON_ARRAY = 'a JSON array; set format = "json" in the feed file, or export the rows as NDJSON or CSV'
_ARRAY = re.compile(rb"\[\s*(?:\{|\]\s*\Z)")
_ARCHIVE = "an archive; unpack it and put in the export itself"
_PICTURE = "a picture; export the rows as CSV"
_DATABASE = "a database or data file of another kind; export the rows as CSV"
_BEGINNINGS = (
    (ZIP, "a workbook (.xlsx, .ods) or a zip archive; export the sheet as CSV, or unpack the archive"),
    (b"\xd0\xcf\x11\xe0", "a workbook or document of an older office program (.xls, .doc); export it as CSV"),
    (b"%PDF", "a PDF; export the rows as CSV"),
    (b"{\\rtf", "a document (RTF); export the rows as CSV"),
    (GZIP, "packed twice; unpack it once"),
    *((mark, _ARCHIVE) for mark in (b"BZh", b"\xfd7zXZ\0", *ZSTANDARD, b"7z\xbc\xaf\x27\x1c", b"Rar!")),
    *((mark, _PICTURE) for mark in (b"\x89PNG", b"\xff\xd8\xff", b"GIF8")),
    *((mark, _DATABASE) for mark in (b"PAR1", b"SQLite format 3\0", b"ARROW1", b"Obj\x01")),
)
_TEXTS = (
    (b"<!doctype html", "a web page, perhaps a sign-in page after a session ended; export the rows again"),
    (b"<html", "a web page, perhaps a sign-in page after a session ended; export the rows again"),
    (b"<?xml", "XML; export the rows as CSV or NDJSON"),
    (b"msh|", "an HL7 message (version 2); export the rows as CSV"),
    (b"isa*", "an X12 file, such as an 835; export the rows as CSV"),
)
_CONTROLS = bytes({*range(32)} - set(b"\t\n\v\f\r\x1a"))


def _surely_text(start: bytes, name: str, encoding: str, taken: str | None) -> None:
    """Raise Unreadable unless the bytes are text. taken: the name of a form that is accepted too."""
    if not start:
        raise UnreadableFile(f"{name}: the file is empty; export it again")
    if (said := what_it_is(start)) and said != taken:
        raise UnreadableFile(f"{name}: the file is {said}")
    if encoding.startswith(_WIDE):
        if encoding.startswith("utf-16") and start[:2] not in _BOMS and 0 not in start[:400]:
            raise UnreadableFile(f"{name}: the file is not UTF-16, as its feed says; {NAME_THE_ENCODING}")
        text = start[: len(start) // 4 * 4].decode(_with_mark(start, encoding), "replace").encode()
        if (said := what_it_is(text)) and said != taken:
            raise UnreadableFile(f"{name}: the file is {said}")
        return
    if start[:2] in _BOMS:
        raise UnreadableFile(
            f'{name}: the file is UTF-16; export it as UTF-8, or set encoding = "utf-16" in the feed file'
        )
    if start.startswith(codecs.BOM_UTF8) and not encoding.startswith("utf-8"):
        raise UnreadableFile(
            f'{name}: the file is UTF-8, as its first bytes show; set encoding = "utf-8" in the feed file'
        )
    if unmarked_utf_16(start):
        raise UnreadableFile(
            f"{name}: the file is UTF-16 without a byte order mark; export it as UTF-8, or say"
            ' encoding = "utf-16" in the feed file'
        )
    if is_binary(start):
        if _ends_in_zeros(start):
            raise UnreadableFile(f"{name}: the file has {ZEROS}")
        raise UnreadableFile(f"{name}: the file is binary, or in another encoding; {NAME_THE_ENCODING}")


def _ends_in_zeros(start: bytes) -> bool:
    """True if a text ends in zero bytes, or has nothing else: space that was reserved for a file and never filled."""
    text = start.rstrip(b"\0")
    return len(start) - len(text) >= FEW_ZEROS and 0 not in text and not is_binary(text)


def is_binary(start: bytes) -> bool:
    """True if more than one byte in twenty is a control character; a text has few or none."""
    return (len(start) - len(start.translate(None, _CONTROLS))) * 20 > len(start)

"""JSON arrays of objects, read one object at a time: the line of a row is its number in the array."""

import json
import re
from collections.abc import Iterator
from typing import Any

from fhir_service.interface.json_text import NOT_READABLE, Malformed, parse_bounded
from pipelines.feeds.reading.chunks import LONGEST_ROW, OUT_OF_RANGE, Chunk, RowReader, SourceRow, unfit, unreadable
from pipelines.feeds.reading.lines import TextReader
from pipelines.feeds.reading.opening import decoding, open_text
from pipelines.feeds.reading.packed import Content
from pipelines.feeds.reading.reject_marks import BAD_ID, DAMAGED, unmarked_line
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.schema import FeedFile
from pipelines.home.batch import UnreadableFile

BLOCK = 1 << 16
_BLANKS = re.compile(r"[ \t\r\n]*+")
_SCANNER = json.JSONDecoder(parse_float=len, parse_int=len, parse_constant=len)
"""Finds the end of a value. Its numbers are not converted, and may have any length."""


def read_object(raw: str) -> tuple[Any, ValueFault | None]:
    """Return the object in a row's text, or its fault."""
    try:
        found = None if (fault := unreadable(raw)) else parse_bounded(raw)
    except ArithmeticError:
        return None, OUT_OF_RANGE
    except Malformed as error:
        said = str(error).partition(" (")[0]
        return None, OUT_OF_RANGE if said == NOT_READABLE else ValueFault("FEED-FILE-04", f"not a JSON object: {said}")
    return found, fault or unfit(found, raw)


def _add(reader: RowReader, chunk: Chunk, line: int, lines: int, text: str) -> None:
    """Put the object in a row's text into a chunk."""
    answered, raw = unmarked_line(text)
    if answered:
        reader.answers[line] = answered
    found, fault = read_object(raw) if answered != DAMAGED else (None, BAD_ID)
    chunk.add(SourceRow(None if fault else found, line, lines, raw, fault))


class ArrayReader(RowReader):
    """A reader of a JSON array. A reject is exported as a line of NDJSON."""

    def __init__(self, content: Content, feed: FeedFile) -> None:
        super().__init__(content.name, feed)
        self._content = content

    def open(self) -> None:
        self._file = self.held.enter_context(open_text(self._content, self.feed, takes_array=True))
        self._buffer, self._at = "", 0

    def fill(self, chunk: Chunk) -> Iterator[None]:
        for text in self._elements():
            self.counted.lines += 1
            _add(self, chunk, self.counted.lines, 1, text.replace("\r", " ").replace("\n", " ") + "\n")
            yield

    def _elements(self) -> Iterator[str]:
        """Yield the text of each element of the array."""
        if self._next_sign() != "[":
            raise UnreadableFile(
                f"{self.name}: the file is not a JSON array of objects; if it has one object on each line, set"
                ' format = "ndjson" in the feed file'
            )
        self._at += 1
        if self._next_sign() != "]":
            yield self._element()
            while self._next_sign() == ",":
                self._at += 1
                self._next_sign()
                yield self._element()
        if self._next_sign() != "]":
            raise self._broken()
        self._at += 1
        if self._next_sign():
            raise UnreadableFile(
                f"{self.name}: there is more text after the array; correct the file, or export it again"
            )

    def _next_sign(self) -> str:
        """Advance to the next character that is no blank, and return it; empty at the end of the file."""
        while True:
            blanks = _BLANKS.match(self._buffer, self._at)
            self._at = blanks.end() if blanks else self._at
            if self._at < len(self._buffer) or not self._read():
                return self._buffer[self._at : self._at + 1]

    def _element(self) -> str:
        while True:
            try:
                _, end = _SCANNER.raw_decode(self._buffer, self._at)
            except (ValueError, RecursionError):
                end = len(self._buffer)
                if len(self._buffer) - self._at > LONGEST_ROW or not self._read():
                    raise self._broken() from None
            else:
                if end < len(self._buffer) or not self._read():
                    text, self._at = self._buffer[self._at : end], end
                    return text

    def _read(self) -> bool:
        """Read on: at least as much as is left in the buffer. Return False at the end of the file."""
        left = self._buffer[self._at :]
        with decoding(self.name, self.feed.encoding):
            more = self._file.read(max(BLOCK, len(left)))
        self._buffer, self._at = left + more, 0
        return bool(more)

    def _broken(self) -> UnreadableFile:
        return UnreadableFile(
            f"{self.name}: object {self.counted.lines + 1:,} is not JSON, is cut off or is longer than 2 MiB; "
            "correct it, or export the file again"
        )


class ObjectLinesReader(TextReader):
    """A reader of NDJSON."""

    def fill(self, chunk: Chunk) -> Iterator[None]:
        seen = False
        for text in self._lines.read():
            line, lines, raw = self._lines.take()
            if not text.strip():
                self.counted.blank += lines + self._lines.skip_breaks()
                continue
            if not seen and text.strip() in ("{", "["):
                raise UnreadableFile(
                    f"{self.name}: the file is one JSON document over several lines, but NDJSON has one object on each"
                    ' line; export it as NDJSON, or, if it is an array, set format = "json" in the feed file'
                )
            seen = True
            _add(self, chunk, line, lines, raw)
            yield
        if not seen:
            raise UnreadableFile(f"{self.name}: the file is empty; export it again")

"""NDJSON: a JSON object on each line."""

from collections.abc import Iterator

from pipelines.feeds.reading.broken import BadRow
from pipelines.feeds.reading.chunks import Chunk
from pipelines.feeds.reading.marks import unmarked_line
from pipelines.feeds.reading.objects import read_object
from pipelines.feeds.reading.text_reader import TextReader
from pipelines.home.batch import Unreadable


class ObjectLinesReader(TextReader):
    """Reads a file of NDJSON."""

    def rows(self, chunk: Chunk) -> Iterator[None]:
        seen = False
        for text in self._lines.read():
            line, lines, raw = self._lines.take()
            if not text.strip():
                self.counted.blank += lines
                continue
            if not seen and text.strip() in ("{", "["):
                raise Unreadable(
                    f"{self.name}: one JSON document over several lines; NDJSON has one object on each line"
                )
            seen = True
            answered, raw = unmarked_line(raw)
            if answered:
                self.answers[line] = answered
            found, fault = read_object(raw)
            if fault:
                chunk.bad.append(BadRow(line, lines, raw, fault))
            else:
                chunk.add(found, line, lines, raw)
            yield
        if not seen:
            raise Unreadable(f"{self.name}: the file is empty; export it again")

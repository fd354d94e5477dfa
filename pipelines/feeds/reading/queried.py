"""The file of a query's rows, read as a table: the line of a row is its number."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from pipelines.feeds.reading.chunks import LONGEST_ROW
from pipelines.feeds.reading.parquet import NO_TEXT
from pipelines.feeds.reading.tables import TableFileReader, TableRow
from pipelines.home.batch import UnreadableFile, reading_file


class QueriedReader(TableFileReader):
    """A reader of the rows that a query returned."""

    def open(self) -> None:
        with reading_file(self.name):
            self._file = self.held.enter_context(self._path.open(encoding="utf-8", newline="\n"))
        self.take_header([str(name) for name in self._read(self._file.readline(LONGEST_ROW))])

    def rows(self) -> Iterator[TableRow]:
        while line := self._file.readline(2 * LONGEST_ROW):
            self.counted.lines += 1
            found = self._read(line)
            cells = [self._text(value) for value in found]
            if any(map(str.strip, cells)):
                yield TableRow(self.counted.lines, cells, NO_TEXT if {} in found else None)
            else:
                self.counted.blank += 1

    def _read(self, line: str) -> list[Any]:
        try:
            found = json.loads(line, parse_float=Decimal)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, list) or not isinstance(self.header, list) or len(found) < len(self.header):
            raise UnreadableFile(f"{self.name}: not rows of a query, or damaged ones; run the import again")
        return found

    def _text(self, value: object) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return str(value)
        return self._numbers.of(value) if isinstance(value, Decimal) else ""

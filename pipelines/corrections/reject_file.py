"""The file of a batch's rejects: their rows as they came, with `_reject_id` and `_reasons` before their own fields."""

import codecs
import shutil
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, TextIO

from pipelines.corrections.sources import Lines
from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.reading.chunks import RowReader
from pipelines.feeds.reading.readers import reader_of
from pipelines.feeds.reading.reject_marks import MARKS, csv_lead, marked_line
from pipelines.home import spill
from pipelines.home.batch import ReceivedFile
from pipelines.home.files import written_whole
from pipelines.ledger.rows import Reason
from pipelines.validation.mapping import map_file
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.side_by_side import SideBySide


def write_rejects(
    received: ReceivedFile,
    feed: Feed,
    lines: Lines,
    reasons: Mapping[str, list[Reason]],
    heard: Mapping[str, str],
    folder: Path,
    work: Path,
) -> tuple[Path, set[str]]:
    """Write the file in one step; return its path and the rejects in it. heard: ids of rejects as exported."""
    wanted = _rows_of(received, feed, lines, work)
    part, found = work / "part", set[str]()
    with reader_of(received.path_in_batch, received.file_name, feed) as reader, _opened(part, reader) as out:
        form = "ndjson" if reader.header is None else "csv"
        mark = _Marker(reader, out.encoding, reasons, heard, wanted)
        begun = False
        for chunk in reader.chunks():
            for line, raw in sorted((row.line, row.raw) for row in chunk.rows if row.line in wanted):
                if not begun:
                    out.write(mark.header())
                    begun = True
                out.write(mark.row(line, raw, wanted[line]))
                found.update(wanted[line].split())
    final = folder / f"{received.batch_id}.rejects.{form}"
    if found:
        with written_whole(final) as beside:
            shutil.copyfile(part, beside)
    return final, found


def _rows_of(received: ReceivedFile, feed: Feed, lines: Lines, work: Path) -> dict[int, str]:
    """Return the ids of rejects by physical line, for every row of these records. A record may have rows anywhere."""
    mapped = work / "mapped.parquet"
    map_file(received, feed, mapped, ValidationResult(work), SideBySide(1))
    own = {line: (key, " ".join(lines[line])) for line, key in spill.rows_of(mapped, "line", "key") if line in lines}
    of_key = {key: ids for key, ids in own.values() if key is not None} if feed.kind.grouped else {}
    of_records = (
        {line: of_key[key] for line, key in spill.rows_of(mapped, "line", "key") if key in of_key} if of_key else {}
    )
    return of_records | {line: ids for line, (_, ids) in own.items()}


class _Marker:
    """Writer of rows as they came, with `_reject_id` and `_reasons` of row and record before their own fields."""

    def __init__(
        self,
        reader: RowReader,
        encoding: str,
        reasons: Mapping[str, list[Reason]],
        heard: Mapping[str, str],
        lines: Container[int | None],
    ) -> None:
        self.reader, self.file, self.encoding, self.reasons, self.lines = reader, reader.feed, encoding, reasons, lines
        self.heard = heard

    def header(self) -> str:
        if self.reader.header is None:
            return ""
        names = [str(place) for place in range(1, self.reader.width + 1)]
        own = self.reader.header_text or csv_lead(names, self.file)[:-1]
        return _ended(csv_lead(MARKS, self.file) + own)

    def row(self, line: int, raw: str, ids: str) -> str:
        every = [reason for name in ids.split() for reason in self.reasons.get(name, ())]
        reasons = [reason for reason in every if reason.line == line or reason.line not in self.lines]
        ids = " ".join(self.heard.get(name, name) for name in ids.split())
        if self.reader.header is None:
            return _ended(marked_line(raw, ids, [reason_element(reason) for reason in reasons]))
        said = "; ".join(map(reason_text, reasons))
        said = said.encode(self.encoding, "replace").decode(self.encoding)
        return _ended(csv_lead((ids, said), self.file) + raw)


def reason_text(reason: Reason) -> str:
    """Return a reason for one cell: its rule, its sentence, and the columns that it is about."""
    where = f" ({reason.column_name})" if reason.column_name else ""
    return " ".join(f"{reason.rule_id}: {reason.message}{where}".split())


def reason_element(reason: Reason) -> dict[str, Any]:
    """Return a reason for a line of NDJSON: rule, element and column, if it has them, and its sentence."""
    told = {"rule": reason.rule_id, "expression": reason.expression, "column": reason.column_name}
    return {name: value for name, value in told.items() if value} | {"message": reason.message}


def _ended(row: str) -> str:
    return row if row.endswith(("\n", "\r")) else row + "\n"


def _opened(part: Path, reader: RowReader) -> TextIO:
    """Return the file to write, in the encoding of its source, with a byte order mark if the source has one."""
    encoding = codecs.lookup(reader.feed.encoding).name
    if encoding == "utf-8" and reader.has_mark:
        encoding = "utf-8-sig"
    errors = "surrogatepass" if encoding.startswith(("utf-16", "utf-32")) else "surrogateescape"
    return part.open("w", encoding=encoding, errors=errors, newline="")

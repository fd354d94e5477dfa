"""Rejects given back: exported in the form they came in, to be corrected, or set aside for good."""

import codecs
import shutil
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from pipelines.corrections.balances import with_balances
from pipelines.feeds.files.catalog import Catalog, Feed, home_catalog
from pipelines.feeds.reading.chunks import Chunk, RowReader
from pipelines.feeds.reading.marks import MARKS, csv_lead, marked_line
from pipelines.feeds.reading.readers import reader_of
from pipelines.home import spill
from pipelines.home.batch import Received, Unreadable, received_before
from pipelines.home.files import replace_whole
from pipelines.home.preparing import prepare_home
from pipelines.home.scratch import throwaway_folder
from pipelines.home.user import user_name
from pipelines.ledger.addresses import known_as
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rejects import RejectPlace, discard, reasons_of, reject_places, targets_with_rejects
from pipelines.ledger.rows import Reason
from pipelines.session.connections import connect
from pipelines.session.opening import has_ledger, open_ledger
from pipelines.validation.mapping import map_file
from pipelines.validation.outcome import Validated
from pipelines.validation.side_by_side import SideBySide

Lines = dict[int, list[str]]
"""The ids of rejects by the physical line on which their record begins."""


class OutOfReach(Exception):
    """Rejects of a batch that cannot be given back: one clause why."""


@dataclass(frozen=True)
class Left:
    """Open rejects of a batch for which nothing could be done, and why."""

    batch_id: str
    rejects: int
    why: str

    def line(self, what: str) -> str:
        return f"{self.batch_id}: {_counted(self.rejects)} {what}: {self.why}"


def _counted(number: int) -> str:
    return f"{number:,} {'reject' if number == 1 else 'rejects'}"


@dataclass
class Exported:
    """Files, and how many rejects each holds. left: what could not be exported."""

    files: dict[Path, int] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        files = [{"file": str(path), "rejects": number} for path, number in self.files.items()]
        return {"files": files, "left": [asdict(each) for each in self.left]}

    def lines(self) -> Iterator[str]:
        if not self.files and not self.left:
            yield "no open rejects"
        for path, number in self.files.items():
            yield f"{path}: {_counted(number)}"
        if self.files:
            yield "correct the rows and put the files into the inbox, under any name: _reject_id says what they answer"
        yield from (each.line("cannot be exported") for each in self.left)


def export_home(
    home: Path,
    environ: Mapping[str, str],
    feed_folders: Sequence[Path],
    insecure: bool = False,
    batch_id: str | None = None,
    out: Path | None = None,
) -> Exported:
    """`export` for a home. The target is asked for its name only where the ledger has rejects of several."""
    if not has_ledger(home, environ):
        return Exported()
    prepare_home(home)
    catalog = home_catalog(home, environ, feed_folders)
    with closing(open_ledger(home, environ)) as ledger:
        targets = targets_with_rejects(ledger)
        if len(targets) > 1:
            with connect(home, environ, insecure) as connection:
                targets = [known_as(ledger, connection.id)]
        return export(home, ledger, catalog, targets[0], batch_id, out) if targets else Exported()


def export(
    home: Path, ledger: Ledger, catalog: Catalog, target: str, batch_id: str | None = None, out: Path | None = None
) -> Exported:
    """Write the open rejects of a target, or of one batch: one file per batch, in the form of its source.

    A record that came again in a later file, still wrong, is exported as it came last. Without `out`, a file goes into
    its batch's folder.
    """
    done = Exported()
    for name, lines in lines_by_batch(reject_places(ledger, target, batch_id)).items():
        rejects = {each for ids in lines.values() for each in ids}
        try:
            received, feed = source_of(home, ledger, catalog, target, name)
            folder = out or home / "batches" / name / "rejects"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with throwaway_folder(home) as work:
                reasons = with_balances(home, ledger, target, reasons_of(ledger, rejects))
                path, found = _write(received, feed, lines, reasons, folder, work)
        except (OutOfReach, Unreadable) as error:
            done.left.append(Left(name, len(rejects), str(error)))
            continue
        if found:
            done.files[path] = len(found)
        if lost := rejects - found:
            done.left.append(Left(name, len(lost), f"the feed {feed.name} no longer takes their rows"))
    return done


def lines_by_batch(rejects: Sequence[RejectPlace]) -> dict[str, Lines]:
    """Group the places of rejects by batch."""
    found: dict[str, Lines] = {}
    for each in rejects:
        found.setdefault(each.batch_id, {}).setdefault(each.line, []).append(each.reject_id)
    return found


def source_of(home: Path, ledger: Ledger, catalog: Catalog, target: str, batch_id: str) -> tuple[Received, Feed]:
    """A batch's file and its feed as it is today. Raises `OutOfReach`."""
    row = ledger.batch(target, batch_id)
    received = received_before(home / "batches" / batch_id)
    if row is None or received is None:
        raise OutOfReach("its source rows are no longer kept (purged): correct them in the system that they came from")
    feed = catalog.named(row["feed"])
    if feed is None:
        raise OutOfReach(f"there is no feed {row['feed']} any more")
    return received, feed


# -- which rows


def _rows_of(received: Received, feed: Feed, lines: Lines, work: Path) -> dict[int, str]:
    """The ids of rejects by physical line, for every row of these records; a record may have rows anywhere."""
    mapped = work / "mapped.parquet"
    map_file(received, feed, mapped, Validated(work), SideBySide(1))
    wanted = pa.table({"line": list(lines), "ids": [" ".join(ids) for ids in lines.values()]})
    with spill.sorter(work / ".spill") as database:
        database.register("wanted", wanted)
        return dict(spill.rows(database, _query(mapped, feed.kind.grouped)))


def _query(mapped: Path, grouped: bool) -> str:
    file = str(mapped).replace("'", "''")
    own = f"select line, ids from '{file}' join wanted using (line)"
    if not grouped:
        return own
    return f"""
        with own as (select line, key, ids from '{file}' join wanted using (line))
        select line, ids from own
        union
        select m.line, own.ids from '{file}' m join own using (key)
    """


# -- the file


def _write(
    received: Received, feed: Feed, lines: Lines, reasons: Mapping[str, list[Reason]], folder: Path, work: Path
) -> tuple[Path, set[str]]:
    """Write the file in one step; return its place and the rejects that are in it."""
    wanted = _rows_of(received, feed, lines, work)
    part, found = work / "part", set[str]()
    with reader_of(received.path_in_batch, received.file_name, feed) as reader, _opened(part, reader) as out:
        form = "ndjson" if reader.header is None else "csv"
        mark = _Marker(reader, out.encoding, reasons, wanted)
        begun = False
        for chunk in reader.chunks():
            for line, raw in _in_order(chunk, wanted):
                if not begun:
                    out.write(mark.header())
                    begun = True
                out.write(mark.row(line, raw, wanted[line]))
                found.update(wanted[line].split())
    final = folder / f"{received.batch_id}.rejects.{form}"
    if found:
        shutil.copyfile(part, final.with_name(f".{final.name}.part"))
        replace_whole(final.with_name(f".{final.name}.part"), final)
    return final, found


def _in_order(chunk: Chunk, wanted: Mapping[int, str]) -> list[tuple[int, str]]:
    rows = [*zip(chunk.line, chunk.raw, strict=True), *((row.line, row.raw) for row in chunk.bad)]
    return sorted(row for row in rows if row[0] in wanted)


class _Marker:
    """Rows as they came, with `_reject_id` and `_reasons` before their own fields: the row's and the record's."""

    def __init__(
        self,
        reader: RowReader,
        encoding: str,
        reasons: Mapping[str, list[Reason]],
        lines: Container[int | None],
    ) -> None:
        self.reader, self.file, self.encoding, self.reasons, self.lines = reader, reader.feed, encoding, reasons, lines

    def header(self) -> str:
        if self.reader.header is None:
            return ""
        names = [str(place) for place in range(1, self.reader.width + 1)]
        own = self.reader.header_text or csv_lead(names, self.file)[:-1]
        return _ended(csv_lead(MARKS, self.file) + own)

    def row(self, line: int, raw: str, ids: str) -> str:
        every = [reason for name in ids.split() for reason in self.reasons.get(name, ())]
        reasons = [reason for reason in every if reason.line == line or reason.line not in self.lines]
        if self.reader.header is None:
            return _ended(marked_line(raw, ids, [reason_element(reason) for reason in reasons]))
        said = "; ".join(map(reason_text, reasons))
        return _ended(csv_lead((ids, self._in_its_encoding(said)), self.file) + raw)

    def _in_its_encoding(self, text: str) -> str:
        return text.encode(self.encoding, "replace").decode(self.encoding)


def reason_text(reason: Reason) -> str:
    """A reason in one cell: its rule, its sentence, and the columns it is about."""
    where = f" ({reason.column_name})" if reason.column_name else ""
    return " ".join(f"{reason.rule_id}: {reason.message}{where}".split())


def reason_element(reason: Reason) -> dict[str, Any]:
    """Write rejects to correct as NDJSON."""
    told = {"rule": reason.rule_id, "expression": reason.expression, "column": reason.column_name}
    return {name: value for name, value in told.items() if value} | {"message": reason.message}


def _ended(row: str) -> str:
    return row if row.endswith(("\n", "\r")) else row + "\n"


def _opened(part: Path, reader: RowReader) -> TextIO:
    """The file to write, in the encoding of its source, with a byte order mark where that has one."""
    encoding = codecs.lookup(reader.feed.encoding).name
    if encoding == "utf-8" and reader.has_mark:
        encoding = "utf-8-sig"
    errors = "surrogatepass" if encoding.startswith(("utf-16", "utf-32")) else "surrogateescape"
    return part.open("w", encoding=encoding, errors=errors, newline="")


# -- for good

NOT_OPEN = {"unknown": "there is no such reject", "closed": "is closed already", "resubmitted": "is on its way again"}


def discard_in(home: Path, environ: Mapping[str, str], ids: Sequence[str], why: str) -> tuple[int | None, list[str]]:
    """Discard these rejects or none of them: how many (those of before included), and what stands in the way."""
    if not has_ledger(home, environ):
        return None, ["no ledger here"]
    with closing(open_ledger(home, environ)) as ledger:
        wrong = discard(ledger, list(dict.fromkeys(ids)), user_name(), why)
    return (None if wrong else len(set(ids))), [f"{name}: {NOT_OPEN[state]}" for name, state in wrong.items()]

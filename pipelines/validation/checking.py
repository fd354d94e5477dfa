"""Check the records of a file, a chunk at a time, and write them: accepted, rejected, skipped, and warnings."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.terms.columns import BuilderContext, RecordKind
from pipelines.home import arrow, spill
from pipelines.validation.checker import Checker
from pipelines.validation.grouping import chunks
from pipelines.validation.inspection import Ambiguity
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.side_by_side import SideBySide
from pipelines.validation.sums import notice_totals
from pipelines.validation.tables import ACCEPTED, ANSWERS, FILES, WARNINGS


def check_records(
    mapped: Path,
    feed: Feed,
    around: BuilderContext,
    strict: bool,
    found: ValidationResult,
    progress: Callable[[int], None],
    work: SideBySide,
    answers: Mapping[int, str],
    only: Mapping[int, Sequence[str]] | None,
) -> None:
    """Write `accepted.parquet`, `rejects.parquet` and `skipped.parquet`; if there are any, answers and warnings too.

    mapped: in a folder where sorting may spill. answers, only: as in `WantedRecords`.
    """
    wanted = WantedRecords(answers, only)
    with spill.ParquetWriter(found.folder / "warnings.parquet", WARNINGS, needed=False) as warned:
        some = (wanted.of(chunk, feed.kind) for chunk in chunks(mapped, feed.kind))
        make = partial(Checker, feed.file, around, strict, found.places)
        inspected = _write(make, some, found, progress, work, warned)
        if only is None:
            notice_totals(found)
        _warn_of_the_file(inspected, found, warned, only is None)
    if only is not None:
        found.header, found.not_taken, found.lines = 0, 0, wanted.lines
    if wanted.answered:
        with spill.ParquetWriter(found.folder / "answers.parquet", ANSWERS) as out:
            for row in wanted.answered:
                out.add(*row)


def _write(
    make: Callable[[], Checker],
    some: Iterable[pa.RecordBatch],
    found: ValidationResult,
    progress: Callable[[int], None],
    work: SideBySide,
    warned: spill.ParquetWriter,
) -> dict[str, tuple[Ambiguity, ...]]:
    """Write the records of some chunks, and count them; return the ambiguities of their questionnaires."""
    inspected: dict[str, tuple[Ambiguity, ...]] = {}
    out, done = {"warnings": warned}, 0
    with ExitStack() as whole:
        for name in FILES.keys() - out:
            out[name] = whole.enter_context(spill.ParquetWriter(found.folder / f"{name}.parquet", FILES[name]))
        for checked in work.over(make, some):
            numbered = _numbered(checked.rows["accepted"], out["accepted"].count)
            for name, rows in {**checked.rows, "accepted": numbered}.items():
                out[name].add_batch(rows)
            found.add(checked.tally)
            inspected |= checked.inspected
            done += checked.tally.accepted + checked.tally.rejected
            progress(done)
    return inspected


def _warn_of_the_file(
    inspected: Mapping[str, tuple[Ambiguity, ...]], found: ValidationResult, warned: spill.ParquetWriter, is_whole: bool
) -> None:
    """Write the warnings about questionnaires and, if all records are wanted, about the file."""
    for ambiguity in chain.from_iterable(inspected.values()):
        found.warnings[ambiguity.rule] += 1
        warned.add(None, ambiguity.rule, None, None, ambiguity.message)
    for notice in found.noticed if is_whole else ():
        found.warnings[notice.rule] += 1
        warned.add(notice.line, notice.rule, None, None, notice.message)


def _numbered(accepted: pa.RecordBatch, before: int) -> pa.RecordBatch:
    """Return accepted rows with `position` counted over the whole file. before: the number of earlier rows."""
    place = ACCEPTED.get_field_index("position")
    counted = arrow.column(range(before, before + accepted.num_rows), pa.int64())
    return accepted.set_column(place, ACCEPTED.field(place), counted)


class WantedRecords:
    """The records of a file that are checked, and the rejects that they answer.

    answers: by line, the rejects that rows name. only: the first lines of the wanted records, each with further
    rejects that it answers; None for all records. lines: the number of lines of the wanted records.
    """

    def __init__(self, answers: Mapping[int, str], only: Mapping[int, Sequence[str]] | None = None) -> None:
        self.answers, self.only = answers, only
        self.answered: dict[tuple[int, str], None] = {}
        self.lines = 0

    def of(self, chunk: pa.RecordBatch, kind: RecordKind) -> pa.RecordBatch:
        """Return the wanted rows of a chunk; note the rejects that they answer."""
        if self.only is None and not self.answers:
            return chunk
        line, begin = (chunk.column(name) for name in ("line", "first_line" if kind.grouped else "line"))
        if self.only is not None:
            chunk = chunk.filter(pc.is_in(begin, arrow.column([*self.only], pa.int64())))
            self.lines += pc.sum(chunk.column("lines")).as_py() or 0
            line, begin = (chunk.column(name) for name in ("line", "first_line" if kind.grouped else "line"))
            self.answered.update(((first, name), None) for first in begin.to_pylist() for name in self.only[first])
        if self.answers:
            rows = zip(line.to_pylist(), begin.to_pylist(), strict=True)
            names = ((first, name) for row, first in rows for name in self.answers.get(row, "").split())
            self.answered.update(dict.fromkeys(names))
        return chunk

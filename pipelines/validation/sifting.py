"""Take rows that are no records, and those that may be incomplete, out of a file's chunks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from pipelines.feeds.mapping.header import path_heads, unnamed_columns
from pipelines.feeds.mapping.mapping import Mapper
from pipelines.feeds.reading.chunks import Chunk, Notice, RowReader
from pipelines.feeds.reading.second_tables import REPEATED_HEADER, REPEATS, SecondTables
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.numbers import NumberFormat
from pipelines.feeds.terms.times import times_of
from pipelines.home.batch import ReceivedFile, UnreadableFile
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.totals import has_amount_total
from pipelines.validation.trailer import TrailerFilter, take_out

NO_END = "LEDGER-24"
OPEN = "the last line has no line break, as in a file that was cut off; compare the file with the export"
CUT_OFF = ValueFault(
    NO_END,
    "the last line has no line break, and its last cell is unlike the others of its column, as in a file that was cut "
    "off; export the file again, or, if the row is whole, add the line break",
)


class LastLine:
    """A test of a file's last line. It warns if the line has no end, and rejects its row if the last cell may be a
    part of a number.

    numbers: how the file writes them. is_proved: True if a total would reveal a cut-off amount.
    """

    def __init__(self, mapper: Mapper, numbers: NumberFormat, is_proved: bool) -> None:
        self._mapper, self._numbers, self._is_proved = mapper, numbers, is_proved
        self._before: list[str] = []

    def take(self, chunk: Chunk, found: ValidationResult) -> None:
        """Look at a chunk of a CSV. The column's other cells are those of this chunk and the one before."""
        before, self._before = self._before, [row.cells[-1] for row in chunk.good]
        last = chunk.rows[-1] if chunk.rows else None
        if last is None or last.raw[-1:] in _ENDS:
            return
        if last.fault is None and not self._mapper.taken(self._mapper.rows([last.cells]))[0]:
            return
        found.noticed.append(Notice(last.line, NO_END, OPEN))
        others = [*before, *self._before[:-1]]
        if not (last.fault or self._is_proved) and may_be_cut(last.cells[-1], others, self._numbers):
            chunk.set_aside(len(chunk.rows) - 1, CUT_OFF)


_ENDS = ("\n", "\r")


def may_be_cut(cell: str, others: Sequence[str], numbers: NumberFormat) -> bool:
    """True if a cell may be the beginning of a number, since the column's other cells are numbers."""
    cell, filled = cell.strip(), [other.strip() for other in others if other.strip()]
    if not cell:
        return len(filled) == len(others) > 0 and _are_numbers(filled, numbers)
    plain = numbers.amount(cell)
    if plain and cell.endswith(numbers.decimal):
        return True
    if not _are_numbers(filled, numbers):
        return False
    fewest = min(_decimals(found) for other in filled if (found := numbers.amount(other)))
    return (
        plain is None or _decimals(plain) < fewest or (cell[-1] not in _MINUS and any(o[-1] in _MINUS for o in filled))
    )


_MINUS = "-\u2212"
"""Minus signs after an amount. If other amounts have one, the last one may have lost it."""


def _are_numbers(cells: Sequence[str], numbers: NumberFormat) -> bool:
    """True if more than half of some cells are numbers."""
    return sum(numbers.amount(cell) is not None for cell in cells) * 2 > len(cells)


def _decimals(plain: str) -> int:
    return len(plain.partition(".")[2])


ERRORS, SHARE = 1, 10
"""Dates of the other order are typing errors if they are at most `ERRORS`, or fewer than one in `SHARE`."""
_OWN, _OTHER, _EITHER = "own", "other", "either"


class DayOrder:
    """The numbers of a file's dates, by column, that fit only the feed's formats, only the turned ones, or both."""

    def __init__(self, mapper: Mapper) -> None:
        # A local time that clocks skip or show twice still has this order.
        conventions = replace(mapper.feed.file.conventions, ambiguous="earlier")
        turned = {form: _turned(form) for form in conventions.dates}
        self._forms = {form: other for form, other in turned.items() if other not in turned}
        self._mapper, self._counts = mapper, Counter[tuple[str, str]]()
        other = tuple(self._forms.get(form, form) for form in conventions.dates)
        self._own, self._other = times_of(conventions), times_of(replace(conventions, dates=other))

    def take(self, chunk: Chunk) -> None:
        """Count the dates of a chunk's rows that the feed takes."""
        if not self._forms or not (good := chunk.good):
            return
        rows = self._mapper.rows([row.cells for row in good])
        taken = self._mapper.taken(rows)
        for column, cells in self._mapper.times(rows):
            for text, times in Counter(cells[taken].tolist()).items():
                if isinstance(text, str) and (order := self._order(text)):
                    self._counts[column, order] += times

    def _order(self, text: str) -> str | None:
        """Return the order that a date has; None if it is no date, or the same day in both orders."""
        own, other = self._own(text), self._other(text)
        if isinstance(own, str):
            return _OWN if not isinstance(other, str) else _EITHER if own != other else None
        return _OTHER if isinstance(other, str) else None

    def problems(self) -> Iterator[str]:
        """Yield, after the last row, a sentence for each column in which dates would be read as other days."""
        forms = " or ".join(self._forms)
        for column in dict.fromkeys(column for column, _ in self._counts):
            own, other, either = (self._counts[column, order] for order in (_OWN, _OTHER, _EITHER))
            if either and other > ERRORS and other * SHARE >= own + other:
                yield (
                    f"in {column}, {other:,} dates fit {forms} only with day and month exchanged, and {either:,} more"
                    " may therefore be read as wrong days; say in the feed file how dates are written (dates), or"
                    " correct those that are written differently"
                )


def _turned(form: str) -> str:
    """Return a format with day and month exchanged; a format without numbers for both is returned as it is."""
    if "%d" not in form or "%m" not in form:
        return form
    return form.replace("%d", "\0").replace("%m", "%d").replace("\0", "%m")


MOST_HEADS = 1_000


class Sifter:
    """The sifting of one file's chunks. trailers: compare with them once all amounts are known."""

    def __init__(self, mapper: Mapper, reader: RowReader, received: ReceivedFile) -> None:
        file, header = mapper.feed.file, reader.header
        self._mapper, self._reader = mapper, reader
        self.trailers, self._heads = TrailerFilter(mapper), set[str]()
        is_proved = file.trailer is not None or has_amount_total(received)
        is_own = header is not None and not reader.is_answer
        self._last = LastLine(mapper, file.numbers, is_proved) if is_own else None
        self._tables = SecondTables(reader)
        self._days = None if reader.is_answer else DayOrder(mapper)

    def sifted(self, chunks: Iterable[Chunk], found: ValidationResult) -> Iterator[Chunk]:
        """Yield the chunks without trailers and other rows that are no records; a row that may be cut off becomes a
        bad row.

        Raises Unreadable after the last chunk if the dates of the file have another order than its feed says.
        """
        for chunk in chunks:
            leave_out(chunk, self._mapper, found)
            self.trailers.take(chunk, found)
            if self._last:
                self._last.take(chunk, found)
            self._tables.take(chunk)
            found.rows += len(chunk.rows)
            self._note_heads(chunk)
            if self._days:
                self._days.take(chunk)
            yield chunk
        for said in self._days.problems() if self._days else ():
            raise UnreadableFile(f"{self._reader.name}: {said}")

    def count(self, found: ValidationResult) -> None:
        """Set, after the last chunk, the file's counts of lines and its notices."""
        reader, counted = self._reader, self._reader.counted
        found.header, found.lines = counted.header, counted.lines
        found.not_taken += counted.blank + counted.of_repeats
        found.noticed += [Notice(line, REPEATED_HEADER, REPEATS) for line in counted.repeats]
        found.noticed += [*self._tables.notices(), *reader.noticed]
        found.places = reader.places
        feed = self._mapper.feed
        if reader.header is not None:
            found.unnamed_columns = unnamed_columns(feed, reader.header)
        elif feed.file.columns:
            found.unnamed_columns = sorted(self._heads - path_heads(feed))

    def _note_heads(self, chunk: Chunk) -> None:
        """Collect the names with which objects' paths begin, up to a listable number. Whole resources do not count."""
        if self._reader.header is None and len(self._heads) < MOST_HEADS:
            resources = self._mapper.feed.file.resources
            every = (row.cells for row in chunk.good)
            self._heads.update(*(cells for cells in every if not (resources and "resourceType" in cells)))


def leave_out(chunk: Chunk, mapper: Mapper, found: ValidationResult) -> None:
    """Take rows that the feed's `[skip]` names out of a chunk, and count their lines as not taken.

    They may have too few or too many fields. A row with a broken quote stays, since it may contain other rows.
    """
    if mapper.feed.file.skip:
        out = take_out(chunk, mapper, attrgetter("is_ragged"), mapper.left_out)
        found.not_taken += sum(row.lines for row in out)

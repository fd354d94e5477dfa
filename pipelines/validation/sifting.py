"""Take rows that are no records, and those that may be incomplete, out of a file's chunks."""

from collections.abc import Iterable, Iterator
from operator import attrgetter

from pipelines.feeds.mapping.header import path_heads, unnamed_columns
from pipelines.feeds.mapping.mapping import Mapper
from pipelines.feeds.reading.chunks import Chunk, Notice, RowReader
from pipelines.feeds.reading.second_tables import REPEATED_HEADER, REPEATS, SecondTables
from pipelines.home.batch import ReceivedFile, UnreadableFile
from pipelines.validation.day_order import DayOrder
from pipelines.validation.last_line import LastLine
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.totals import has_amount_total
from pipelines.validation.trailer import TrailerFilter, take_out

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

"""Two files of one delivery, joined by a key: rows of the first, followed by the columns of the second.

Column names of the second file are prefixed with the name of the join: `comments.body`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pipelines.feeds.reading.chunks import Chunk, LineNames, Notice, RowReader
from pipelines.feeds.reading.cut_rows import CutRows
from pipelines.feeds.reading.partners import JoinedRows, Partners, key_by
from pipelines.feeds.reading.row_faults import SourceRow
from pipelines.feeds.reading.second_tables import REPEATED_HEADER, REPEATS, SecondTables
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.schema import FeedFile
from pipelines.home.batch import UnreadableFile
from pipelines.home.counted import counted

PARTNERS = "JOIN-PARTNERS"


class JoinedReader(RowReader):
    """A reader of two files. first, second: their readers. names: the names of the files."""

    def __init__(self, first: RowReader, second: RowReader, names: tuple[str, str], name: str, feed: FeedFile) -> None:
        super().__init__(name, feed)
        [(self._prefix, self._join)] = feed.join.items()
        self._first, self._second, self._names = first, second, names
        self._partners = Partners(name, names[1])
        self._lines: dict[str, int] = {}
        """The line of each key in the first file."""

    def open(self) -> None:
        with self._second as second:
            key_of = key_by(second.header, list(self._join.on.values()), f"{self.name}: {self._names[1]}")
            alone = None if self._join.one_row_per else self._twice_in_second
            self._partners.hold(second, key_of, alone, self.feed, f"{self._prefix}.")
            self.noticed += [*self._partners.noticed, *second.noticed]
            counted = second.counted
            self._note_repeats(counted.repeats, 0)
            self.counted.header, self.counted.blank = counted.header, counted.blank + counted.of_repeats
        first = self.held.enter_context(self._first)
        self.feed = first.feed.model_copy(update={"one_table": True})  # each file is checked by itself
        if (first.header is None) != (second.header is None):
            raise UnreadableFile(
                f"{self.name}: one of the two joined files is a table, and the other holds objects; export both as"
                " tables or both as objects"
            )
        self._halves = JoinedRows(first.header, second.header, self._prefix, self.feed)
        self._key_of = key_by(first.header, list(self._join.on), f"{self.name}: {self._names[0]}")
        self.header, self.header_text = self._halves.header, self._halves.header_text

    @property
    def has_mark(self) -> bool:
        return self._first.has_mark

    @property
    def places(self) -> LineNames:
        before = self._second.counted.lines
        ends = [*(self._second.places.ends or ((self._names[1], before),))]
        ends += [(name, line + before) for name, line in self._first.places.ends]
        if not self._first.places.ends:
            ends.append((self._names[0], self._first.counted.lines + before))
        return LineNames(tuple(ends))

    def chunks(self) -> Iterator[Chunk]:
        before, alone = self._second.counted.lines, 0
        tables = SecondTables(self._first, self.feed)
        for chunk in CutRows(self._first, self.feed).among(tables.over()):
            out = Chunk()
            for each in chunk.rows:
                row = each._replace(line=each.line + before, is_ragged=False)
                if row.fault and not row.is_doubtful:
                    out.add(row._replace(cells=self._halves.padded(row.cells)))
                else:
                    alone += self._join_row(out, row)
            yield out
        counted = self._first.counted
        self.counted.lines = before + counted.lines
        self.counted.header += counted.header
        self.counted.blank += counted.blank + counted.of_repeats
        noticed = (*tables.notices(), *self._first.noticed)
        self.noticed += [each._replace(line=each.line and each.line + before) for each in noticed]
        self._note_repeats(counted.repeats, before)
        yield self._without_partner(alone)

    def _join_row(self, out: Chunk, row: SourceRow) -> bool:
        """Put a row with its partners into a chunk; return True without partners."""
        partners = self._partners.of(self._key(row.cells, row.line))
        if not partners:
            out.add(self._joined(row, None))
        for place, partner in enumerate(partners):
            own = 0 if partner.line in self._partners.used else partner.lines
            self._partners.used.add(partner.line)
            at, many = (partner.line if self._join.one_row_per else row.line), own if place else row.lines + own
            fault, is_doubtful = row.fault or partner.fault, partner.is_doubtful or not partner.fault
            out.add(self._joined(row, partner)._replace(line=at, lines=many, fault=fault, is_doubtful=is_doubtful))
        return not partners

    def _joined(self, row: SourceRow, partner: SourceRow | None) -> SourceRow:
        cells, text = self._halves.row(row.cells, partner), self._halves.text(row.cells, partner, row.raw)
        return row._replace(cells=cells, raw=text)

    def _without_partner(self, alone: int) -> Chunk:
        """Return the rows of the second file that no row of the first names; they are rejects if each is to be a row.

        alone: the number of rows of the first file without a partner.
        """
        out, left, (first, second) = Chunk(), self._partners.unused(), self._names
        said = f"no row of {first} has this {', '.join(self._join.on)}"
        for each in left if self._join.one_row_per else ():
            cells, text = self._halves.without_first(each)
            out.add(SourceRow(cells, each.line, each.lines, text, each.fault or ValueFault(PARTNERS, said)))
        if not self._join.one_row_per:
            self.counted.blank += sum(each.lines for each in left)
        if left:
            self._say(left[0].line, len(left), second, first)
        if alone:
            self._say(None, alone, first, second)
        return out

    def _note_repeats(self, lines: Sequence[int], before: int) -> None:
        """Warn of rows that repeat the header of a file. before: the number of lines before the file."""
        self.noticed += [Notice(line + before, REPEATED_HEADER, REPEATS) for line in lines]

    def _say(self, line: int | None, number: int, one: str, other: str) -> None:
        self.noticed.append(
            Notice(
                line, PARTNERS, f"{counted(number, f'row of {one} has', f'rows of {one} have')} no partner in {other}"
            )
        )

    def _key(self, row: Any, line: int) -> str | None:
        """Return the key of a row of the first file. Raises Unreadable for a second row if keys must be unique."""
        key, before = self._key_of(row), self._second.counted.lines
        if key and self._join.one_row_per and (first := self._lines.setdefault(key, line)) != line:
            advice = "with one_row_per in the join, each row of this file needs its own"
            raise self._twice(self._names[0], self._join.on, (first - before, line - before), advice)
        return key

    def _twice_in_second(self, line: int, again: int) -> UnreadableFile:
        advice = f'if each row of this file should become a row, set one_row_per = "{self._prefix}" in the join'
        return self._twice(self._names[1], self._join.on.values(), (line, again), advice)

    def _twice(self, file: str, key: Iterable[str], lines: tuple[int, int], advice: str) -> UnreadableFile:
        """Return the error for two rows of a file with one key."""
        same = f"has the same {', '.join(key)} on lines {lines[0]} and {lines[1]}"
        return UnreadableFile(f"{self.name}: {file} {same}; {advice}")

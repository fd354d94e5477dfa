"""Two files of one delivery, joined by a key: rows of the first, followed by the columns of the second.

Column names of the second file are prefixed with the name of the join: `comments.body`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pipelines.feeds.reading.chunks import Chunk, LineNames, Notice, RowReader, SourceRow
from pipelines.feeds.reading.cut_rows import CutRows
from pipelines.feeds.reading.dialect import dialect
from pipelines.feeds.reading.reject_marks import compact, csv_text
from pipelines.feeds.reading.second_tables import REPEATED_HEADER, REPEATS, SecondTables
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.paths import parse_path, walk_path
from pipelines.feeds.terms.schema import FeedFile
from pipelines.feeds.terms.texts import composed_text
from pipelines.home.batch import UnreadableFile
from pipelines.home.counted import counted

PARTNERS = "JOIN-PARTNERS"


class JoinedReader(RowReader):
    """A reader of two files. first, second: their readers. names: of the files. prefix: the name of the join."""

    def __init__(
        self, first: RowReader, second: RowReader, names: tuple[str, str], name: str, feed: FeedFile, prefix: str
    ) -> None:
        super().__init__(name, feed)
        self._first, self._second, self._names, self._prefix = first, second, names, prefix
        self._join = feed.join[prefix]
        self._partners = Partners()
        self._lines: dict[str, int] = {}
        """The line of each key in the first file."""

    def open(self) -> None:
        with self._second as second:
            self._hold(second)
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

    def _hold(self, second: RowReader) -> None:
        """Hold the rows of the second file by their key. Raises Unreadable."""
        held, name, before = 0, self._names[1], f"{self._prefix}."
        key_of = key_by(second.header, list(self._join.on.values()), f"{self.name}: {name}")
        tables = SecondTables(second, self.feed, name, before)
        for chunk in CutRows(second, self.feed, before).among(tables.over()):
            held += chunk.size
            if held > MOST_HELD:
                raise UnreadableFile(
                    f"{self.name}: {name} is too large to be the second file of a join; make it the first file of the"
                    " feed, and the smaller one the second"
                )
            for row in chunk.rows:
                first = self._partners.add(key_of(row.cells), row)
                if first is not row and not self._join.one_row_per:
                    advice = f'if each row of this file should become a row, set one_row_per = "{self._prefix}"'
                    raise self._twice(name, self._join.on.values(), (first.line, row.line), f"{advice} in the join")
        self.noticed += [*tables.notices(), *second.noticed]

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

    def _twice(self, file: str, key: Iterable[str], lines: tuple[int, int], advice: str) -> UnreadableFile:
        """Return the error for two rows of a file with one key."""
        same = f"has the same {', '.join(key)} on lines {lines[0]} and {lines[1]}"
        return UnreadableFile(f"{self.name}: {file} {same}; {advice}")


MOST_HELD = 256 << 20
"""The most characters of the second file."""


class Partners:
    """The rows of the second file, held in memory."""

    def __init__(self) -> None:
        self._by_key: dict[str, list[SourceRow]] = {}
        self._without_key: list[SourceRow] = []
        self.used: set[int] = set()
        """The lines of rows that rows of the first file have named."""

    def add(self, key: str | None, partner: SourceRow) -> SourceRow:
        """Hold a row; return the first row of its key."""
        others = self._by_key.setdefault(key, []) if key else self._without_key
        others.append(partner)
        return others[0] if key else partner

    def of(self, key: str | None) -> Sequence[SourceRow]:
        """Return the rows of a key."""
        return self._by_key.get(key, ()) if key else ()

    def unused(self) -> list[SourceRow]:
        """Return the rows that no row of the first file has named, by line."""
        left = [each for some in self._by_key.values() for each in some if each.line not in self.used]
        return sorted([*left, *self._without_key], key=lambda each: each.line)


KeyOf = Callable[[Any], str | None]
"""Returns the key of a row; None for a row without a key."""


def key_by(header: Sequence[str] | None, names: Sequence[str], file: str) -> KeyOf:
    """Return a function that gives a row's key, from these columns or paths. file: its name. Raises Unreadable."""
    if header is None:
        paths = [parse_path(name) for name in names]
        return lambda row: _key(walk_path(row, path) for path in paths)
    if lacking := [name for name in names if name not in header]:
        raise UnreadableFile(
            f"{file} has no column {', '.join(lacking)}, by which the feed joins it; it has {', '.join(header[:20])}"
        )
    places = [header.index(name) for name in names]
    return lambda row: _key(row[place] if row and place < len(row) else None for place in places)


def _key(found: Iterator[Any]) -> str | None:
    texts = ["" if each is None else composed_text(str(each).strip()) for each in found]
    return "\0".join(texts) if all(texts) else None


class JoinedRows:
    """Joined rows: a row of the first file, then a row of the second. other: the second header, None for objects."""

    def __init__(self, header: list[str] | None, other: list[str] | None, prefix: str, feed: FeedFile) -> None:
        self._other, self._prefix = other, prefix
        self._dialect = dialect(feed)
        self.header = None if header is None or other is None else [*header, *(f"{prefix}.{name}" for name in other)]

    @property
    def header_text(self) -> str:
        return "" if self.header is None else csv_text(self.header, self._dialect) + "\r\n"

    def without_first(self, partner: SourceRow) -> tuple[list[str] | None, str]:
        """Return the cells and the text of a row without a first half."""
        if self._other is None or self.header is None:
            return None, self.text({}, partner, partner.raw)
        empty = [""] * (len(self.header) - len(self._other))
        return self.row(empty, partner), self.text(empty, partner, partner.raw)

    def padded(self, cells: list[str] | None) -> list[str] | None:
        """Return the cells of a first half, followed by empty cells for the second."""
        return None if cells is None or self._other is None else cells + [""] * len(self._other)

    def row(self, row: Any, partner: SourceRow | None) -> Any:
        if self._other is None:
            return {**row, self._prefix: partner.cells} if partner else row
        other = (partner.cells or []) if partner else []
        return [*row, *other, *[""] * (len(self._other) - len(other))][: len(self.header or ())]

    def text(self, row: Any, partner: SourceRow | None, raw: str) -> str:
        """Return a joined row as text that can be imported again. raw: the text of its first half."""
        if self._other is not None:
            return csv_text(self.row(row, partner), self._dialect) + "\r\n"
        if partner is None or partner.cells is None:
            return raw
        return compact(self.row(row, partner)) + "\n"

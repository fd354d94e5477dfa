"""Two files of one delivery, joined by a key: rows of the first with the columns of the second behind them.

Columns of the second file have the name of the join before theirs: `comments.body`. The second file is held in memory,
up to a bound.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pipelines.feeds.reading.broken import BadRow
from pipelines.feeds.reading.chunks import Chunk, Counted, Notice, Places, RowReader
from pipelines.feeds.reading.dialect import dialect
from pipelines.feeds.reading.marks import compact, csv_text
from pipelines.feeds.terms.columns import Fault
from pipelines.feeds.terms.paths import parse_path, walk_path
from pipelines.feeds.terms.schema import FeedFile
from pipelines.feeds.terms.texts import composed
from pipelines.home.batch import Unreadable

PARTNERS = "JOIN-PARTNERS"
MOST_HELD = 256 << 20
"""Characters of the second file."""


@dataclass(slots=True)
class Partner:
    """A row of the second file. lines: 0 once they were counted with a row."""

    row: Any
    line: int
    lines: int
    raw: str
    fault: Fault | None = None
    is_used: bool = False


class JoinedReader:
    """A `RowReader` of two files. first, second: their readers, and the names of the files."""

    is_answer = False

    def __init__(self, first: RowReader, second: RowReader, names: tuple[str, str], name: str, feed: FeedFile) -> None:
        assert feed.join is not None  # noqa: S101 - read by a feed with a join
        [(self._prefix, self._join)] = feed.join.items()
        self._first, self._second, self._names, self.name = first, second, names, name
        self.counted, self.answers = Counted(), dict[int, str]()
        self.noticed: list[Notice] = []
        self._partners: dict[str, list[Partner]] = {}
        self._lonely: list[Partner] = []
        self._seen: dict[str, int] = {}
        self._alone = 0

    def __enter__(self) -> Self:
        with self._second as second:
            self._other = second.header
            self._get_second = self._getter(second.header, list(self._join.on.values()), 1)
            self._hold(second)
        first = self._first.__enter__()
        try:
            self.feed = first.feed
            self.header = self._joined_header(first.header)
            self._get_first = self._getter(first.header, list(self._join.on), 0)
        except BaseException:
            first.__exit__()
            raise
        self._dialect = dialect(self.feed)
        self.header_text = "" if self.header is None else csv_text(self.header, self._dialect) + "\r\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._first.__exit__()

    @property
    def width(self) -> int:
        return len(self.header or ())

    @property
    def has_mark(self) -> bool:
        return self._first.has_mark

    def first_lines(self) -> Sequence[str]:
        return ()

    @property
    def places(self) -> Places:
        before = self._second.counted.lines
        ends = [*(self._second.places.ends or ((self._names[1], before),))]
        ends += [(name, line + before) for name, line in self._first.places.ends]
        if not self._first.places.ends:
            ends.append((self._names[0], self._first.counted.lines + before))
        return Places(tuple(ends))

    # --- The second file --------------------------------------------------------------------------

    def _hold(self, second: RowReader) -> None:
        held = 0
        for chunk in second.chunks():
            held += chunk.size
            if held > MOST_HELD:
                raise Unreadable(
                    f"{self.name}: {self._names[1]} is too large to be joined; let it be the first file of the feed,"
                    " and the smaller one the second"
                )
            for row, line, lines, raw in zip(chunk.rows, chunk.line, chunk.lines, chunk.raw, strict=True):
                self._add(Partner(row, line, lines, raw))
            for bad in chunk.bad:
                self._add(Partner(bad.cells, bad.line, bad.lines, bad.raw, bad.fault))
        self.noticed += second.noticed
        counted = second.counted
        self.counted.header, self.counted.blank = counted.header, counted.blank + counted.of_repeats

    def _add(self, partner: Partner) -> None:
        key = self._get_second(partner.row)
        if not key:
            self._lonely.append(partner)
            return
        others = self._partners.setdefault(key, [])
        others.append(partner)
        if not self._join.one_row_per and len(others) > 1:
            raise Unreadable(
                f"{self.name}: {self._names[1]} has one {self._named(1)} on the lines {others[0].line} and"
                f' {partner.line}; if each of its rows is to be one, say one_row_per = "{self._prefix}" in the join'
            )

    # --- Rows -------------------------------------------------------------------------------------

    def chunks(self) -> Iterator[Chunk]:
        before = self._second.counted.lines
        for chunk in self._first.chunks():
            yield self._joined(chunk, before)
        counted = self._first.counted
        self.counted.lines = before + counted.lines
        self.counted.header += counted.header
        self.counted.blank += counted.blank + counted.of_repeats
        self.noticed += [each._replace(line=each.line and each.line + before) for each in self._first.noticed]
        yield self._without_partner()

    def _joined(self, chunk: Chunk, before: int) -> Chunk:
        out = Chunk()
        for row, line, lines, raw in zip(chunk.rows, chunk.line, chunk.lines, chunk.raw, strict=True):
            self._join_row(out, row, line + before, lines, raw)
        for bad in chunk.bad:
            cells = None if bad.cells is None or self._other is None else bad.cells + [""] * len(self._other)
            out.bad.append(BadRow(bad.line + before, bad.lines, bad.raw, bad.fault, cells))
        return out

    def _join_row(self, out: Chunk, row: Any, line: int, lines: int, raw: str) -> None:
        key = self._get_first(row)
        partners = self._partners.get(key, []) if key else []
        if key and self._join.one_row_per and (twice := self._seen.setdefault(key, line)) != line:
            before = self._second.counted.lines
            raise Unreadable(
                f"{self.name}: {self._names[0]} has one {self._named(0)} on the lines {twice - before} and"
                f" {line - before}; each of its rows has one of its own where the join says one_row_per"
            )
        if not partners:
            self._alone += 1
            out.add(self._row(row, None), line, lines, self._text(row, None, raw))
        for place, partner in enumerate(partners):
            own = 0 if partner.is_used else partner.lines
            partner.is_used = True
            at, many = (partner.line if self._join.one_row_per else line), own if place else lines + own
            if partner.fault:
                text = self._text(row, partner, raw)
                out.bad.append(BadRow(at, many, text, partner.fault, self._row(row, partner)))
            else:
                out.add(self._row(row, partner), at, many, self._text(row, partner, raw))

    def _row(self, row: Any, partner: Partner | None) -> Any:
        if self._other is None:
            return {**row, self._prefix: partner.row} if partner else row
        other = (partner.row or []) if partner else []
        return [*row, *other, *[""] * (len(self._other) - len(other))][: self.width]

    def _text(self, row: Any, partner: Partner | None, raw: str) -> str:
        """A row as it can be put in again, with both halves in it."""
        if self._other is not None:
            return csv_text(self._row(row, partner), self._dialect) + "\r\n"
        if partner is None or partner.row is None:
            return raw
        return compact(self._row(row, partner)) + "\n"

    def _without_partner(self) -> Chunk:
        """The rows of the second file that no row of the first has named: lost, where each is to be a row."""
        out, left = Chunk(), [each for some in self._partners.values() for each in some if not each.is_used]
        left = sorted([*left, *self._lonely], key=lambda each: each.line)
        empty: Any = {} if self._other is None else [""] * (self.width - len(self._other))
        said = f"no row of {self._names[0]} has this {self._named(0)}"
        for each in left if self._join.one_row_per else ():
            text = self._text(empty, each, each.raw)
            cells = None if self._other is None else self._row(empty, each)
            out.bad.append(BadRow(each.line, each.lines, text, each.fault or Fault(PARTNERS, said), cells))
        if not self._join.one_row_per:
            self.counted.blank += sum(each.lines for each in left)
        if left:
            self._say(left[0].line, len(left), self._names[1], self._names[0])
        if self._alone:
            self._say(None, self._alone, self._names[0], self._names[1])
        return out

    def _say(self, line: int | None, number: int, one: str, other: str) -> None:
        self.noticed.append(Notice(line, PARTNERS, f"{number:,} rows of {one} have no partner in {other}"))

    # --- Keys -------------------------------------------------------------------------------------

    def _named(self, which: int) -> str:
        return ", ".join(self._join.on if which == 0 else self._join.on.values())

    def _getter(self, header: list[str] | None, names: list[str], which: int) -> Callable[[Any], str | None]:
        """The key of a row; None of one that has none."""
        if header is None:
            paths = [parse_path(name) for name in names]
            return lambda row: self._key([walk_path(row, path) for path in paths])
        if lacking := [name for name in names if name not in header]:
            raise Unreadable(
                f"{self.name}: {self._names[which]} has no column {', '.join(lacking)}, by which the feed joins it; it"
                f" has {', '.join(header[:20])}"
            )
        places = [header.index(name) for name in names]
        return lambda row: self._key([row[place] if row and place < len(row) else None for place in places])

    def _key(self, found: list[Any]) -> str | None:
        texts = ["" if each is None else composed(str(each).strip()) for each in found]
        return "\0".join(texts) if all(texts) else None

    def _joined_header(self, header: list[str] | None) -> list[str] | None:
        if (header is None) != (self._other is None):
            raise Unreadable(f"{self.name}: of two files that are joined both are tables, or both hold objects")
        if header is None or self._other is None:
            return None
        return [*header, *(f"{self._prefix}.{name}" for name in self._other)]

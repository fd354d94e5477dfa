"""The rows of the second of two joined files, by their key, and the joined rows."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pipelines.feeds.reading.chunks import Notice, RowReader
from pipelines.feeds.reading.cut_rows import CutRows
from pipelines.feeds.reading.dialect import dialect
from pipelines.feeds.reading.reject_marks import compact, csv_text
from pipelines.feeds.reading.row_faults import SourceRow
from pipelines.feeds.reading.second_tables import SecondTables
from pipelines.feeds.terms.paths import parse_path, walk_path
from pipelines.feeds.terms.schema import FeedFile
from pipelines.feeds.terms.texts import composed_text
from pipelines.home.batch import UnreadableFile

MOST_HELD = 256 << 20
"""The most characters of the second file."""


class Partners:
    """The rows of the second file, held in memory. archive, name: the names used in messages."""

    def __init__(self, archive: str, name: str) -> None:
        self._archive, self._name = archive, name
        self._by_key: dict[str, list[SourceRow]] = {}
        self._without_key: list[SourceRow] = []
        self.used: set[int] = set()
        """The lines of rows that rows of the first file have named."""
        self.noticed: list[Notice] = []

    def hold(self, second: RowReader, key_of: "KeyOf", alone: "Twice | None", feed: FeedFile, prefix: str) -> None:
        """Read the rows of the file. alone: the error for a second row of a key, if a key has one row.

        Raises Unreadable.
        """
        held, tables = 0, SecondTables(second, feed, self._name, prefix)
        for chunk in CutRows(second, feed, prefix).among(tables.over()):
            held += chunk.size
            if held > MOST_HELD:
                raise UnreadableFile(
                    f"{self._archive}: {self._name} is too large to be the second file of a join; make it the first"
                    " file of the feed, and the smaller one the second"
                )
            for row in chunk.rows:
                self._add(row, key_of, alone)
        self.noticed += tables.notices()

    def _add(self, partner: SourceRow, key_of: "KeyOf", alone: "Twice | None") -> None:
        key = key_of(partner.cells)
        if not key:
            self._without_key.append(partner)
            return
        others = self._by_key.setdefault(key, [])
        others.append(partner)
        if alone and len(others) > 1:
            raise alone(others[0].line, partner.line)

    def of(self, key: str | None) -> Sequence[SourceRow]:
        """Return the rows of a key."""
        return self._by_key.get(key, ()) if key else ()

    def unused(self) -> list[SourceRow]:
        """Return the rows that no row of the first file has named, by line."""
        left = [each for some in self._by_key.values() for each in some if each.line not in self.used]
        return sorted([*left, *self._without_key], key=lambda each: each.line)


KeyOf = Callable[[Any], str | None]
"""Returns the key of a row; None for a row without a key."""
Twice = Callable[[int, int], UnreadableFile]
"""Returns the error for two lines with one key."""


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

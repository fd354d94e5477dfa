"""Workbooks (.xlsx): a sheet's rows, each cell as the sheet shows it, with its row number as the line.

calamine reads the values and returns them row by row. Dates become ISO 8601; percents and leading zeros stay; a number
keeps all its decimals.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from pipelines.feeds.reading.chunks import Notice
from pipelines.feeds.reading.formats import plain_number
from pipelines.feeds.reading.tables import TableFileReader, TableRow
from pipelines.feeds.reading.workbook_parts import DAMAGED, MOST_MERGED, Place, SheetPart, Workbook, cell_name
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.schema import FeedFile, named_columns
from pipelines.feeds.terms.times import EXCEL
from pipelines.home.batch import UnreadableFile
from pipelines.home.counted import counted

RULE = "FEED-FILE-09"
ZEROS, HIDDEN, SHEETS = "WORKBOOK-ZEROS", "WORKBOOK-HIDDEN", "WORKBOOK-SHEETS"
MOST_DIGITS = 10**15
HEADER_WITHIN = 1_000
MOST_NAMED = 20


class WorkbookReader(TableFileReader):
    """A reader of one sheet of a workbook."""

    def __init__(self, path: Path, name: str, feed: FeedFile) -> None:
        super().__init__(path, name, feed)
        self._named = named_columns(feed)

    def open(self) -> None:
        book = Workbook(self._path, self.name)
        if book.is_1904 and self._own.dates_since != 1904:
            raise UnreadableFile(
                f"{self.name}: the dates of the workbook count from 1904; if it shows them right, set"
                " dates_since = 1904 in the feed file"
            )
        if not book.is_1904 and self._own.dates_since == 1904 and EXCEL in self._own.dates:
            raise UnreadableFile(
                f"{self.name}: the dates of the workbook count from 1900, but its feed file has dates_since = 1904;"
                " write a feed file of their own for such workbooks"
            )
        sheet = self._sheet(book.sheets)
        self._looked = book.look_at(sheet)
        self._values = enumerate(self._loaded(sheet.name), 1)
        self._find_header()
        self.check_merged(self.counted.header)
        self._check_formulas()
        self._check_side_by_side()

    def _loaded(self, sheet: str) -> Iterator[Sequence[Any]]:
        """Return the rows of a sheet from its first row and column on; a number without decimals is an integer."""
        from python_calamine import CalamineError, CalamineWorkbook  # few files need it

        try:
            found = CalamineWorkbook.from_path(self._path).get_sheet_by_name(sheet)
        except (CalamineError, ValueError, OSError):
            raise UnreadableFile(f"{self.name}: {DAMAGED}") from None
        left = [""] * (found.start or (0, 0))[1]
        return ([*left, *map(_whole, row)] for row in found.iter_rows())

    # --- The sheet and its header -----------------------------------------------------------------

    def _sheet(self, sheets: Sequence[SheetPart]) -> SheetPart:
        wanted = self._own.sheet
        if isinstance(wanted, int) and wanted <= len(sheets):
            return sheets[wanted - 1]
        shown = [each for each in sheets if each.is_shown]
        found = [each for each in sheets if each.name == wanted] if wanted else shown
        if len(found) == 1:
            self._note_unread([each.name for each in sheets if not (wanted or each.is_shown)])
            return found[0]
        names = _quoted([each.name for each in sheets])
        if wanted is None and found:
            first = names.partition(", ")[0]
            raise UnreadableFile(
                f"{self.name}: the workbook has the sheets {names}; name one in the feed: sheet = {first}"
            )
        raise UnreadableFile(f"{self.name}: the workbook has no sheet {wanted!r}, which the feed names; it has {names}")

    def _note_unread(self, names: Sequence[str]) -> None:
        """Warn of sheets that the workbook hides, if the feed does not say which sheet is read."""
        if names:
            said = f"hidden sheets were not read: {_quoted(names)}; to read one, name it in the feed file (sheet)"
            self.noticed.append(Notice(None, SHEETS, said))

    def _find_header(self) -> None:
        """Go to the first row. The header is the first filled row from the feed's line on, or with the feed's cell."""
        asked = self._own.header_has
        if not self._own.header:
            self.take_positions(self._looked.width)
            return
        for line, values in islice(self._values, HEADER_WITHIN):
            self.counted.lines = self.counted.header = line
            cells = self._cells(line, values)
            is_header = asked in map(str.strip, cells) if asked else line >= self._own.header
            if is_header and any(map(str.strip, cells)):
                self.take_header(cells)
                self._header_cells = cells
                return
        sought = f'with the cell "{asked}"' if asked else f"on line {self._own.header} or below it"
        raise UnreadableFile(
            f"{self.name}: there is no header {sought} within {HEADER_WITHIN:,} rows; check the feed file"
            f" ({'header_has' if asked else 'header'})"
        )

    _header_cells: Sequence[str] = ()

    # --- What cannot be read as it is -------------------------------------------------------------

    def check_merged(self, header: int) -> None:
        """Raise Unreadable for merged cells: only one of them has a value, and the others would be empty.

        header: the line of the header.
        """
        if len(self._looked.merged) > MOST_MERGED:
            raise UnreadableFile(
                f"{self.name}: the sheet has merged cells in more than {MOST_MERGED:,} places; unmerge them, so that"
                " each cell has its own text"
            )
        for (first, left), (last, right) in self._looked.merged:
            if last >= max(header, 1) and (first <= header or last > first):
                where = "the header" if first <= header else "the rows"
                area = f"{cell_name((first, left))} to {cell_name((last, right))}"
                raise UnreadableFile(
                    f"{self.name}: cells of {where} are merged ({area}); unmerge them, so that each cell has its own"
                    " text"
                )

    def _check_formulas(self) -> None:
        lacking = [place for place in self._looked.unvalued if place[0] > self.counted.header and self._is_named(place)]
        if lacking:
            raise UnreadableFile(f"{self.name}: {_without_values(lacking)}")

    def said(self) -> Iterator[str]:
        """Yield the remarks of a draft on the sheet."""
        if self._looked.unvalued:
            yield _without_values(self._looked.unvalued)
        if self._looked.hidden:
            yield _of_hidden(self._looked.hidden)

    def _is_named(self, place: Place) -> bool:
        """True if a cell is in a column that the feed names."""
        column = place[1]
        name = (self.header or [])[column - 1] if column <= self.width else ""
        return f"#{column}" in self._named or name in self._named

    def _check_side_by_side(self) -> None:
        """Raise Unreadable for two tables side by side: a gap in the header after which a name repeats."""
        names = [cell.strip() for cell in self._header_cells]
        for place in range(1, len(names)):
            again = {name for name in names[place + 1 :] if name} & set(names[:place])
            if not names[place] and again and any(names[:place]):
                raise UnreadableFile(
                    f"{self.name}: two tables are side by side, and both have the column {min(again)}; "
                    "put each on a sheet of its own"
                )

    # --- Rows -------------------------------------------------------------------------------------

    def rows(self) -> Iterator[TableRow]:
        columns, after_blank = _SheetColumns(self._looked.width), False
        for line, values in self._values:
            self.counted.lines = line
            cells = self._cells(line, values)
            if not any(map(str.strip, cells)):
                self.counted.blank += 1
                after_blank = True
            elif cells == self._header_cells:
                self.counted.repeats.append(line)
                self.counted.of_repeats += 1
            elif after_blank and columns.is_another_header(values):
                raise UnreadableFile(
                    f"{self.name}: another table begins on line {line}; put each on a sheet of its own"
                )
            else:
                after_blank = False
                columns.note(line, values)
                yield TableRow(line, cells, self._fault(line, values))
        self._note_lost_zeros(columns)
        if hidden := [line for line in self._looked.hidden if line > self.counted.header]:
            self.noticed.append(Notice(hidden[0], HIDDEN, _of_hidden(hidden)))

    def _note_lost_zeros(self, columns: "_SheetColumns") -> None:
        for place, line in columns.lost_zeros():
            if self._is_named((line, place)):
                name = (self.header or [])[place - 1]
                said = f"a number in {name}, where other cells are texts that begin with 0, so its zeros may be lost"
                self.noticed.append(Notice(line, ZEROS, said))

    def _cells(self, line: int, values: Sequence[Any]) -> list[str]:
        """Return the cells of a row as texts."""
        cells = [value if type(value) is str else self._text(value) for value in values]
        for odd in (self._looked.shown, self._looked.errors):
            for column, by_line in odd.items():
                if (text := by_line.get(line)) is not None:
                    cells[column - 1] = text
        return cells

    def _text(self, value: object) -> str:
        """Return a value as a text. A time at midnight is a date, unless the sheet shows its time."""
        if isinstance(value, bool):
            return str(value).upper()
        if isinstance(value, int | float):
            return self._numbers.written(plain_number(str(value)))
        if isinstance(value, datetime):
            value = (value + timedelta(microseconds=500)).replace(microsecond=0)
            return value.isoformat() if value.time() != time() else value.date().isoformat()
        if isinstance(value, timedelta):
            seconds = round(value.total_seconds())
            return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return value.isoformat() if isinstance(value, date | time) else str(value)

    def _fault(self, line: int, values: Sequence[Any]) -> ValueFault | None:
        """Return the fault of a row with an error, or with lost digits, in a column that the feed names; else None."""
        for column, by_line in self._looked.errors.items():
            if line in by_line and self._is_named((line, column)):
                return ValueFault(
                    RULE, f"the cell {cell_name((line, column))} has the error {by_line[line]} instead of a value"
                )
        for column, value in enumerate(values, 1):
            if type(value) in (int, float) and abs(value) >= MOST_DIGITS and self._is_named((line, column)):
                at = cell_name((line, column))
                said = (
                    f"the number in the cell {at} has more than the 15 digits that a workbook keeps; enter it as text"
                )
                return ValueFault(RULE, said)
        return None


class _SheetColumns:
    """Observations on the columns of a sheet, from the header down."""

    def __init__(self, width: int) -> None:
        self._numbers = [0] * width
        self._texts = [False] * width
        self._zeros = [False] * width

    def note(self, line: int, values: Sequence[Any]) -> None:
        for place, value in enumerate(values):
            if type(value) is not str:
                self._numbers[place] = self._numbers[place] or line
            elif value:
                self._texts[place] = True
                self._zeros[place] = self._zeros[place] or (value[0] == "0" and len(value) > 1 and value.isdecimal())

    def is_another_header(self, values: Sequence[Any]) -> bool:
        """True if a row has only texts, one of them in a column that had none."""
        filled = [place for place, value in enumerate(values) if value != ""]
        return (
            len(filled) > 1
            and all(type(values[place]) is str for place in filled)
            and any(self._numbers[place] and not self._texts[place] for place in filled)
        )

    def lost_zeros(self) -> list[tuple[int, int]]:
        """Return columns, from 1, with both texts that begin with 0 and numbers, with the line of the first number."""
        seen = enumerate(zip(self._numbers, self._zeros, strict=True), 1)
        return [(place, line) for place, (line, has_zeros) in seen if line and has_zeros]


def _quoted(names: Sequence[str]) -> str:
    """Return the names of sheets in quotes; only the first if there are many."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(f'"{name}"' for name in names[:MOST_NAMED]) + more


def _whole(value: object) -> object:
    return int(value) if type(value) is float and value.is_integer() else value


def _without_values(places: Collection[Place]) -> str:
    return (
        f"{counted(len(places), 'formula has', 'formulas have')} no value, the first in {cell_name(min(places))}; "
        "open the workbook in a spreadsheet program, save it, and put that in"
    )


def _of_hidden(lines: Sequence[int]) -> str:
    hidden = counted(len(lines), "row, on", "rows, the first on")
    return (
        f"the sheet hides {hidden} line {lines[0]:,}: {'it is' if len(lines) == 1 else 'they are'} read like the others"
    )

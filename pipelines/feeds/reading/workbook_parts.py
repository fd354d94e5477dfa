"""The parts of a workbook that calamine does not read: formats, errors, empty formulas, merged cells, its size.

The XML is read as a stream before the sheet is loaded, so that no workbook takes more memory than the bounds allow.
"""

import mmap
import re
import zipfile
import zlib
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import isfinite
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from xml.parsers import expat

from pipelines.feeds.reading.chunks import LONGEST_ROW
from pipelines.feeds.reading.formats import Shown, is_duration, is_of_time, shown_by
from pipelines.feeds.reading.packed import ALWAYS_TAKEN, MOST_TIMES
from pipelines.feeds.terms.times import DAY_0, DAY_0_OF_1904
from pipelines.home.batch import UnreadableFile, reading_file

BLOCK = 1 << 18
LONGEST_TAG = 4 << 20
"""The most bytes of a tag with its attributes. Spreadsheet programs write a few thousand; long tags are slow to read.
"""


class NotTaken(ValueError):
    """A well-formed workbook is not read. The message is one clause with the reason, and what to do."""


def parse(
    archive: zipfile.ZipFile,
    part: str,
    start: Callable[[str, dict[str, str]], None],
    end: Callable[[str], None] | None = None,
    text: Callable[[str], None] | None = None,
) -> None:
    """Call functions with the elements of a part, by their names without a namespace.

    Raises as `zipfile` and expat do. Raises `ValueError`, also as `NotTaken`, for XML that no spreadsheet writes.
    """
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    names: dict[str, str] = {}

    def local(name: str) -> str:
        return names.get(name) or names.setdefault(name, name.rpartition("}")[2])

    def no_doctype(*_: object) -> None:
        raise ValueError

    parser.StartElementHandler = lambda name, given: start(local(name), given)
    if end:
        parser.EndElementHandler = lambda name: end(local(name))
    if text:
        parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = no_doctype
    taken = 0
    with archive.open(part) as file:
        while block := file.read(BLOCK):
            parser.Parse(block)
            taken += len(block)
            if taken - parser.CurrentByteIndex > LONGEST_TAG:
                raise NotTaken(
                    f"{part} has a tag of more than {LONGEST_TAG >> 20} MiB; save the workbook as .xlsx once more"
                )
        parser.Parse(b"", True)


_MOST_XML = 4 << 30
MOST_CELLS = 6_000_000
MOST_TEXT = 256 << 20
MOST_DAYS = 10**9
"""Calamine fails at numbers of days that are farther below zero or, of a duration, farther above."""
MOST_MERGED = 100_000
MOST_STYLES, LONGEST_CODE = 100_000, 10_000
"""A spreadsheet program has at most 65,490 cell formats, with a code of 255 characters each."""
ROWS, COLUMNS = 1 << 20, 1 << 14
"""The most rows and columns that a sheet can have."""
DAMAGED = "the workbook is damaged, or is not a usual .xlsx; save it as .xlsx again"
TOO_LARGE = f"the sheet has more than {MOST_CELLS:,} cells or is far larger than a sheet of its size; export it as CSV"
TOO_MANY_TEXTS = (
    f"the workbook has more than {MOST_CELLS:,} texts, or {MOST_TEXT >> 20} MiB of them; export the sheet as CSV"
)
ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
OLD_OFFICE = b"\xd0\xcf\x11\xe0"
_AT = re.compile(r"([A-Z]{1,3})([1-9]\d{0,6})\Z", re.ASCII)
_DAMAGED = (expat.ExpatError, ValueError, KeyError, IndexError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError)

Place = tuple[int, int]
"""Line and column of a cell, from 1."""


class SheetPart(NamedTuple):
    """A sheet: its name, its part of the archive, and True if the sheet is shown."""

    name: str
    part: str
    is_shown: bool


class CellStyles(NamedTuple):
    """By cell style, the function that shows numbers; the styles of dates, times and durations; those of durations."""

    shown: Mapping[int, Shown]
    times: frozenset[int]
    durations: frozenset[int]


@dataclass
class SheetFindings:
    """Observations on a sheet. lines, width: its size.

    * shown: by column and line, the texts of cells that show something else than their value.
    * errors: by column and line, the errors in cells.
    * unvalued: formulas without a value.
    * merged: the first and last cell of each merged area.
    * hidden: lines that hold something and that the sheet hides, as a filter does.
    """

    shown: dict[int, dict[int, str]] = field(default_factory=dict)
    errors: dict[int, dict[int, str]] = field(default_factory=dict)
    unvalued: set[Place] = field(default_factory=set)
    merged: list[tuple[Place, Place]] = field(default_factory=list)
    hidden: "array[int]" = field(default_factory=lambda: array("L"))
    lines: int = 0
    width: int = 0


class Workbook:
    """The parts of a workbook. sheets: in their order. is_1904: True if its dates count from 1904."""

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name = path, name
        self.sheets: list[SheetPart] = []
        self.is_1904 = False
        self._check_file()
        self._reading(self._read_sheets)

    def look_at(self, sheet: SheetPart) -> SheetFindings:
        """Return the observations on a sheet. Raises Unreadable if it is damaged or too large."""
        looked: SheetFindings = self._reading(lambda archive: self._look_at(archive, sheet))
        return looked

    def _check_file(self) -> None:
        with reading_file(self._name), self._path.open("rb") as file:
            if file.read(4) == OLD_OFFICE:
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                    if content.find(ENCRYPTED) >= 0:
                        raise UnreadableFile(f"{self._name}: the workbook has a password; save it without one")
        if not zipfile.is_zipfile(self._path):
            raise UnreadableFile(f"{self._name}: {DAMAGED}")

    def _reading(self, read: Callable[[zipfile.ZipFile], Any]) -> Any:
        try:
            with zipfile.ZipFile(self._path) as archive:
                self._check_size(archive)
                return read(archive)
        except NotTaken as error:
            raise UnreadableFile(f"{self._name}: {error}") from None
        except (*_DAMAGED, NotImplementedError):
            raise UnreadableFile(f"{self._name}: {DAMAGED}") from None

    def _check_size(self, archive: zipfile.ZipFile) -> None:
        size = sum(each.file_size for each in archive.infolist())
        if size > min(max(ALWAYS_TAKEN, MOST_TIMES * self._path.stat().st_size), _MOST_XML):
            raise NotTaken(TOO_LARGE)

    def _read_sheets(self, archive: zipfile.ZipFile) -> None:
        targets: dict[str, str] = {}
        found: list[tuple[str, str, bool]] = []

        def link(tag: str, given: dict[str, str]) -> None:
            if tag == "Relationship":
                targets[given["Id"]] = _part(given["Target"])

        def sheet(tag: str, given: dict[str, str]) -> None:
            if tag == "sheet":
                linked = next(value for name, value in given.items() if name.endswith("}id"))
                found.append((given["name"], linked, given.get("state", "visible") == "visible"))
            elif tag == "workbookPr":
                self.is_1904 = given.get("date1904", "0") in ("1", "true")

        parse(archive, "xl/_rels/workbook.xml.rels", link)
        parse(archive, "xl/workbook.xml", sheet)
        self.sheets = [SheetPart(name, targets[linked], is_shown) for name, linked, is_shown in found]

    def _look_at(self, archive: zipfile.ZipFile, sheet: SheetPart) -> SheetFindings:
        parts = {name.lower(): name for name in archive.namelist()}  # some programs write SharedStrings.xml
        styles, texts = parts.get("xl/styles.xml"), parts.get("xl/sharedstrings.xml")
        formats = _formats(archive, styles, self.is_1904) if styles else CellStyles({}, frozenset(), frozenset())
        lengths = _lengths(archive, texts) if texts else array("L")
        cells = _CellObserver(formats, lengths)
        parse(archive, sheet.part, cells.start, cells.end, cells.text)
        return cells.found


def _part(target: str) -> str:
    """Return the name of a part that the workbook links to."""
    return target.removeprefix("/") if target.startswith("/") else str(PurePosixPath("xl") / target)


def _formats(archive: zipfile.ZipFile, part: str, is_1904: bool) -> CellStyles:
    """Return the number formats, and the formats of times among them, by cell style."""
    codes: dict[int, str] = {}
    styles: list[int] = []
    inside: list[str] = []

    def start(tag: str, given: dict[str, str]) -> None:
        inside.append(tag)
        if tag == "numFmt":
            codes[int(given["numFmtId"])] = given["formatCode"]
        elif tag == "xf" and "cellXfs" in inside:
            styles.append(int(given.get("numFmtId", 0)))
        if max(len(codes), len(styles)) > MOST_STYLES or len(given.get("formatCode", "")) > LONGEST_CODE:
            raise ValueError

    def end(_: str) -> None:
        inside.pop()

    parse(archive, part, start, end)
    day_0 = DAY_0_OF_1904 if is_1904 else DAY_0
    by_id = {each: shown_by(each, codes.get(each), day_0) for each in set(styles)}
    shown = {place: shown for place, each in enumerate(styles) if (shown := by_id[each])}
    times, durations = (
        {each for each in by_id if is_one(each, codes.get(each))} for is_one in (is_of_time, is_duration)
    )
    placed = [frozenset(place for place, each in enumerate(styles) if each in ids) for ids in (times, durations)]
    return CellStyles(shown, placed[0], placed[1])


def _lengths(archive: zipfile.ZipFile, part: str) -> "array[int]":
    """Return the lengths of the texts that cells share. Raises `NotTaken`, also for an impossible number of them."""
    found, whole = array("L"), 0

    def start(tag: str, given: dict[str, str]) -> None:
        if tag == "si":
            found.append(0)
        if max(len(found), int(given.get("uniqueCount", 0))) > MOST_CELLS:
            raise NotTaken(TOO_MANY_TEXTS)

    def text(some: str) -> None:
        nonlocal whole
        if found:
            found[-1] += len(some)
            whole += len(some)
            if whole > MOST_TEXT:
                raise NotTaken(TOO_MANY_TEXTS)

    parse(archive, part, start, None, text)
    return found


class _CellObserver:
    """Observes the cells of a sheet one by one. Raises `NotTaken` at a cell for which the sheet is refused."""

    def __init__(self, styles: CellStyles, lengths: "array[int]") -> None:
        self.found = SheetFindings()
        self._styles, self._lengths = styles, lengths
        self._line = self._column = 0
        self._kind, self._style = "n", 0
        self._value = ""
        self._is_formula = self._is_value = self._is_hidden = False
        self._text = 0
        self._once = _RepeatTest()

    def start(self, tag: str, given: dict[str, str]) -> None:
        if tag == "c":
            self._begin_cell(given)
        elif tag in ("v", "t", "is", "f"):
            self._is_value, self._is_formula = tag in ("v", "t"), self._is_formula or tag == "f"
            found = self.found  # calamine stores empty texts too, and all places before them
            found.lines, found.width = max(found.lines, self._line), max(found.width, self._column)
        elif tag == "row":
            self._line, self._column = int(given.get("r", self._line + 1)), 0
            self._once.row = 0
            self._is_hidden = given.get("hidden") in ("1", "true")
        elif tag == "mergeCell":
            first, _, last = given["ref"].partition(":")
            if len(self.found.merged) <= MOST_MERGED:
                self.found.merged.append((_place(first), _place(last or first)))

    def _begin_cell(self, given: dict[str, str]) -> None:
        if at := given.get("r"):
            self._line, self._column = _place(at)
        else:
            self._column += 1
        if self._once.is_again(self._line, self._column):
            raise NotTaken(
                f"the sheet has row {self._line}, or a cell in it, twice, and one of the two would be lost; open the"
                " workbook in a spreadsheet program, check that row, and save it"
            )
        self._kind, self._style, self._value = given.get("t", "n"), int(given.get("s", 0)), ""
        self._is_formula = False

    def text(self, part: str) -> None:
        if self._is_value:
            self._value += part
            if len(self._value) > LONGEST_ROW:
                at = cell_name((self._line, self._column))
                raise NotTaken(f"the cell {at} has a text longer than 2 MiB; check that it is an export")

    def end(self, tag: str) -> None:
        if tag in ("v", "t"):
            self._is_value = False
        elif tag == "c":
            self._end_cell()

    def _end_cell(self) -> None:
        found, place, kind, value = self.found, (self._line, self._column), self._kind, self._value
        if self._is_hidden and (value or self._is_formula):
            found.hidden.append(self._line)
            self._is_hidden = False
        styles, number = self._styles, _number(value) if kind == "n" else 0.0
        is_beyond = number <= -MOST_DAYS or (self._style in styles.durations and number >= MOST_DAYS)
        if is_beyond and self._style in styles.times:
            raise NotTaken(
                f"the cell {cell_name(place)} has the format of a date or time, but its number, {value[:20]}, is not"
                " one; correct it in the workbook"
            )
        if self._is_formula and not value and kind != "str":
            found.unvalued.add(place)
        elif kind == "e" or not isfinite(number):  # as a date, NaN would be day 0
            found.errors.setdefault(place[1], {})[place[0]] = value
        elif kind == "s":
            self._text += self._lengths[int(value)] if value else 0
        elif kind != "n":
            self._text += len(value)
        elif value and (shown := styles.shown.get(self._style)) and (text := shown(value)) is not None:
            found.shown.setdefault(place[1], {})[place[0]] = text
        if found.lines * found.width > MOST_CELLS or self._text > MOST_TEXT:
            raise NotTaken(TOO_LARGE)


class _RepeatTest:
    """A test for repeated rows and cells. row: the line of the present cells; 0 at the beginning of a row."""

    def __init__(self) -> None:
        self.row = 0
        self._begun = bytearray(ROWS + 1)
        self._columns: set[int] = set()

    def is_again(self, line: int, column: int) -> bool:
        """True if the cell occurred before, or if cells of its row occurred before those of another row."""
        is_again = False
        if line != self.row:
            is_again, self._begun[line] = bool(self._begun[line]), 1
            self.row, self._columns = line, set()
        is_again |= column in self._columns
        self._columns.add(column)
        return is_again


def _number(text: str) -> float:
    """Return the number of a cell; 0 for a text that is no number, which makes calamine refuse the sheet."""
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def _place(at: str) -> Place:
    """Return line and column of a cell from its name. Raises ValueError."""
    found = _AT.match(at)
    if not found:
        raise ValueError(at)
    line, column = int(found[2]), _column(found[1])
    if line > ROWS or column > COLUMNS:
        raise ValueError(at)
    return line, column


@cache
def _column(letters: str) -> int:
    """Return the number of a column from its letters, three at most."""
    column = 0
    for letter in letters:
        column = column * 26 + ord(letter) - 64
    return column


def cell_name(place: Place) -> str:
    """Return the name of a cell, such as B7."""
    line, column = place
    letters = ""
    while column:
        column, rest = divmod(column - 1, 26)
        letters = chr(65 + rest) + letters
    return f"{letters}{line}"

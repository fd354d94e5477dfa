"""Guess from the beginning of an export: encoding, delimiter, header, and the formats of dates and amounts."""

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from fhir_service.interface.datatypes import Malformed, parse_json
from pipelines.feeds.reading.opening import BEGINNING, is_binary, unmarked_utf_16, what_it_is
from pipelines.feeds.reading.packed import first_content
from pipelines.feeds.terms.columns import Conventions, Fault, time
from pipelines.feeds.terms.numbers import Numbers
from pipelines.home.batch import Unreadable

HEAD = 256 << 10
ROWS = 300
DELIMITERS = (",", ";", "\t", "|")
DAYS = (
    *("%d.%m.%Y", "%d.%m.%y", "%m/%d/%Y", "%d/%m/%Y", "%m/%d/%y", "%d/%m/%y", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d"),
    *("%m-%d-%Y", "%d-%m-%Y", "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y"),
)
HOURS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", ", %H:%M", "T%H:%M:%S", "%H%M%S", " %H:%M:%S.%f")
_TIMES = Conventions(UTC)
_SIGN = re.compile(r"[^\d\s.,()+\-\u2212'\u2019\u00a0\u202f]+")
_MARK = r"(?:[A-Z]{2,3}\$?|[^\w\s.,()+\-]{1,2})"
_AMOUNT = re.compile(rf"[(+\-\u2212]?\s*+(?:{_MARK}\s*+)?[+\-]?\d[\d.,' \u00a0\u202f]*+\)?\s*+(?:{_MARK})?-?\)?")
_MOST = 0.8
"""The share of cells that must fit: an export has bad cells too."""


@dataclass
class Export:
    """The beginning of an export. header: the line that it stands on, 0 for none. names: of its columns.

    trailer: whether the file ends with a row unlike the others, which is not among the rows. file_name: of the file
    whose rows these are, without endings of compression. keys: further lines of the feed file.
    """

    form: str
    encoding: str
    delimiter: str = ","
    header: int = 1
    names: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    objects: list[dict[str, object]] = field(default_factory=list)
    trailer: bool = False
    file_name: str = ""
    keys: list[str] = field(default_factory=list)

    @property
    def is_objects(self) -> bool:
        """True if the rows are objects."""
        return self.form in ("ndjson", "json")

    @property
    def wordless(self) -> bool:
        """True if half of the header's fields or more are empty, as in lines of delimiters before a header."""
        return sum(map(bool, self.names)) * 2 <= len(self.names) if self.header else False

    def column(self, place: int) -> list[str]:
        """The cells of a column that hold something."""
        return [row[place].strip() for row in self.rows if place < len(row) and row[place].strip()]


def look_at_text(path: Path) -> Export:
    """The beginning of a text file. Raises Unreadable when it is none."""
    start = _start(path)
    encoding, text = _decoded(path.name, start)
    lines = text.splitlines(keepends=True)
    whole = len(start) < HEAD
    if objects := _objects(lines if whole else lines[:-1]):
        return Export("ndjson", encoding, objects=objects)
    if text.lstrip().startswith("{"):  # as a table, it would have what its first row says for names
        raise Unreadable(f"{path.name}: the first line is no JSON object; correct it, or take another export")
    export = _table(path.name, encoding, lines if whole else lines[:-1])
    if whole:
        take_trailer(export)
    return export


def take_trailer(export: Export) -> None:
    """Take the last row of a whole file from the others where it is unlike them."""
    if _ends_with_a_trailer(export.rows):
        export.rows.pop()
        export.trailer = True


def _start(path: Path) -> bytes:
    try:
        with first_content(path).open() as file:
            return file.read(HEAD)
    except OSError as error:
        raise Unreadable(f"{path.name}: cannot be read: {error.strerror}") from None


def _decoded(name: str, start: bytes) -> tuple[str, str]:
    """The encoding, by its mark or by what the bytes allow, and the text."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", start.decode("utf-16", "replace")
    if order := unmarked_utf_16(start[:BEGINNING]):
        return "utf-16", start.decode(order, "replace")
    if said := what_it_is(start):
        raise Unreadable(f"{name}: the file is {said}")
    if is_binary(start[:BEGINNING]):
        raise Unreadable(f"{name}: the file is binary; export it as CSV or NDJSON")
    try:
        return "utf-8", codecs.getincrementaldecoder("utf-8")().decode(start).removeprefix("\ufeff")
    except UnicodeDecodeError:
        pass
    try:
        return "windows-1252", start.decode("windows-1252")
    except UnicodeDecodeError:
        return "latin-1", start.decode("latin-1")


def _objects(lines: Sequence[str]) -> list[dict[str, object]]:
    found = []
    for line in islice((line for line in lines if line.strip()), ROWS):
        try:
            parsed = parse_json(line)
        except (Malformed, ArithmeticError):
            break
        if not isinstance(parsed, dict):
            break
        found.append(parsed)
    return found


# --- Tables ---------------------------------------------------------------------------------------


def _table(name: str, encoding: str, lines: Sequence[str]) -> Export:
    read = {sign: _rows(lines, sign) for sign in DELIMITERS}
    delimiter = max(DELIMITERS, key=lambda sign: _agreement(read[sign]))
    if not read[delimiter]:
        raise Unreadable(f"{name}: the file is empty")
    return of_rows(read[delimiter], "csv", encoding, delimiter)


def of_rows(rows: Sequence[tuple[int, list[str]]], form: str, encoding: str = "utf-8", delimiter: str = ",") -> Export:
    """An export of rows, each with its line, of which one may be the header."""
    width = _width(rows)
    first = next(place for place, (_, cells) in enumerate(rows) if len(cells) == width)
    body = [cells for _, cells in rows[first + 1 :]]
    line, head = rows[first]
    names = [cell.strip() for cell in head]
    if _is_header(names, body):
        return Export(form, encoding, delimiter, line, names, body)
    return Export(form, encoding, delimiter, 0, [f"#{place}" for place in range(1, width + 1)], [head, *body])


def _rows(lines: Sequence[str], delimiter: str) -> list[tuple[int, list[str]]]:
    """The first rows, each with the physical line that it begins on."""
    found: list[tuple[int, list[str]]] = []
    reader = csv.reader(io.StringIO("".join(lines), newline=""), delimiter=delimiter)
    before = 0
    try:
        for cells in islice(reader, ROWS):
            if cells:
                found.append((before + 1, cells))
            before = reader.line_num
    except csv.Error:
        pass
    return found


def _width(rows: Sequence[tuple[int, list[str]]]) -> int:
    return Counter(len(cells) for _, cells in rows).most_common(1)[0][0]


def _agreement(rows: Sequence[tuple[int, list[str]]]) -> tuple[float, int]:
    """Return how well rows agree on the number of their fields; one field says nothing."""
    if not rows:
        return 0.0, 0
    width = _width(rows)
    share = sum(len(cells) == width for _, cells in rows) / len(rows)
    return (share if width > 1 else 0.0), width


def _ends_with_a_trailer(rows: Sequence[Sequence[str]]) -> bool:
    """True if the last row leaves several columns empty, or out, that every other row fills."""
    *others, last = rows if 3 < len(rows) < ROWS - 1 else ([], [])
    if not others:
        return False
    width = Counter(map(len, others)).most_common(1)[0][0]
    filled = [place for place in range(width) if all(place < len(row) and row[place].strip() for row in others)]
    return sum(place >= len(last) or not last[place].strip() for place in filled) > 1


def _is_header(names: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """True if a row names columns: distinct words that are no values, above cells that look unlike them."""
    words = [name for name in names if name]
    if not words or len(set(words)) < len(words) or any(is_value(word) for word in words):
        return False
    if not body:
        return len(names) > 1
    unlike = sum(
        any(is_value(cell) or re.search(r"\d", cell) for cell in cells) and not re.search(r"\d", name)
        for name, cells in zip(names, zip(*(row for row in body if len(row) == len(names)), strict=True), strict=False)
    )
    return unlike > 0


def is_value(text: str) -> bool:
    """True if a text cannot name a column: a number, an amount, a date, an e-mail address, or over 80 characters."""
    text = text.strip()
    numbered = bool(_AMOUNT.fullmatch(text)) and text[-1:].isalnum()
    return numbered or bool(date_formats([text])) or is_iso(text) or "@" in text or len(text) > 80


# --- Cells ----------------------------------------------------------------------------------------


def is_iso(text: str) -> bool:
    """True if a text is a date or datetime of ISO 8601."""
    return not isinstance(time(text, _TIMES), Fault)


def most(cells: Sequence[str], fits: Callable[[str], object]) -> bool:
    """True if there are cells and nearly all of them fit."""
    return bool(cells) and sum(bool(fits(cell)) for cell in cells) >= _MOST * len(cells)


def date_formats(cells: Sequence[str]) -> list[tuple[str, ...]]:
    """The formats by which nearly all of these cells are dates of our time, the best one first; equally good ones
    together."""
    left = [cell for cell in cells if re.search(r"\d", cell) and len(cell) <= 40 and not is_iso(cell)]
    if len(left) < _MOST * len(cells):
        return []
    found: list[tuple[str, ...]] = []
    while left and len(found) < _FORMATS:
        fitting = {form: sum(_fits(cell, form) for cell in left) for form in _forms()}
        best = max(fitting.values())
        if not best:
            break
        found.append(tuple(form for form, number in fitting.items() if number == best))
        left = [cell for cell in left if not _fits(cell, found[-1][0])]
    return found if len(left) <= (1 - _MOST) * len(cells) else []


_FORMATS = 3


def _forms() -> Iterator[str]:
    return (day + hour for day in DAYS for hour in HOURS)


def _fits(cell: str, form: str) -> bool:
    try:
        return 1900 <= datetime.strptime(cell, form).year <= 2100  # noqa: DTZ007 - only tried
    except ValueError:
        return False


def numbers_of(cells: Sequence[str]) -> Numbers | None:
    """Return the number format of nearly all of these cells; None where they are no amounts."""
    likely = [cell for cell in cells if _AMOUNT.fullmatch(cell)] if most(cells, _AMOUNT.fullmatch) else []
    signs = tuple(dict.fromkeys(sign for cell in likely for sign in _SIGN.findall(cell)))
    shapes = [Numbers(".", "", signs), Numbers(".", ",", signs), Numbers(",", "", signs), Numbers(",", ".", signs)]
    shapes += [Numbers(",", " ", signs), Numbers(".", "'", signs), Numbers(".", " ", signs)]
    fits = [sum(bool(shape.amount(cell)) for cell in likely) for shape in shapes]
    best = max(fits)
    return shapes[fits.index(best)] if best else None

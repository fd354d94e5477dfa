"""Faults of rows that cannot be read, and rows as texts that can be kept."""

import codecs
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from fhir_service.interface.json_text import Malformed, parse_json
from pipelines.feeds.reading.opening import NAME_THE_ENCODING
from pipelines.feeds.terms.columns import ValueFault
from pipelines.home.counted import counted

BAD_QUOTING = ValueFault(
    "FEED-FILE-02", "wrong quoting: double each quote inside a field, and let no text follow a closing quote"
)
UNCLOSED = ValueFault(
    "FEED-FILE-02",
    "wrong quoting: a quote opens in this row and is not closed; close it (the lines after it were read as rows)",
)
SWALLOWED = ValueFault(
    "FEED-FILE-02",
    "a quote opens on the first line, and a line after it looks like a row of its own; close the quote, or, if the "
    'text is right, put the row in again unchanged (quotes = "as they are" in the feed file takes all such rows)',
)
TORN = ValueFault(
    "FEED-FILE-02",
    "wrong quoting: two fields have quotes inside, but not around them, so a delimiter may have cut a text; put quotes "
    "around such fields and double those inside "
    '(if the fields are right, quotes = "as they are" in the feed file takes such rows)',
)
NO_OBJECT = ValueFault("FEED-FILE-04", "not a JSON object; each line must hold one")
OUT_OF_RANGE = ValueFault("FEED-FILE-04", "not a JSON object: a number is out of range")
HALF_A_CHARACTER = ValueFault(
    "FEED-FILE-04", "a text has half of a character (an escape from \\ud800 to \\udfff alone)"
)
_SIGNS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")


class SourceRow(NamedTuple):
    """A row of a source: its fields or object, its first line, the number of its lines, and its text.

    fault: why it could not be read; its cells are None if they could not even be counted. is_doubtful: True if the
    cells may be right, unless a quote or the end of the file has cut them. is_ragged: True if there are too many cells
    or too few.
    """

    cells: Any
    line: int
    lines: int
    raw: str
    fault: ValueFault | None = None
    is_doubtful: bool = False
    is_ragged: bool = False

    @property
    def end(self) -> int:
        """Return its last line."""
        return self.line + self.lines - 1

    def padded(self, width: int) -> Any:
        """Return the object or the cells, which get empty ones up to the width of a row if the row has a fault."""
        if self.fault is None or isinstance(self.cells, dict):
            return self.cells
        return [*(self.cells or ()), *[""] * (width - len(self.cells or ()))]


def lines_of(fault: ValueFault, first: int, last: int) -> ValueFault:
    """Return the fault of a row, with its lines named if there are several."""
    if first == last:
        return fault
    return ValueFault(fault.rule, f"lines {first} to {last} were read as one row: {fault.message}")


def ragged(fields: int, width: int, delimiter: str, like: str, quoted: bool) -> ValueFault:
    """Return the fault of a row with too many or too few fields. like: the words for what has `width` fields."""
    sign = _SIGNS.get(delimiter, f"'{delimiter}'")
    quotes = f"; a {sign} inside a field needs quotes" if quoted and fields > width else ""
    return ValueFault("FEED-FILE-02", f"{counted(fields, 'field')} where {like} {width}{quotes}")


def is_single_byte(encoding: str) -> bool:
    """True if an encoding has one byte a character. It decodes nearly any bytes, even UTF-8, into some text."""
    return codecs.lookup(encoding).name.startswith(("cp125", "iso8859", "cp437", "cp85", "mac", "koi8", "latin"))


def other_text(raw: str, encoding: str) -> ValueFault | None:
    """Return the fault of a row that is UTF-8 but was read in a single-byte encoding; None for other rows."""
    if raw.isascii():
        return None
    try:
        raw.encode(encoding).decode()
    except UnicodeError:
        return None
    mend = 'set encoding = "utf-8" in the feed file, or export all rows in one encoding'
    return ValueFault("FEED-FILE-02", f"the row is UTF-8 and was read as {encoding}; {mend}")


def unreadable(raw: str) -> ValueFault | None:
    """Return the fault of a row's text with a NUL or with bytes that are not in the encoding; None if it has none."""
    if "\0" in raw:
        return ValueFault("FEED-FILE-02", "a NUL character; export the file again as text")
    if raw.isascii():
        return None
    try:
        raw.encode()
    except UnicodeEncodeError:
        return ValueFault("FEED-FILE-02", f"bytes that are not in the file's encoding; {NAME_THE_ENCODING}")
    return None


def is_torn(cells: list[str], raw: str, quote: str) -> bool:
    """True if a quoted text may have been cut into cells: two unquoted cells have an odd number of quotes."""
    odd = [cell for cell in cells if quote in cell and cell.count(quote) % 2]
    return len(odd) > 1 and sum(f"{quote}{cell.replace(quote, quote * 2)}{quote}" not in raw for cell in odd) > 1


def unfit(found: Any, raw: str) -> ValueFault | None:
    """Return the fault of a JSON value that is no row; None if it is a row. raw: its text."""
    if not isinstance(found, dict):
        return NO_OBJECT
    return HALF_A_CHARACTER if _ESCAPED_HALF.search(raw) and _half_a_character(found) else None


def _half_a_character(found: Any) -> bool:
    """True if any text in a JSON value has half of a surrogate pair, which is no character."""
    if isinstance(found, str):
        return any("\ud800" <= sign <= "\udfff" for sign in found)
    if isinstance(found, dict):
        found = [*found, *found.values()]
    return isinstance(found, list) and any(_half_a_character(part) for part in found)


def found_in(raw: str, names: Iterable[str]) -> dict[str, Any]:
    """Return, by name, the first text or number that follows each of these names in a line that is no JSON object."""
    found: dict[str, Any] = {}
    for name in names:
        said = re.search(rf'"{re.escape(name)}"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*)', raw)
        with suppress(Malformed, ArithmeticError):
            found |= {name: parse_json(f"[{said[1]}]")[0]} if said else {}
    return found


def printable(raw: str) -> str:
    """Return a row's text as Parquet can hold it: with escapes for characters that UTF-8 cannot encode."""
    return raw if raw.isascii() else raw.encode("utf-8", "backslashreplace").decode()

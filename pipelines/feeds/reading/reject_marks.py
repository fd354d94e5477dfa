"""The marks of an exported reject beside its record, `_reject_id` and `_reasons`: add them to a row, and remove them.

The marks come first in a row, so that a row with too many or too few fields keeps its own fields in order after them.
"""

import codecs
import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fhir_service.interface.json_text import object_in
from pipelines.feeds.reading.dialect import dialect
from pipelines.feeds.reading.packed import Content, first_content
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.schema import FeedFile
from pipelines.home.batch import UnreadableFile

REJECT_ID, REASONS, TEXT = "_reject_id", "_reasons", "_text"
MARKS = (REJECT_ID, REASONS)
HEAD = 1 << 16
BLOCK = 1 << 20
PARQUET = "PAR1"
ID = re.compile(r"\b[0-9a-f]{16}\b")
HEARD = re.compile(r"[0-9a-f]{16}(-[0-9]{20})?")
"""A reject's id, and how far its exporter had seen the ledger: see `pipelines.ledger.known_rejects`."""
_UTF8 = codecs.BOM_UTF8
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BESIDE = re.compile(r'([,;|\t])?"?_reject_id"?([,;|\t])?')
_LEAD = re.compile(r'\{"_reject_id":"[^"]*","_reasons":')
_ID_ELEMENT = re.compile(r'"_reject_id"\s*:\s*"([0-9a-f -]{16,})"')


DAMAGED = ""
"""The value in place of ids if the cell holds something else, such as an id that a spreadsheet read as a number."""
BAD_ID = ValueFault(
    "FEED-FILE-09",
    "its _reject_id is not valid: write it exactly as it was exported (sixteen of 0-9 and a-f, and any text"
    " behind them)",
)


def ids_of(found: Any) -> str | None:
    """Return the ids of rejects in a cell, separated by spaces; None for an empty cell, `DAMAGED` for anything else."""
    text = found.strip() if isinstance(found, str) else "" if found is None else str(found)
    return None if not text else text if all(map(HEARD.fullmatch, text.split())) else DAMAGED


# --- CSV ------------------------------------------------------------------------------------------


class Columns:
    """The marks among a CSV's columns: they are removed from its header, its rows and their text."""

    def __init__(self, header: Sequence[str], feed: FeedFile) -> None:
        self.places = {name: place for place, name in enumerate(header) if name in MARKS}
        self._dialect = dialect(feed)
        leading = sorted(self.places.values()) == list(range(len(self.places)))
        self._lead = _leading_fields(len(self.places), feed) if leading else None

    def __bool__(self) -> bool:
        return REJECT_ID in self.places

    def off(self, cells: list[str], raw: str) -> tuple[str | None, list[str], str]:
        """Return the ids of rejects, and the row's own fields and text."""
        place = self.places[REJECT_ID]
        answered = ids_of(cells[place]) if place < len(cells) else None
        own = [cell for place, cell in enumerate(cells) if place not in self.places.values()]
        cut = self._lead.match(raw) if self._lead else None
        return answered, own, raw[cut.end() :] if cut else csv_text(own, self._dialect) + raw[len(raw.rstrip("\r\n")) :]

    def off_text(self, raw: str) -> tuple[str | None, str]:
        """Remove the marks from a row whose fields cannot be told apart. Only leading marks can be removed from it."""
        cut = self._lead.match(raw) if self._lead else None
        if cut is None:
            return None, raw
        return ids_of(cut[1 + self.places[REJECT_ID]].strip(self._dialect["quotechar"] or " ")), raw[cut.end() :]


def _leading_fields(number: int, feed: FeedFile) -> re.Pattern[str]:
    quote, delimiter = re.escape(feed.quote), re.escape(feed.delimiter)
    quoted = rf"{quote}(?:[^{quote}]|{quote}{quote})*{quote}|" if quote else ""
    field = rf"({quoted}[^{quote}{delimiter}\r\n]*){delimiter}"
    return re.compile(field * number)


def csv_text(cells: Sequence[str], written: dict[str, Any]) -> str:
    """Return fields as one CSV row, without a line end. Without quotes, delimiters in fields become spaces."""
    if written["quotechar"] is None:
        special = "\r\n" + written["delimiter"] + (written["escapechar"] or "")
        cells = [cell.translate(dict.fromkeys(map(ord, special), " ")) for cell in cells]
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n", **written).writerow(cells)  # else csv would quote neither
    return text.getvalue().removesuffix("\r\n")


def csv_lead(cells: Sequence[str], feed: FeedFile) -> str:
    """Return fields as text to put before a row."""
    return csv_text(cells, dialect(feed)) + feed.delimiter


# --- NDJSON ---------------------------------------------------------------------------------------


def marked_line(text: str, reject_ids: str, reasons: Sequence[Any]) -> str:
    """Return a line with the marks in it. A line that is no JSON object is put into `_text` of a new object."""
    text = text.strip()
    lead = f'{{"_reject_id":{json.dumps(reject_ids)},"_reasons":{compact(reasons)}'
    own = object_in(text)
    if own is None or TEXT in own or own.keys() & set(MARKS):
        return f'{lead},"_text":{json.dumps(text)}}}'
    return lead + "," * bool(own) + text[1:].lstrip()


def unmarked_line(text: str) -> tuple[str | None, str]:
    """Return the ids of rejects, and the line without the marks."""
    if REJECT_ID not in text:
        return None, text
    own = object_in(text)
    if own is None:
        found = _ID_ELEMENT.search(text)
        return ids_of(found and found[1]), text
    answered = ids_of(own.pop(REJECT_ID, None))
    own.pop(REASONS, None)
    if isinstance(own.get(TEXT), str):
        return answered, own[TEXT] + "\n"
    return answered, (_cut(text.strip()) or compact(own)) + "\n"


def _cut(text: str) -> str | None:
    """Return a line without its marks and otherwise unchanged; None if the marks are not as they were written."""
    lead = _LEAD.match(text)
    if lead is None:
        return None
    _, end = json.JSONDecoder().raw_decode(text, lead.end())
    rest = text[end:].lstrip()
    return "{" + rest.removeprefix(",").lstrip() if rest[:1] in (",", "}") else None


def compact(found: Any) -> str:
    """Return JSON on one line, with every digit of decimals."""
    if isinstance(found, dict):
        return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{compact(v)}" for name, v in found.items()) + "}"
    if isinstance(found, list | tuple):
        return "[" + ",".join(map(compact, found)) + "]"
    if found is None or isinstance(found, bool | str):
        return json.dumps(found, ensure_ascii=False)
    return str(found)


# --- Whole files ----------------------------------------------------------------------------------


def marked_form(path: Path) -> str | None:
    """Return `csv`, `ndjson` or `json` if a file's beginning has the marks, else None. Works in any encoding."""
    try:
        return _form(_head(first_content(path)))
    except (OSError, UnreadableFile):
        return None


def _form(head: str) -> str | None:
    if REJECT_ID not in head or head.startswith(PARQUET):
        return None
    return {"{": "ndjson", "[": "json"}.get(head.lstrip()[:1], "csv")


def _head(content: Content) -> str:
    return next(_texts(content, HEAD), "")


def as_saved(content: Content, feed: FeedFile) -> FeedFile:
    """Return the CSV format of a file: the feed's, unless a spreadsheet saved the corrections in its own format.

    The characters around `_reject_id` in the header show the format, and so does a byte order mark.
    """
    try:
        head = _head(content)
        if _form(head) != "csv":
            return feed
        with content.open() as file:
            start = file.read(3)
    except (OSError, UnreadableFile):  # reported where the file is read
        return feed
    changed = {"encoding": "utf-16"} if start[:2] in _UTF16 else {"encoding": "utf-8"} if start == _UTF8 else {}
    header = next(line for line in head.splitlines() if REJECT_ID in line)
    beside = {sign for found in _BESIDE.finditer(header) for sign in found.groups() if sign}
    if feed.delimiter not in beside and len(beside) == 1:
        changed |= {"delimiter": beside.pop(), "quote": '"', "escape": ""}
    return feed.model_copy(update=changed)


def ids_in(path: Path) -> Iterator[str]:
    """Yield every text in a marked file that looks like a reject's id. Raises OSError, Unreadable."""
    left = ""
    for text in _texts(first_content(path), BLOCK):
        yield from ID.findall(left + text)
        left = text[-16:]


def _texts(content: Content, size: int) -> Iterator[str]:
    """Yield a file's text in blocks, decoded correctly as far as it is ASCII."""
    with content.open() as file:
        first = file.read(size).removeprefix(_UTF8)
        decoder = codecs.getincrementaldecoder("utf-16" if first[:2] in _UTF16 else "latin-1")("replace")
        yield decoder.decode(first)
        while block := file.read(size):
            yield decoder.decode(block)

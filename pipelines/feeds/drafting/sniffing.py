"""Look at the beginning of a text export: its encoding, the form of its rows, and how it ends."""

import codecs
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from fhir_service.interface.json_text import object_in
from pipelines.feeds.drafting.tables import ROWS, Row, WrittenForm, header_of, width_of, written_form
from pipelines.feeds.reading.headings import is_heading_of_rows
from pipelines.feeds.reading.opening import BEGINNING, is_binary, unmarked_utf_16, what_it_is
from pipelines.feeds.reading.packed import Content
from pipelines.feeds.terms.schema import position
from pipelines.feeds.terms.totals import FOOTS, is_aside, is_title, total_word
from pipelines.home.batch import UnreadableFile, reading_file

HEAD = 256 << 10


TRIED = (
    *("windows-1252", "windows-1250", "windows-1251", "windows-1253", "windows-1254", "iso-8859-2", "iso-8859-7"),
    *("cp437", "cp850", "mac_roman", "koi8-r", "shift_jis", "gb18030", "big5", "euc_kr"),
)
LETTERS = 8
OTHERS = 5
_BETWEEN = "€°–—’‘“”«»…\u00a0"


class DecodedText(NamedTuple):
    """A decoded text.

    letters: its letters beyond ASCII. others: other encodings that fit, with their letters. broken: the first line that
    is not in the encoding; 0 if all are.
    """

    encoding: str = "utf-8"
    text: str = ""
    letters: str = ""
    others: tuple[tuple[str, str], ...] = ()
    broken: int = 0


def decoded_beginning(name: str, start: bytes) -> DecodedText:
    """Return the beginning of a file as text: by its byte order mark, as UTF-8, or by the likeliest encoding.

    Raises Unreadable.
    """
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return DecodedText("utf-16", start.decode("utf-16", "replace"))
    if order := unmarked_utf_16(start[:BEGINNING]):
        return DecodedText("utf-16", start.decode(order, "replace"))
    if said := what_it_is(start):
        raise UnreadableFile(f"{name}: the file is {said}")
    if is_binary(start[:BEGINNING]):
        raise UnreadableFile(f"{name}: the file is binary; export it as CSV or NDJSON")
    try:
        return DecodedText("utf-8", codecs.getincrementaldecoder("utf-8")().decode(start).removeprefix("\ufeff"))
    except UnicodeDecodeError:
        return _mostly_utf_8(start) or _guessed(start)


def _mostly_utf_8(start: bytes) -> DecodedText | None:
    """Return the text if nearly all lines with letters beyond ASCII are UTF-8."""
    lines = [(number, line) for number, line in enumerate(start.splitlines(), 1) if not line.isascii()]
    broken = [number for number, line in lines if line.decode("utf-8", "ignore").encode() != line]
    if len(broken) > len(lines) * _FEW:
        return None
    return DecodedText("utf-8", start.decode("utf-8", "replace").removeprefix("\ufeff"), broken=broken[0])


_FEW = 0.2


def _guessed(start: bytes) -> DecodedText:
    """Return the text in the likeliest encoding, with the other encodings that give different letters."""
    texts = dict(_texts(start))
    if not texts:
        return DecodedText("latin-1", start.decode("latin-1"))
    ranked = sorted(texts, key=lambda encoding: _likeliness(texts[encoding]), reverse=True)
    best, *others = ranked
    given = {encoding: _letters(texts[encoding]) for encoding in ranked}
    differing = [other for other in others if given[other] != given[best]]
    return DecodedText(best, texts[best], given[best], tuple((other, given[other]) for other in differing[:OTHERS]))


def _texts(start: bytes) -> Iterator[tuple[str, str]]:
    for encoding in TRIED:
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(start)
        except UnicodeDecodeError:
            continue
        if not any("\x80" <= sign <= "\x9f" for sign in text):
            yield encoding, text


def _likeliness(text: str) -> float:
    """Return a score from -1 to 1.3: how well the letters beyond ASCII fit their neighbours."""
    scores = Counter(_fit(text, at) for at, sign in enumerate(text) if not sign.isascii())
    number = scores.total()
    return sum(score * times for score, times in scores.items()) / number if number else 0.0


def _fit(text: str, at: int) -> float:
    sign, around = text[at], text[max(at - 1, 0) : at] + text[at + 1 : at + 2]
    if sign in _BETWEEN:
        return 1.3 if _is_where_written(sign, text[max(at - 1, 0) : at], text[at + 1 : at + 2]) else 0.5
    if not sign.isalpha():
        return -1.0
    beside = [other for other in around if other.isalpha()]
    if not beside:
        return 0.2
    same = sum(map(partial(_goes_with, sign), beside)) / len(beside)
    common = 0.3 if sign in _COMMON else 0.0
    wrong_case = sign.isupper() and bool(text[max(at - 1, 0) : at]) and text[at - 1].islower()
    return same + common - (0.6 if wrong_case else 0.0) - (0.3 if _script(sign) == "HALFWIDTH" else 0.0)


def _is_where_written(sign: str, before: str, after: str) -> bool:
    """True for an apostrophe behind a letter, and for quotes around a word."""
    if sign in "“«":
        return after.isalnum() and not before.isalnum()
    return before.isalpha() if sign == "’" else sign in "”»" and before.isalnum() and not after.isalnum()


def _goes_with(sign: str, other: str) -> float:
    """Score two neighbouring letters: high for one script, and lower for two accented Latin letters."""
    script = _script(sign)
    if _script(other) != script:
        return 0.0
    return 1.35 if script in _SYLLABLES else 1.0 if script != "LATIN" or other.isascii() else 0.5


_SYLLABLES = ("HIRAGANA", "KATAKANA")

_COMMON = "äöüßéèêàâçñáíóúåøæëïôîûùÄÖÜÉÅØÑÇ"


def _script(sign: str) -> str:
    return "LATIN" if sign.isascii() else unicodedata.name(sign, "").split(" ")[0]


def _letters(text: str) -> str:
    """Return some of the letters beyond ASCII, each once, so that no word of a row is shown."""
    return " ".join(sorted({sign for sign in text if not sign.isascii() and sign.isprintable()})[:LETTERS])


@dataclass
class Export:
    """The beginning of an export.

    * header: the line of the header; 0 for none. header_sure: False if another line could be it.
    * names: the names of the columns.
    * trailer: the last row if it is unlike the others; it is not among the rows.
    * extras: rows of totals and lines below a table, each with its line.
    * again: lines where another table seems to begin.
    * titles: lines of titles above a repeated header. between: lines of titles above rows.
    * file_name: the name of the file with these rows, without the suffix of a compression.
    * beside: names of the other files of its archive.
    * keys: further lines of the draft.
    * second: a table of the archive that belongs to this one. on: the columns that join the two.
    """

    form: str
    decoded: DecodedText = field(default_factory=DecodedText)
    written: WrittenForm = field(default_factory=WrittenForm)
    header: int = 1
    header_sure: bool = True
    names: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    objects: list[dict[str, object]] = field(default_factory=list)
    trailer: list[str] | None = None
    extras: list[Row] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    titles: list[int] = field(default_factory=list)
    between: list[int] = field(default_factory=list)
    file_name: str = ""
    beside: list[str] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)
    second: "Export | None" = None
    on: tuple[str, str] = ("", "")

    @property
    def is_objects(self) -> bool:
        """True if the rows are objects."""
        return self.form in ("ndjson", "json")

    def name_of(self, place: int) -> str:
        """Return the name of a column in a feed file: its position if its name in the header is empty or not unique."""
        name = self.names[place]
        return name if name and self.names.count(name) == 1 and not position(name) else f"#{place + 1}"

    def column(self, place: int) -> list[str]:
        """Return the cells of a column that are not empty."""
        return [row[place].strip() for row in self.rows if place < len(row) and row[place].strip()]


def look_at_text(content: Content) -> Export:
    """Return the beginning of a text file. Raises Unreadable if it is not text."""
    name = content.name
    with reading_file(name), content.open() as file:
        start = file.read(HEAD)
    found = decoded_beginning(name, start)
    lines = found.text.splitlines(keepends=True)
    is_whole = len(start) < HEAD
    if objects := _objects(lines if is_whole else lines[:-1]):
        return Export("ndjson", found, objects=objects)
    if found.text.lstrip().startswith("{"):  # as a table, the cells of its first row would become the names of columns
        raise UnreadableFile(f"{name}: the first line is not a JSON object; correct it, or take another export")
    how = written_form(lines if is_whole else lines[:-1])
    if not how.rows:
        raise UnreadableFile(f"{name}: the file is empty")
    export = of_rows(how.rows, "csv", is_whole=is_whole)
    export.decoded, export.written = found, how
    if found.broken:
        export.keys.append(f"# line {found.broken} is not in UTF-8, as the others are: rows of such lines are rejected")
    return export


def _objects(lines: Sequence[str]) -> list[dict[str, object]]:
    found = []
    for line in islice((line for line in lines if line.strip()), ROWS):
        if (parsed := object_in(line)) is None:
            break
        found.append(parsed)
    return found


def of_rows(rows: Sequence[Row], form: str, *, is_whole: bool = False) -> Export:
    """Return an export of rows with their lines; one may be the header. is_whole: True if these are all rows.

    Columns at the end that are empty in all rows are left out: spreadsheets write hundreds of them.
    """
    last = max((place for _, cells in rows for place, cell in enumerate(cells, 1) if cell.strip()), default=1)
    rows = [(line, cells[:last]) for line, cells in rows]
    header, width = header_of(rows), width_of(rows)
    if header.place is None:
        first = next(place for place, (_, cells) in enumerate(rows) if len(cells) == width)
        export = Export(form, header=0, names=[f"#{place}" for place in range(1, width + 1)])
        body = rows[first:]
    else:
        line, names = rows[header.place]
        export = Export(form, header=line, names=[name.strip().strip("\ufeff").strip() for name in names])
        body = rows[header.place + 1 :]
    export.header_sure = header.is_sure
    body = _without_last(body, export) if is_whole and len(rows) < ROWS else list(body)
    _sort_out(body, export)
    return export


def _sort_out(body: Sequence[Row], export: Export) -> None:
    """Keep rows that are records, and note the others: totals, lines below a table, repeated headers."""
    width, title, titles = len(export.names), (0, ""), []
    for line, cells in body:
        texts = [cell.strip() for cell in cells]
        if export.header and texts == export.names:
            titles += [title] if title[0] else []
            title = 0, ""
            continue
        above, title = title, _title_so_far(title, line, texts, width)
        if above[0] and not title[0] and is_heading_of_rows([above[1]], width, is_apart=False):
            export.between.append(above[0])
        if _is_extra(texts, width):
            export.extras.append((line, texts))
        elif len(cells) == width and export.header and _is_another_header(texts, export):
            export.again.append(line)
        else:
            export.rows.append(list(cells))
    export.titles += [line for line, _ in titles]
    export.extras = [row for row in export.extras if not _begins_a_title(row[1], [text for _, text in titles])]


def _title_so_far(title: tuple[int, str], line: int, texts: Sequence[str], width: int) -> tuple[int, str]:
    """Return the last title since the last record, with its line; line 0 if there is none."""
    if len(texts) == width and not is_aside(texts, width):
        return 0, ""
    return (line, next(filter(None, texts), "")) if is_aside(texts, width) and is_title(texts) else title


def _begins_a_title(texts: Sequence[str], titles: Sequence[str]) -> bool:
    """True if a title starts like a row to leave out, so that the title would be left out too."""
    word = total_word(next(filter(None, texts), "")).lower()
    return any(title.lower().startswith(word) for title in titles)


def _is_extra(texts: Sequence[str], width: int) -> bool:
    first = next((text for text in texts if text), "").lower()
    return bool(total_word(first)) and (len(texts) != width or "" in texts)


def _is_another_header(texts: Sequence[str], export: Export) -> bool:
    """True if a row has names of the header in other places: another table begins below."""
    names = {name for name in export.names if name}
    return len(names & set(texts)) * 2 > len([text for text in texts if text]) > 1


def _without_last(body: Sequence[Row], export: Export) -> list[Row]:
    """Return the rows of a whole file, without the last row if that is a trailer."""
    first = next((cell.strip() for cell in body[-1][1] if cell.strip()), "") if body else ""
    is_foot = total_word(first).lower() in [word.strip() for word in FOOTS]
    if not is_foot and _ends_with_a_trailer([cells for _, cells in body]):
        export.trailer = [cell.strip() for cell in body[-1][1]]
        return list(body[:-1])
    return list(body)


def _ends_with_a_trailer(rows: Sequence[Sequence[str]]) -> bool:
    """True if the last row lacks the cells of several columns that every other row fills."""
    *others, last = rows if len(rows) > 3 else ([], [])
    if not others:
        return False
    width = Counter(map(len, others)).most_common(1)[0][0]
    full = [row for row in others if not _is_extra([cell.strip() for cell in row], width)]
    filled = [place for place in range(width) if all(place < len(row) and row[place].strip() for row in full)]
    return sum(place >= len(last) or not last[place].strip() for place in filled) > 1

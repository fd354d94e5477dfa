"""Look at the beginning of a text export: its encoding, the form of its rows, and how it ends."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from fhir_service.interface.json_text import object_in
from pipelines.feeds.drafting.encodings import DecodedText, decoded_beginning
from pipelines.feeds.drafting.tables import ROWS, Row, WrittenForm, header_of, width_of, written_form
from pipelines.feeds.reading.headings import is_heading_of_rows
from pipelines.feeds.reading.packed import Content
from pipelines.feeds.terms.schema import position
from pipelines.feeds.terms.totals import FOOTS, is_aside, is_title, total_word
from pipelines.home.batch import UnreadableFile, reading_file

HEAD = 256 << 10


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

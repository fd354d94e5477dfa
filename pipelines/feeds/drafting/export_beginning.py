"""Read the beginning of an export of any form, for a draft."""

import codecs
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pipelines.feeds.drafting.entries import FeedEntry, Line, as_toml
from pipelines.feeds.drafting.joined_tables import joined_of
from pipelines.feeds.drafting.sniffing import HEAD, Export, look_at_text, of_rows
from pipelines.feeds.drafting.tables import ROWS
from pipelines.feeds.files.catalog import form_by_name
from pipelines.feeds.reading.objects import ArrayReader
from pipelines.feeds.reading.packed import Content, contents
from pipelines.feeds.reading.parquet import ParquetReader
from pipelines.feeds.reading.workbook import WorkbookReader
from pipelines.feeds.reading.workbook_parts import Workbook
from pipelines.feeds.terms.schema import FeedFile
from pipelines.home.batch import UnreadableFile


def look_at(path: Path) -> Export:
    """Return the beginning of a file. Raises Unreadable if its form is not supported."""
    look = {"xlsx": _look_at_workbook, "parquet": _look_at_parquet}.get(form_by_name(path.name))
    if look:
        export = look(path)
        export.file_name = path.name
        return export
    tables = _tables(_unlike(path))
    export = joined_of(tables) if len(tables) == _JOINED else tables[0]
    export.beside = [Path(table.file_name).name for table in tables if table is not export]
    export.keys += [*_records_inside(export), *([] if export.second else _others_inside(export, tables))]
    return export


_JOINED = 2


def _unlike(path: Path) -> list[Content]:
    """Return the file, or an archive's files: one of those whose names differ only in digits."""
    found: dict[str, Content] = {}
    for content in contents(path, path.name).files:
        found.setdefault(re.sub(r"[\d_\-]+", "", Path(content.file_name).name).lower(), content)
    return list(found.values())


def _tables(parts: Sequence[Content]) -> list[Export]:
    """Return the beginnings of files, texts such as a readme last. Leave out files that are no tables, unless all are.

    Raises Unreadable.
    """
    found, wrong = list[Export](), list[UnreadableFile]()
    for content in sorted(parts, key=lambda each: each.file_name.lower().endswith((".txt", ".md"))):
        try:
            found.append(_look_at_content(content))
        except UnreadableFile as error:
            wrong.append(error)
    if not found:
        raise wrong[0]
    return found


def _look_at_content(content: Content) -> Export:
    export = _look_at_array(content) if _begins_an_array(content) else look_at_text(content)
    export.file_name = content.file_name
    return export


def _others_inside(export: Export, tables: Sequence[Export]) -> Iterator[str]:
    """Yield the decisions to ask for if an archive has other files besides the file that was read."""
    looked_at = as_toml(Path(export.file_name).name)
    alike = {Path(table.file_name).name for table in tables if table.names and table.names == export.names}
    if same := ", ".join(map(as_toml, sorted(alike.intersection(export.beside))[:_NAMED])):
        yield (
            f"# DECIDE: drafted from {looked_at}; these have the same columns: {same}. If they hold such records too,"
            " add them to files"
        )
    if others := ", ".join(map(as_toml, sorted(set(export.beside) - alike)[:_NAMED])):
        yield (
            f"# DECIDE: drafted from {looked_at}; the archive also has {others}. If they belong together, draft"
            " a feed from each, and join the second to the first by [join]"
        )


_NAMED = 5


def _records_inside(export: Export) -> Iterator[str]:
    """Yield the decision to ask for if a file is one object: the records may be a list in it."""
    only = export.objects[0] if len(export.objects) == 1 else {}
    if only.get("resourceType", "Bundle") != "Bundle":
        return
    for name, found in only.items():
        if isinstance(found, list) and len(found) > 1 and all(isinstance(each, dict) for each in found):
            yield (
                f"# DECIDE: the file is one JSON object that holds a list {as_toml(name)} of {len(found):,}"
                " objects. If these are"
                " the records, write each on a line of its own and draft again"
            )


def _feed(**keys: Any) -> FeedFile:
    """Return a feed that takes every row as it is."""
    return FeedFile(name="draft", source="draft", kind="payments", files=("*",), **keys)


def _look_at_workbook(path: Path) -> Export:
    book = Workbook(path, path.name)
    shown = [sheet.name for sheet in book.sheets if sheet.is_shown]
    keys: dict[str, Any] = {"sheet": shown[0]} if len(shown) > 1 else {}
    said = list[Line]()
    if keys:
        said.append(FeedEntry("sheet", as_toml(shown[0]), f"it also has {', '.join(map(as_toml, shown[1:]))}"))
    if book.is_1904:
        keys["dates_since"] = 1904
        said.append(FeedEntry("dates_since", "1904", "the dates count from 1904; are they right in the workbook?"))
    with WorkbookReader(path, path.name, _feed(header=0, **keys)) as reader:
        found = [(line, _without_title(cells)) for line, cells, _ in islice(reader.rows(), ROWS)]
        if not found:
            raise UnreadableFile(f"{path.name}: the sheet is empty")
        export = of_rows(found, "xlsx", is_whole=True)
        reader.check_merged(export.header)
        said += [f"# {each}" for each in reader.said()]
    export.keys = said
    return export


def _without_title(cells: list[str]) -> list[str]:
    """Return a row. All rows of a sheet have its full width, so the empty cells beside a title are removed."""
    return cells if sum(map(bool, cells)) > 1 else [cell for cell in cells if cell]


def _look_at_parquet(path: Path) -> Export:
    with ParquetReader(path, path.name, _feed()) as reader:
        rows = [row.cells for row in islice(reader.rows(), ROWS)]
        said = [f"# {name}: lists or objects, which no feed can name" for name in reader.nested]
        return Export("parquet", names=list(reader.header or ()), rows=rows, keys=said)


def _begins_an_array(content: Content) -> bool:
    with content.open() as file:
        return file.read(HEAD).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")


def _look_at_array(content: Content) -> Export:
    with ArrayReader(content, _feed()) as reader:
        chunk = next(reader.chunks())
        for row in () if chunk.good else chunk.rows:
            raise UnreadableFile(f"{content.file_name}: object {row.line}: {row.fault and row.fault.message}")
        return Export("json", objects=[row.cells for row in chunk.good[:ROWS]])

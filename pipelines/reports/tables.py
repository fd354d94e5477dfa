"""The declarations of the published tables, read from `sql/reports/*.sql`: one SELECT each, under a header.

Comments, keys and references are written in the header alone. The build, its checks and `docs/analysts.md` read it.
`python -m pipelines.reports.tables docs/analysts.md` updates the data dictionary.
"""

import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

_HEADER = re.compile(r"-- (table|inputs|key|references|column)\b:? *(.*)")
DICTIONARY_STARTS = (
    "<!-- From here on: written from sql/reports by `python -m pipelines.reports.tables docs/analysts.md`. -->"
)


class BrokenTable(Exception):
    """A file under `sql/reports` cannot be used: one sentence that names the file."""


class ColumnOf(NamedTuple):
    """A column as the header declares it. `type`: DuckDB's name of the type, without blanks."""

    name: str
    type: str
    comment: str


@dataclass(frozen=True)
class ReportTable:
    """A published table. `inputs`: the tables that it reads. `references`: pairs of column and table."""

    name: str
    comment: str
    inputs: tuple[str, ...]
    key: tuple[str, ...]
    references: tuple[tuple[str, str], ...]
    columns: tuple[ColumnOf, ...]
    select: str


def sql_folder() -> Path:
    """Return the folder of the SQL: inside the package if installed, else at the root of the repository."""
    inside = Path(__file__).parent / "sql"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "sql" / "reports"


def report_tables(folder: Path | None = None) -> list[ReportTable]:
    """Return all tables, each after the ones it reads. Raises `BrokenTable`."""
    return _in_order([_parse(path) for path in _files(folder)])


def readable_tables(folder: Path | None = None) -> list[ReportTable]:
    """Return all tables whose file can be used, each after the ones it reads; none if they read each other in a circle.

    `report_tables` raises what is wrong with the others.
    """
    found = []
    for path in _files(folder):
        with suppress(BrokenTable):
            found.append(_parse(path))
    try:
        return _in_order(found)
    except BrokenTable:
        return []


def _files(folder: Path | None) -> list[Path]:
    return sorted((folder or sql_folder()).glob("*.sql"))


def _in_order(found: list[ReportTable]) -> list[ReportTable]:
    tables = {table.name: table for table in found}
    order = TopologicalSorter({t.name: [i for i in t.inputs if i in tables] for t in found})
    try:
        return [tables[name] for name in order.static_order()]
    except CycleError as error:
        raise BrokenTable(
            f"tables that read each other: {', '.join(f'{name}.sql' for name in error.args[1])}"
        ) from None


def staging_selects() -> dict[str, str]:
    """Return the SELECTs that make inputs of the tables from the relations `sweep`, `sent` and `ready`, by name."""
    return {path.stem: path.read_text() for path in sorted((sql_folder() / "staging").glob("*.sql"))}


def _parse(path: Path) -> ReportTable:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenTable(f"{path.name} cannot be read ({type(error).__name__})") from None
    found: dict[str, list[str]] = {}
    for line in _header(text):
        match = _HEADER.fullmatch(line)
        if match is None:
            raise BrokenTable(f"{path.name}: not a line of a header: {line}")
        found.setdefault(match[1], []).append(match[2])
    for part in ("table", "column"):
        if part not in found:
            raise BrokenTable(f"{path.name} has no header line `-- {part}`")
    name, comment = _split(found["table"][0], ": ")
    if name != path.stem:
        raise BrokenTable(f"{path.name} declares the table {name}")
    return ReportTable(
        name=name,
        comment=comment,
        inputs=_names(found.get("inputs")),
        key=_names(found.get("key")),
        references=tuple(_split(each, " ") for line in found.get("references", ()) for each in line.split(", ")),
        columns=tuple(_column(line) for line in found["column"]),
        select=text,
    )


def _header(text: str) -> list[str]:
    """Return the comment lines at the top. An indented line continues the one before it."""
    lines: list[str] = []
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        if line.startswith("--   ") and lines:
            lines[-1] += " " + line[2:].strip()
        else:
            lines.append(line)
    return lines


def _column(line: str) -> ColumnOf:
    declared, comment = _split(line, ": ")
    return ColumnOf(*_split(declared, " "), comment)


def _split(text: str, at: str) -> tuple[str, str]:
    before, _, after = text.partition(at)
    return before, after


def _names(lines: list[str] | None) -> tuple[str, ...]:
    return tuple(lines[0].split(", ")) if lines else ()


def dictionary(tables: list[ReportTable]) -> str:
    """Return the data dictionary in Markdown, tables by name."""
    return "\n".join(_section(table) for table in sorted(tables, key=lambda each: each.name))


def _section(table: ReportTable) -> str:
    rows = "\n".join(f"| `{c.name}` | {c.type} | {c.comment.replace('|', '&#124;')} |" for c in table.columns)
    key = f"\nKey: {', '.join(f'`{name}`' for name in table.key)}.\n" if table.key else ""
    return f"### {table.name}\n\n{table.comment}\n{key}\n| Column | Type | What |\n|---|---|---|\n{rows}\n"


def with_dictionary(document: str, tables: list[ReportTable]) -> str:
    """Return the document with the present dictionary in place of everything after its marker."""
    return f"{document.partition(DICTIONARY_STARTS)[0]}{DICTIONARY_STARTS}\n\n{dictionary(tables)}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_dictionary(page.read_text(), report_tables()))

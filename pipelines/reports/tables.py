"""The declarations of the published tables: SQL with a header, or a ViewDefinition of SQL on FHIR.

Each file of `sql/reports/*.sql` has one SELECT. Comments, keys and references are written only in its header. A view in
`sql/reports/views` or `<home>/views` declares them by descriptions and tags. The build, its checks and
`docs/analysts.md` read these declarations.

`python -m pipelines.reports.tables docs/analysts.md` updates the data dictionary.
"""

import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from fhir_service.paths import is_folder, matching
from pipelines.reports.views.compile import declared_type
from pipelines.reports.views.definition import FILES_KEPT, SUFFIX, BadView, Column, View, columns_of, read_view
from pipelines.reports.views.fhirpath import BadPath

_HEADER = re.compile(r"-- (table|inputs|key|references|column)\b:? *(.*)")
DICTIONARY_STARTS = (
    "<!-- From here on: written from sql/reports by `python -m pipelines.reports.tables docs/analysts.md`. -->"
)


VIEWED = {
    "DiagnosticReport": "sweep",
    "Observation": "read_results",
    "PaymentNotice": "read_payments",
    "Questionnaire": "read_questionnaires",
    "QuestionnaireResponse": "read_responses",
    "Task": "read_tasks",
}
"""The resource types that views are published of, with the relation of each: the resources read from the target."""
KEY, REFERENCES = "chartferry/key", "chartferry/references"
"""The tags of a view's columns: part of the key (`true`); the published table in which each value is."""
KIND = "chartferry/kind"
"""The tag of a view's column that gives its kind; a column without it is internal."""
FREE = "chartferry/free-text"
"""The tag (`true`) of a view's column that is empty unless the home publishes free text."""
KEPT = ("code", "words", "value")
INTERNAL = "internal"
KINDS = {
    "patient": "id of the patient that the row tells of",
    "key": "other id of a record or a person",
    "time": "day or moment in the life of the row's patient",
    "hours": "length of time in hours; of an aggregate, as a figure is",
    "quasi": "trait of a patient that others may know",
    "code": "code, state or number from a list",
    "term": "code or unit as a target gives it, who may write a text there; with the column of its system, if there is "
    "one: `term of code_system`",
    "words": "words that are no patient data",
    "value": "figure; of an aggregate with the column of the number of patients that it rests on: `value of patients`",
    "text": "text of people, or a name",
    INTERNAL: "where it came from and when the import worked on it",
    "cell": "of an aggregate: one of the values that its row is about",
    "count": "of an aggregate: number of people or records in the row",
    "part": "of an aggregate: number of those in another column, a count or a part, which it names: `part of results`",
    "rate": "of an aggregate: figure that a part can be computed from",
}
"""The meaning of each kind of column. `pseudonymous.py` says how a pseudonymous publication treats each kind."""
RESTING = ("hours", "value")
"""Kinds of an aggregate's figures, such as a median, that may rest on a few patients."""
TERM = "term"
OF_STAGING = {
    "charges_read",
    "checked_form",
    "hash_key",
    "known_address",
    "known_form",
    "known_patient",
    "named_patient",
}
"""Relations that staging makes for its own use."""
_TABLE = re.compile(r"[a-z][a-z0-9_]{0,62}")


class BrokenTable(Exception):
    """A file of the published tables cannot be used. The message is one sentence that names the file."""


class ColumnOf(NamedTuple):
    """A column as the header declares it.

    * type: DuckDB's name of the type, without blanks.
    * kind: one of `KINDS`.
    * whole: the column that the kind names: the whole of a part, the number that a figure rests on, or a term's system.
    """

    name: str
    type: str
    comment: str
    kind: str = INTERNAL
    whole: str = ""

    @property
    def declared(self) -> str:
        """Return the kind as it is declared."""
        return f"{self.kind} of {self.whole}" if self.whole else self.kind


@dataclass(frozen=True)
class ReportTable:
    """A published table.

    * inputs: the tables that it reads.
    * references: pairs of column and table.
    * select, file: the text of its file, and the file's name.
    * view: the view that the text declares, if any.
    * is_ours: True if the view comes with the project.
    * as_of: a sentence on when the target's resources in it were read, unless each publication reads them.
    * remarks: sentences on its present rows that readers must know.
    """

    name: str
    comment: str
    inputs: tuple[str, ...]
    key: tuple[str, ...]
    references: tuple[tuple[str, str], ...]
    columns: tuple[ColumnOf, ...]
    select: str
    file: str
    view: View | None = None
    is_ours: bool = False
    as_of: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def patient(self) -> str:
        """Return the name of the column of the row's patient; empty if there is none."""
        return next((column.name for column in self.columns if column.kind == "patient"), "")

    @property
    def described(self) -> str:
        """Return the comment, followed by the sentence on its reading and the remarks."""
        return " ".join(filter(None, [self.comment, self.as_of, *self.remarks]))


def sql_folder() -> Path:
    """Return the folder of the SQL: inside the package if installed, else at the root of the repository."""
    inside = Path(__file__).parent / "sql"
    return inside if is_folder(inside) else Path(__file__).parents[2] / "sql" / "reports"


def report_tables(home: Path | None = None) -> list[ReportTable]:
    """Return all tables, including the home's views, each after the tables that it reads. Raises `BrokenTable`."""
    return _in_order([_parse(path) for path in _files(home)])


def readable_tables(home: Path | None = None) -> list[ReportTable]:
    """Return all tables whose file can be used, each after those that it reads; none if they form a circle.

    `report_tables` raises the faults of the other files.
    """
    found: dict[str, ReportTable] = {}
    try:
        files = _files(home)
    except BrokenTable:
        files = _files(None)
    for path in files:
        with suppress(BrokenTable):
            table = _parse(path)
            found.setdefault(table.name, table)
    try:
        return _in_order(list(found.values()))
    except BrokenTable:
        return []


def why_not_published(home: Path, path: Path) -> str:
    """Return why a view is not published; empty if it is published, or if it is not in the home's views."""
    if path.parent.resolve() != (home / "views").resolve():
        return ""
    try:
        name = _parse(path).name
    except BrokenTable as error:
        return str(error)
    first = next((table.file for table in readable_tables(home) if table.name == name), path.name)
    return "" if first == path.name else f"{path.name}: the table `{name}` is declared by {first} already"


def _files(home: Path | None) -> list[Path]:
    views = [sql_folder() / "views", *([home / "views"] if home else [])]
    return sorted(matching(sql_folder(), "*.sql")) + [path for folder in views for path in _views(folder)]


def _views(folder: Path) -> list[Path]:
    """Return the views in a folder; none if there is no folder. Raises `BrokenTable` if it cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BrokenTable(f"{folder} cannot be read: {error.strerror}") from None


def _in_order(found: list[ReportTable]) -> list[ReportTable]:
    tables: dict[str, ReportTable] = {}
    for table in found:
        if table.name in tables:
            raise BrokenTable(
                f"{table.file}: the table `{table.name}` is declared by {tables[table.name].file} already"
            )
        tables[table.name] = table
    order = TopologicalSorter({t.name: [i for i in t.inputs if i in tables] for t in found})
    try:
        return [tables[name] for name in order.static_order()]
    except CycleError as error:
        raise BrokenTable(
            f"tables that read each other: {', '.join(tables[name].file for name in error.args[1])}"
        ) from None


def staging_selects() -> dict[str, str]:
    """Return, by name, the SELECTs that make the tables' inputs from the relations `sweep`, `sent` and `ready`."""
    return {path.stem: path.read_text() for path in matching(sql_folder() / "staging", "*.sql")}


@cache
def _staged() -> frozenset[str]:
    """Return the names of the relations that tables are made from and that are not published tables."""
    ours = [_of_sql(path) for path in matching(sql_folder(), "*.sql")]
    read = {name for table in ours for name in table.inputs}
    return frozenset(read - {table.name for table in ours} | set(staging_selects()) | set(VIEWED.values()) | OF_STAGING)


def _parse(path: Path) -> ReportTable:
    table = _of_view(path) if path.name.endswith(SUFFIX) else _of_sql(path)
    figures = set[str]()
    for column in table.columns:
        if column.kind == "part" and column.whole not in figures:
            raise BrokenTable(
                f"{table.file}: the column {column.name} is declared as `{column.declared}`: "
                "it has to be `part of` a count, or of a part, that is declared before it"
            )
        if column.kind in ("count", "part"):
            figures.add(column.name)
        needed = "VARCHAR" if column.kind == TERM else "BIGINT"
        if column.kind != "part" and column.whole and (column.whole, needed) not in {c[:2] for c in table.columns}:
            raise BrokenTable(
                f"{table.file}: the column {column.name} is declared as `{column.declared}`: "
                f"there is no column {column.whole} of the type {needed}"
            )
    return table


def _kind_of(declared: str) -> tuple[str, str] | None:
    """Return a declared kind, and the column that it names; None if there is no such kind."""
    kind, _, whole = declared.partition(" of ")
    return (kind, whole) if kind in KINDS and (kind in ("part", TERM, *RESTING) or not whole) else None


def _of_view(path: Path) -> ReportTable:
    try:
        view, text = read_view(path), path.read_text(encoding="utf-8")
    except BadView as error:
        raise BrokenTable(str(error)) from None
    except OSError as error:
        raise BrokenTable(f"{path.name} cannot be read ({type(error).__name__})") from None
    if view.resource not in VIEWED:
        raise BrokenTable(
            f"{path.name}: resource: views are published of {', '.join(VIEWED)}; for others use `chartferry views run`"
        )
    name = path.name.removesuffix(SUFFIX)
    if not _TABLE.fullmatch(name) or view.name != name:
        raise BrokenTable(f"{path.name}: name: must be that of the file, in lower-case letters, digits and `_`")
    if name in _staged():
        raise BrokenTable(f"{path.name}: name: tables are made from something of the name `{name}`; choose another")
    columns = columns_of(view.select)
    return ReportTable(
        name=name,
        comment=view.description or f"Rows of {view.resource}, as {path.name} declares them.",
        inputs=(VIEWED[view.resource],),
        key=tuple(column.name for column in columns if column.tags.get(KEY) == "true"),
        references=tuple((column.name, column.tags[REFERENCES]) for column in columns if REFERENCES in column.tags),
        columns=tuple(_of_column(path, column) for column in columns),
        select=text,
        file=path.name,
        view=view,
        is_ours=path.is_relative_to(sql_folder()),
    )


def _of_column(path: Path, column: Column) -> ColumnOf:
    try:
        kind = declared_type(column)
    except BadPath as error:
        raise BrokenTable(f"{path.name}: {column.place}: {error}") from None
    if kind is None:
        raise BrokenTable(f"{path.name}: {column.place}: a published column declares its `type`")
    if not _TABLE.fullmatch(column.tags.get(REFERENCES, column.name.lower())):
        raise BrokenTable(f"{path.name}: {column.place}.tag: {REFERENCES} must be the name of a published table")
    if FREE in column.tags and (column.tags[FREE] != "true" or kind != "VARCHAR"):
        raise BrokenTable(f"{path.name}: {column.place}.tag: {FREE} is `true`, for a column of one text")
    of = _kind_of(column.tags.get(KIND, INTERNAL))
    if of is None:
        raise BrokenTable(f"{path.name}: {column.place}.tag: {KIND} must be one of {', '.join(KINDS)}")
    return ColumnOf(column.name, kind, column.description or f"The value of `{column.path.text}`.", *of)


def _of_sql(path: Path) -> ReportTable:
    try:
        return _of_text(path, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenTable(f"{path.name} cannot be read ({type(error).__name__})") from None


@lru_cache(maxsize=FILES_KEPT)
def _of_text(path: Path, text: str) -> ReportTable:
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
        columns=tuple(_column(path, line) for line in found["column"]),
        select=text,
        file=path.name,
    )


def _header(text: str) -> list[str]:
    """Return the comment lines at the top. An indented line continues the previous line."""
    lines: list[str] = []
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        if line.startswith("--   ") and lines:
            lines[-1] += " " + line[2:].strip()
        else:
            lines.append(line)
    return lines


def _column(path: Path, line: str) -> ColumnOf:
    """Return the column that a line declares: `name TYPE kind: comment`."""
    before, comment = _split(line, ": ")
    name, rest = _split(before, " ")
    kind, declared = _split(rest, " ")
    of = _kind_of(declared or INTERNAL)
    if of is None:
        raise BrokenTable(f"{path.name}: the column {name} has an unknown kind; possible: {', '.join(KINDS)}")
    return ColumnOf(name, kind, comment, *of)


def _split(text: str, at: str) -> tuple[str, str]:
    before, _, after = text.partition(at)
    return before, after


def _names(lines: list[str] | None) -> tuple[str, ...]:
    return tuple(lines[0].split(", ")) if lines else ()


def dictionary(tables: list[ReportTable]) -> str:
    """Return the data dictionary in Markdown, tables by name."""
    return "\n".join(_section(table) for table in sorted(tables, key=lambda each: each.name))


def _section(table: ReportTable) -> str:
    rows = "\n".join(
        f"| `{c.name}` | {c.type} | {c.declared} | {c.comment.replace('|', '&#124;')} |" for c in table.columns
    )
    key = f"\nKey: {', '.join(f'`{name}`' for name in table.key)}.\n" if table.key else ""
    return f"### {table.name}\n\n{table.comment}\n{key}\n| Column | Type | Kind | What |\n|---|---|---|---|\n{rows}\n"


def with_dictionary(document: str, tables: list[ReportTable]) -> str:
    """Return the document with the present dictionary in place of everything after its marker."""
    return f"{document.partition(DICTIONARY_STARTS)[0]}{DICTIONARY_STARTS}\n\n{dictionary(tables)}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_dictionary(page.read_text(), report_tables()))

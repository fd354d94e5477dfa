"""Build one published table from its declaration: its rows, comments, Parquet file and error message."""

import re
from collections.abc import Collection
from pathlib import Path

import duckdb

from pipelines.home import disk
from pipelines.reports.tables import FREE, VIEWED, BrokenTable, ReportTable
from pipelines.reports.views.compile import compile_view
from pipelines.reports.views.definition import BadView, columns_of
from pipelines.reports.views.operators import told_by
from pipelines.reports.views.values import quoted

FAULTS_OF_THE_TEXT = (duckdb.ParserException, duckdb.CatalogException, duckdb.BinderException)
"""Errors whose text is about the SQL and not about the rows, and so holds no patient data."""


def filled_of(db: duckdb.DuckDBPyConnection) -> set[str]:
    """Return the relations of `VIEWED` that hold a resource that is at the target."""
    held = (f"EXISTS (FROM {relation} WHERE gone_at IS NULL)" for relation in VIEWED.values())
    [found] = db.execute(f"SELECT {', '.join(held)}").fetchall()
    return {relation for relation, is_filled in zip(VIEWED.values(), found, strict=True) if is_filled}


def make(db: duckdb.DuckDBPyConnection, table: ReportTable, filled: Collection[str]) -> int:
    """Build the table; return the number of its rows.

    filled: the relations that hold resources. One of our views over an empty relation is only declared, and its query
    is not run. A view of the home is always run, since only that shows that DuckDB accepts it. Raises `BrokenTable`
    with the file. Line and reason are added only if they hold no data.
    """
    try:
        select = _select(table)
        is_bare = table.view is not None and table.is_ours and VIEWED[table.view.resource] not in filled
        made = db.execute(f'CREATE TABLE main."{table.name}" {_declared(table) if is_bare else f"AS {select}"}')
        rows = sum(number for (number,) in made.fetchall())  # a declared table returns no count
    except BadView as error:
        raise BrokenTable(str(error)) from None
    except FAULTS_OF_THE_TEXT as error:
        line = re.search(r"^LINE (\d+):", str(error), re.MULTILINE)
        place = f" line {line[1]}" if line and table.view is None else ""
        raise BrokenTable(f"{table.file}{place}: {str(error).splitlines()[0]}") from None
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        if told := told_by(error):
            raise BrokenTable(told) from None
        why = disk.FULL if disk.is_full(error) else f"{table.file} could not be built ({type(error).__name__})"
        raise BrokenTable(why) from None
    given = _columns(db, table.name)
    if given != [(column.name, column.type) for column in table.columns]:
        told = ", ".join(" ".join(column) for column in given)
        raise BrokenTable(f"{table.file} declares other columns than it gives: {told}")
    return int(rows)


def _select(table: ReportTable) -> str:
    if table.view is None:
        return table.select
    bodies = f"(SELECT body FROM {VIEWED[table.view.resource]} WHERE gone_at IS NULL)"
    free = [f'free_text("{each.name}") AS "{each.name}"' for each in columns_of(table.view.select) if FREE in each.tags]
    taken = f"* REPLACE ({', '.join(free)})" if free else "*"
    return f"SELECT {taken} FROM (\n{compile_view(table.view, bodies, is_alone=True).sql}\n) ORDER BY ALL"


def _declared(table: ReportTable) -> str:
    columns = (f'"{column.name}" {column.type}' for column in table.columns)
    return f"({', '.join(columns)})"


def _columns(db: duckdb.DuckDBPyConnection, table: str) -> list[tuple[str, str]]:
    """Return the names and types of the table's columns, spelled as in the headers of SQL files."""
    found = db.table(f'main."{table}"')
    types = (str(kind).replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ") for kind in found.types)
    return list(zip(found.columns, types, strict=True))


def comment(db: duckdb.DuckDBPyConnection, table: ReportTable) -> None:
    said = [f'COMMENT ON TABLE main."{table.name}" IS {quoted(table.described)}']
    said += [f'COMMENT ON COLUMN main."{table.name}"."{each.name}" IS {quoted(each.comment)}' for each in table.columns]
    db.execute("; ".join(said))  # one statement: separate ones take a tenth of the time of a small publication


def write_parquet(db: duckdb.DuckDBPyConnection, table: ReportTable, path: Path) -> int:
    """Write a table as Parquet; return the number of its rows.

    The file's metadata holds the table's comments: `comment`, and `comment.<column>`.
    """
    comments = {"comment": table.described} | {f"comment.{column.name}": column.comment for column in table.columns}
    said = ", ".join(f"{quoted(name)}: {quoted(text)}" for name, text in comments.items())
    options = f"FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{said}}}"
    [[rows]] = db.execute(f'COPY main."{table.name}" TO {quoted(str(path))} ({options})').fetchall()
    return int(rows)

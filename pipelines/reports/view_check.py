"""The check of one ViewDefinition: the columns that it gives, and what keeps one of a home from being published."""

from pathlib import Path

from pipelines.reports.tables import why_not_published
from pipelines.reports.views.compile import compile_view
from pipelines.reports.views.definition import columns_of, read_view


def check_view(file: Path, with_select: bool) -> list[str]:
    """Return the lines that tell a view's columns, and its SELECT if that is asked for. Raises `BadView`."""
    view = read_view(file)
    compiled = compile_view(view, "resource")
    lines = [f"{file.name}: of {view.resource}, {len(compiled.columns)} columns"]
    for (name, kind), column in zip(compiled.columns, columns_of(view.select), strict=True):
        lines.append(f"  {name} {kind}: {column.description or column.path.text}")
    return [*lines, *(compiled.sql.splitlines() if with_select else [])]


def held_up_by(file: Path, home: Path) -> str:
    """Return why publications would stop at a view; empty if they would not, or if it is none of the home's."""
    return why_not_published(home, file) if file.parent.resolve() == (home / "views").resolve() else ""

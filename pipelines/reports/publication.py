"""A finished publication, and the error raised when nothing was published."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from pipelines.home import disk
from pipelines.home.exits import ExplainedError
from pipelines.reports.tables import ReportTable


class PublicationError(ExplainedError):
    """The tables could not be built, or failed a check, so nothing was published. The message holds no data.

    by_table: the statements about single tables that are false.
    """

    def __init__(self, message: str, by_table: Mapping[str, Sequence[str]] | None = None) -> None:
        super().__init__(message)
        self.by_table = {name: list(untrue) for name, untrue in (by_table or {}).items() if untrue}


class OutOfMemory(PublicationError):
    """The tables could not be built in the available memory."""


@dataclass(frozen=True)
class Publication:
    """A finished publication: its file, its page, its time (UTC), and the number of rows of every table.

    remarks: sentences that readers of the tables must know. The page shows them too.
    """

    path: Path
    page: Path
    published_at: datetime
    target: str
    rows: dict[str, int]
    remarks: Sequence[str] = ()


def said_at(moment: datetime) -> str:
    """Return a moment in the form used in sentences to readers of the tables."""
    return f"{moment.astimezone(UTC):%d %B %Y, %H:%M UTC}"


def error_sentence(error: duckdb.Error, folder: Path) -> str:
    """Return a sentence about an error whose text may hold values."""
    if disk.is_full(error):
        return disk.FULL
    if "permission denied" in str(error).lower():
        return f"{folder}: this user may not write there"
    return f"the tables could not be built ({type(error).__name__})"


def told_once(tables: Sequence[ReportTable]) -> list[str]:
    """Return each remark on the tables once, after the names of its tables."""
    names: dict[str, list[str]] = {}
    for table in tables:
        for remark in table.remarks:
            names.setdefault(remark, []).append(table.name)
    return [f"{', '.join(of)}: {remark}" for remark, of in names.items()]

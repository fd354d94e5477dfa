"""The rows of published tables, read from the Parquet files, and calculations on rows in plain Python."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

Row = dict[str, Any]
Answer = list[tuple[Any, ...]]


class Tables:
    """The rows of published tables, as their Parquet files hold them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept: dict[str, list[Row]] = {}

    def __getitem__(self, name: str) -> list[Row]:
        if name not in self.kept:
            self.kept[name] = pq.read_table(self.folder / f"{name}.parquet").to_pylist()
        return self.kept[name]

    def by(self, name: str, *keys: str) -> dict[Any, Row]:
        """Return the rows of a table by its key."""
        return {tuple(row[key] for key in keys) if len(keys) > 1 else row[keys[0]]: row for row in self[name]}


def month(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def first(day: date) -> date:
    return day.replace(day=1)


def percentile(values: Iterable[float], share: float) -> float:
    """Return a percentile of the values, interpolated between neighbours."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    return ordered[low] + (place - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def percent(part: float, whole: float) -> float:
    return round(100 * part / whole + 1e-9, 1)


def groups(rows: Iterable[Row], *keys: str | Callable[[Row], Any]) -> dict[tuple[Any, ...], list[Row]]:
    """Return the rows grouped by keys, which are columns or functions."""
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(key(row) if callable(key) else row[key] for key in keys)].append(row)
    return found


def right(t: Tables) -> list[Row]:
    return [row for row in t["diagnostic_report"] if row["status"] != "entered-in-error"]


def timed(t: Tables) -> list[Row]:
    return [row for row in right(t) if row["turnaround_hours"] is not None and row["turnaround_hours"] >= 0]


def created(t: Tables) -> list[Row]:
    return [row for row in t["payment"] if row["fate"] == "created"]


def least(rows: Iterable[Row], column: str) -> Any:
    """Return the alphabetically first text of a column; None if there is no text."""
    return min((row[column] for row in rows if row[column] is not None), default=None)


def total(rows: Iterable[Row], column: str = "amount") -> Any:
    return sum((row[column] for row in rows), Decimal(0))

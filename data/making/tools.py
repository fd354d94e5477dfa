"""What all generators share: repeatable chance, exact numbers in JSON, CSV cells, files as lists of planted records."""

import gzip
import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar, cast

T = TypeVar("T")
Json = dict[str, Any]


class Dice:
    """Chance that falls the same way everywhere: only `random()`, whose sequence Python promises to keep."""

    def __init__(self, name: str) -> None:
        self._random = random.Random(f"chartferry samples {name}")

    def below(self, bound: int) -> int:
        return int(self._random.random() * bound)

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def some(self, choices: Sequence[T], count: int) -> list[T]:
        """Different ones, in random order."""
        left = list(choices)
        return [left.pop(self.below(len(left))) for _ in range(min(count, len(left)))]

    def day(self, first: date, last: date) -> date:
        return first + timedelta(days=self.below((last - first).days + 1))

    def minute(self, day: date) -> datetime:
        """A time of the working day, in UTC."""
        return datetime(day.year, day.month, day.day, self.between(8, 17), self.below(60), self.below(60), tzinfo=UTC)


# --- Writing --------------------------------------------------------------------------------------

_NUMBER = re.compile(r'"\\u0000(-?[0-9.]+)\\u0000"')


def number(text: object) -> str:
    """A number that `dump` writes digit for digit."""
    return f"\0{text}\0"


def dollars(cents: int) -> str:
    """`1234` as `12.34`."""
    return f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02d}"


def dump(value: Any) -> str:
    return _NUMBER.sub(r"\1", json.dumps(value, ensure_ascii=False))


def ndjson(resources: Iterable[Json]) -> str:
    return "".join(f"{dump(resource)}\n" for resource in resources)


def csv_row(cells: Iterable[str]) -> str:
    return ",".join(_cell(cell) for cell in cells)


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search('[",\r\n]', text) or text != text.strip() else text


def write(path: Path, text: str) -> None:
    """Writes a file. A `.gz` that holds the content already stays as it is: packers differ in their bytes."""
    data = text.encode("utf-8")
    if path.suffix == ".gz":
        if path.exists() and gzip.decompress(path.read_bytes()) == data:
            return
        packed = BytesIO()
        with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=9, mtime=0) as file:
            file.write(data)
        data = packed.getvalue()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


# --- Planted records ------------------------------------------------------------------------------

ACCEPTED = ("created", "unchanged", "skipped", "refused")
REJECTED = ("parse", "map", "rule")


@dataclass
class Record:
    """A record of an inbox file with what will become of it.

    rows: its rows, by column; a row that no writer would write is a string, the whole line. fate: one of `ACCEPTED`, or
    the stage of `REJECTED` that rejects it. why: the dirt, None for an ordinary record. cents: the amount of a payment.
    apart: its last row stands at the end of the file.
    """

    rows: list[Json | str]
    fate: str = "created"
    why: str | None = None
    cents: int = 0
    apart: bool = False

    @property
    def head(self) -> Json:
        """The first row."""
        return cast("Json", self.rows[0])

    @property
    def row(self) -> Json:
        """The row of a record that has one row."""
        (row,) = self.rows
        return cast("Json", row)


@dataclass
class InboxFile:
    """A file of the inbox. columns: of a CSV; empty for NDJSON. control: whether a control file comes with it."""

    name: str
    feed: str
    columns: Sequence[str]
    records: list[Record]
    line_end: str = "\n"
    bom: bool = False
    blank_lines: int = 0
    control: bool = False
    amounts: bool = False

    def rows(self) -> list[Json | str]:
        """All rows in the order of the file."""
        first = [row for record in self.records for row in (record.rows[:-1] if record.apart else record.rows)]
        return first + [record.rows[-1] for record in self.records if record.apart]

    def text(self) -> str:
        if not self.columns:
            return "".join(f"{self._line(row)}\n" for row in self.rows())
        lines = [",".join(self.columns), *(self._line(row) for row in self.rows()), *[""] * self.blank_lines]
        return ("\ufeff" if self.bom else "") + "".join(line + self.line_end for line in lines)

    def _line(self, row: Json | str) -> str:
        if isinstance(row, str):
            return row
        return csv_row(str(row.get(name, "")) for name in self.columns) if self.columns else dump(row)

    def control_totals(self) -> str:
        totals: Json = {"rows": len(self.rows())}
        if self.amounts:
            totals["amount"] = dollars(sum(record.cents for record in self.records))
        return dump(totals) + "\n"

    def expected(self) -> Json:
        """What an import that begins with an empty ledger makes of this file."""
        fates = [record.fate for record in self.records]
        counts: Json = {
            "feed": self.feed,
            "lines": self.text().count("\n"),
            "header": 1 if self.columns else 0,
            "not_taken": self.blank_lines,
            "rows": len(self.rows()),
            "records": len(fates),
            "accepted": sum(fate in ACCEPTED for fate in fates),
            "rejected": {stage: fates.count(stage) for stage in REJECTED},
            **{fate: fates.count(fate) for fate in ACCEPTED},
        }
        if self.amounts:
            counts["amount_created"] = dollars(sum(record.cents for record in self.records if record.fate == "created"))
        return counts


def scatter(dice: Dice, ordinary: list[Record], planted: Iterable[Record]) -> list[Record]:
    """The planted records among the ordinary ones, each behind the one planted before it."""
    planted = list(planted)
    places = sorted(dice.below(len(ordinary) + 1) for _ in planted)
    records = list(ordinary)
    for moved, (place, record) in enumerate(zip(places, planted, strict=True)):
        records.insert(place + moved, record)
    return records


def by(resources: Iterable[Json], *path: str) -> Mapping[str, list[Json]]:
    """Resources by the id that the reference at this path names."""
    found: dict[str, list[Json]] = {}
    for resource in resources:
        value: Any = resource
        for step in path:
            value = value[step]
        found.setdefault(value["reference"].partition("/")[2], []).append(resource)
    return found

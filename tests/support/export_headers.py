"""Exports of other systems, to draft feeds from: real headers as data (`tests/pipelines/feeds/headers`), invented
cells.

A line of the data is a column: its name, the look of its cells, and our column for it: a name, `-` for none, or `?name`
if only a person can decide. Equally right names are separated by `/`.
"""

import csv
import io
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from pipelines.feeds.drafting.entries import FeedEntry, Line

HEADERS = Path(__file__).parents[1] / "pipelines" / "feeds" / "headers"
ROWS = 40
FIRST = ("Ada", "Bruno", "Chiara", "Dario", "Elif", "Frieda", "Goran", "Hana", "Ivo", "Jana")
LAST = ("Abt", "Brand", "Conti", "Dorn", "Evers", "Falk", "Gruber", "Hart", "Iten", "Jung")
THINGS = ("call back", "send the letter", "check the lab", "renew the form", "scan the card", "order the device")


class Wanted(NamedTuple):
    """A column of an export. ours: the right answers for it."""

    name: str
    cells: str
    ours: tuple[str, ...]


class StrangeExport(NamedTuple):
    """An export: the name of its file, the kind of its records, its columns, and keys such as the delimiter."""

    file_name: str
    kind: str
    columns: tuple[Wanted, ...]
    keys: dict[str, str]


def exports() -> list[StrangeExport]:
    """Return all exports of the data."""
    return [export for path in sorted(HEADERS.glob("*.txt")) for export in _read(path.read_text(encoding="utf-8"))]


def unseen() -> list[StrangeExport]:
    """Return exports by an author who had not seen the code. Their cells are in separate files."""
    found = []
    for block in (HEADERS.parent / "unseen" / "headers.txt").read_text(encoding="utf-8").split("\n== ")[1:]:
        head, *lines = block.strip().splitlines()
        name, kind = head.split()
        parts = [line.rsplit(" | ", 1) for line in lines]
        columns = (Wanted(column, "", tuple(ours.split("/"))) for column, ours in parts)
        found.append(StrangeExport(name, kind, tuple(columns), {}))
    return found


def _read(text: str) -> Iterator[StrangeExport]:
    for block in text.split("\n== ")[1:]:
        head, *lines = block.strip().splitlines()
        name, kind, *keys = head.split()
        columns = [
            Wanted(parts[0], parts[1], tuple(parts[2].split("/"))) for parts in (line.split(" | ") for line in lines)
        ]
        yield StrangeExport(name, kind, tuple(columns), dict(key.split("=", 1) for key in keys))


def content(export: StrangeExport, rows: int = ROWS) -> bytes:
    """Return the bytes of the file."""
    chance = random.Random(export.file_name)
    out = io.StringIO()
    writer = csv.writer(out, delimiter=export.keys.get("delimiter", ","))
    writer.writerow(column.name for column in export.columns)
    for number in range(rows):
        writer.writerow(cell(column.cells, number, chance) for column in export.columns)
    return out.getvalue().encode(export.keys.get("encoding", "utf-8"))


def cell(spec: str, number: int, chance: random.Random) -> str:
    """Return a cell as the data describes it; one with `?` is sometimes empty."""
    if spec.endswith("?"):
        if number % 3 == 1:
            return ""
        spec = spec[:-1]
    word, _, rest = spec.partition(" ")
    if word in _MADE:
        return _MADE[word](rest, number, chance)
    return _date(spec, chance)


def _date(example: str, chance: random.Random) -> str:
    """Return a time, written like the example."""
    return _written(_EXAMPLES[example], chance)


def _written(form: str, chance: random.Random) -> str:
    at = datetime(2024, 1, 1) + timedelta(minutes=chance.randrange(525_600))  # noqa: DTZ001 - as a system writes it
    return at.strftime(form)


def _money(chance: random.Random) -> float:
    return chance.randrange(500, 40_000) / 100


_EXAMPLES = {
    "11/May/24 03:26 PM": "%d/%b/%y %I:%M %p",
    "11/May/24 12:00 AM": "%d/%b/%y 12:00 AM",
    "05/23/2024 10:15 AM": "%m/%d/%Y %I:%M %p",
    "5/23/2024 9:15:00 AM": "%m/%d/%Y %I:%M:%S %p",
    "5/23/2024 10:15:30": "%m/%d/%Y %H:%M:%S",
    "5/23/24 10:15:30": "%m/%d/%y %H:%M:%S",
    "iso": "%Y-%m-%d",
    "isoz": "%Y-%m-%dT%H:%M:%SZ",
    "isosp": "%Y-%m-%d %H:%M:%S",
    "us": "%m/%d/%Y",
    "us_short": "%m/%d/%y",
    "us_time": "%m/%d/%Y %H:%M",
    "de": "%d.%m.%Y",
    "de_short": "%d.%m.%y",
    "de_time": "%d.%m.%Y %H:%M",
    "clock": "%H:%M:%S",
}
_MADE: dict[str, Callable[[str, int, random.Random], str]] = {
    "words": lambda rest, n, chance: f"{chance.choice(THINGS)} {n}".capitalize(),
    "text": lambda rest, n, chance: f"{chance.choice(THINGS)}, then {chance.choice(THINGS)}; ask again.",
    "person": lambda rest, n, chance: f"{chance.choice(FIRST)} {chance.choice(LAST)}",
    "login": lambda rest, n, chance: f"{chance.choice(FIRST)[0]}{chance.choice(LAST)}".lower(),
    "email": lambda rest, n, chance: f"{chance.choice(FIRST)}@example.org".lower(),
    "url": lambda rest, n, chance: f"https://tracker.example/items/{n}",
    "serial": lambda rest, n, chance: str(20_410 + n),
    "long": lambda rest, n, chance: str(1_205_993_847_561_234 + n * 17),
    "int": lambda rest, n, chance: str(int(rest) + chance.randrange(30)),
    "group": lambda rest, n, chance: str(900 + n // int(rest)),
    "chart": lambda rest, n, chance: f"{rest}{chance.randrange(30):03d}",
    "count": lambda rest, n, chance: str(chance.randrange(14)),
    "key": lambda rest, n, chance: f"{rest}{1_001 + n}",
    "hex": lambda rest, n, chance: f"{chance.getrandbits(96):024x}",
    "uuid": lambda rest, n, chance: str(uuid.UUID(int=chance.getrandbits(128), version=4)),
    "upper": lambda rest, n, chance: f"{chance.getrandbits(80):017X}"[:17],
    "one": lambda rest, n, chance: chance.choice(rest.split("/")),
    "always": lambda rest, n, chance: rest,
    "empty": lambda rest, n, chance: "",
    "likert": lambda rest, n, chance: str(chance.randrange(4)),
    "often": lambda rest, n, chance: chance.choice(("Not at all", "Several days", "Nearly every day")),
    "satisfied": lambda rest, n, chance: chance.choice(("Very satisfied", "Satisfied", "Unsatisfied")),
    "money": lambda rest, n, chance: f"{_money(chance):.2f}",
    "small": lambda rest, n, chance: f"{_money(chance) / 40:.2f}",
    "small_usd": lambda rest, n, chance: f"-${_money(chance) / 40:.2f}",
    "usd": lambda rest, n, chance: f"${_money(chance):,.2f}",
    "thousands": lambda rest, n, chance: f"{_money(chance) * 9:,.2f}",
    "euro": lambda rest, n, chance: f"{_money(chance) * 9:,.2f}".translate(str.maketrans(",.", ".,")),
    "cents": lambda rest, n, chance: str(chance.randrange(5, 400) * 100),
    "birth": lambda rest, n, chance: f"{chance.randrange(1, 13):02d}/{chance.randrange(1, 29):02d}/19{n % 60 + 30}",
}


class Judged(NamedTuple):
    """The verdict on a column of a draft: `right`, `asked` (a line with DECIDE names it), `noted` (a comment proposes
    it and says why), or `wrong`.
    """

    export: str
    column: str
    verdict: str
    drafted_as: str


def judged(export: StrangeExport, lines: Sequence[Line]) -> Iterator[Judged]:
    """Yield the verdict on each column of an export's draft."""
    entries = [line for line in lines if isinstance(line, FeedEntry) and line.key not in ("timezone", "source")]
    asked = {seen.label for entry in entries if entry.doubt for seen in entry.columns}
    mapped = {
        seen.label: entry.key.strip('"')
        for entry in entries
        if not entry.doubt and entry.is_active and entry.section in ("columns", "questions")
        for seen in entry.columns
    }
    noted = {seen.label for entry in entries if entry.note and not entry.is_active for seen in entry.columns}
    required = {entry.key for entry in entries if entry.doubt and not entry.columns}
    for column in export.columns:
        drafted = "asked" if column.name in asked else mapped.get(column.name, "-")
        if drafted == "asked" or (drafted == "-" and required & {ours.strip("?") for ours in column.ours}):
            verdict = "asked"
        else:
            verdict = "right" if drafted in column.ours else "noted" if column.name in noted else "wrong"
        yield Judged(export.file_name, column.name, verdict, drafted)

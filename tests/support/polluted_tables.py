"""Clean exports of payments, to be polluted, with their true content.

The truth of an export is its records by key, each with its lines. A correct reader returns each record as it is, or
names its line, or refuses the file. Everything is drawn from a seed.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

NAMES = ("Receipt", "Patient", "Amount", "Date", "Note")
ROWS = 12
FEED = """
kind = "payments"
files = ["till*"]
format = "csv"
[columns]
payment_id = "Receipt"
patient_id = "Patient"
amount = "Amount"
paid_on = "Date"
"""


class Paid(NamedTuple):
    """A payment as the export means it. cents: None if no reader can know. lines: its lines in the file."""

    patient: str
    cents: int | None
    day: str
    lines: tuple[int, int]


class Polluted(NamedTuple):
    """A polluted export. keys: additional keys of the feed file. mends: the key that a refusal or reject must name."""

    kind: str
    content: bytes
    truth: dict[str, Paid]
    keys: str = ""
    mends: str = ""


class Table:
    """A clean export, to be polluted: its lines, and the line of each record."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.rows = [
            [f"r{chance.randrange(10**6)}-{number}", f"p{number}", _amount(chance), _day(chance), "ok"]
            for number in range(ROWS)
        ]
        self.place = chance.randrange(1, ROWS - 1)

    @property
    def row(self) -> list[str]:
        return self.rows[self.place]

    def truth(self, before: int = 1, lost: int | None = None) -> dict[str, Paid]:
        """Return the records, each on one line after `before` others. lost: the index of an unknowable amount."""
        found = {}
        for place, (key, patient, amount, day, *_) in enumerate(self.rows):
            cents = None if place == lost else round(float(amount) * 100)
            found[key] = Paid(patient, cents, day, (place + before + 1, place + before + 1))
        return found

    def text(self, sign: str = ",", names: tuple[str, ...] = NAMES) -> str:
        return "".join(f"{sign.join(cells)}\n" for cells in (names, *self.rows))

    def lines(self) -> list[str]:
        return self.text().splitlines(keepends=True)


def _amount(chance: random.Random) -> str:
    return f"{chance.randrange(100, 99_900) / 100:.2f}"


def _day(chance: random.Random) -> str:
    return f"2024-{chance.randrange(1, 13):02d}-{chance.randrange(1, 29):02d}"


Pollute = Callable[[Table], Polluted]


def into(ways: dict[str, Pollute]) -> Callable[[Pollute], Pollute]:
    """Register a kind of pollution under the name of its function."""

    def way(pollute: Pollute) -> Pollute:
        ways[pollute.__name__.replace("_", " ")] = pollute
        return pollute

    return way


def plain(text: str, truth: dict[str, Paid], keys: str = "", mends: str = "", encoding: str = "utf-8") -> Polluted:
    return Polluted("", text.encode(encoding), truth, keys, mends)

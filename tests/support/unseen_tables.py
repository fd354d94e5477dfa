"""A clean export, to be polluted by a function of the table and a random generator.

The function returns the file, and leaves in `table.rows` what a correct reader returns: without unknowable payments.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date

COLUMNS = ("receipt", "patient_id", "amount", "paid_on", "note")
NOTES = ("front desk", "card", "by mail", "cash", "check 88", "paid at the visit", "phone")


@dataclass(frozen=True, slots=True)
class Payment:
    """A row of a clean export."""

    key: str
    patient: str
    cents: int
    day: date
    note: str

    @property
    def amount(self) -> str:
        return f"{self.cents // 100}.{self.cents % 100:02d}"

    @property
    def cells(self) -> list[str]:
        return [self.key, self.patient, self.amount, self.day.isoformat(), self.note]


@dataclass(slots=True)
class Table:
    """A clean export, to be polluted. rows: the payments that a correct reader returns."""

    rows: list[Payment]
    chance: random.Random
    header: list[str] = field(default_factory=lambda: list(COLUMNS))

    def lines(self) -> list[list[str]]:
        """Return the rows as lists of cells."""
        return [row.cells for row in self.rows]

    def one(self) -> int:
        """Return the number of a row that is neither the first nor the last."""
        return self.chance.randrange(1, len(self.rows) - 1)

    def drop(self, *numbers: int) -> None:
        """Remove payments that a correct reader cannot return."""
        self.rows = [row for number, row in enumerate(self.rows) if number not in numbers]

    def text(self, lines: list[list[str]] | None = None, delimiter: str = ",") -> str:
        """Return the file with these rows, or with the table's own."""
        body = self.lines() if lines is None else lines
        return "".join(f"{delimiter.join(cells)}\n" for cells in [self.header, *body])


Way = Callable[[Table], str | bytes]


def with_cell(table: Table, column: int, change: Callable[[str], str], *, known: bool) -> str:
    """Return the file with one cell changed. known: true if a correct reader still returns the payment."""
    lines, number = table.lines(), table.one()
    lines[number][column] = change(lines[number][column])
    if not known:
        table.drop(number)
    return table.text(lines)

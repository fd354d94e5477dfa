"""Check the last line of a file: without a line end it may be cut off, and an amount too (`40.62` becomes `40.`)."""

from collections.abc import Sequence

from pipelines.feeds.mapping.mapping import Mapper
from pipelines.feeds.reading.chunks import Chunk, Notice
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.numbers import NumberFormat
from pipelines.validation.outcome import ValidationResult

NO_END = "LEDGER-24"
OPEN = "the last line has no line break, as in a file that was cut off; compare the file with the export"
CUT_OFF = ValueFault(
    NO_END,
    "the last line has no line break, and its last cell is unlike the others of its column, as in a file that was cut "
    "off; export the file again, or, if the row is whole, add the line break",
)


class LastLine:
    """A test of a file's last line. It warns if the line has no end, and rejects its row if the last cell may be a
    part of a number.

    numbers: how the file writes them. is_proved: True if a total would reveal a cut-off amount.
    """

    def __init__(self, mapper: Mapper, numbers: NumberFormat, is_proved: bool) -> None:
        self._mapper, self._numbers, self._is_proved = mapper, numbers, is_proved
        self._before: list[str] = []

    def take(self, chunk: Chunk, found: ValidationResult) -> None:
        """Look at a chunk of a CSV. The column's other cells are those of this chunk and the one before."""
        before, self._before = self._before, [row.cells[-1] for row in chunk.good]
        last = chunk.rows[-1] if chunk.rows else None
        if last is None or last.raw[-1:] in _ENDS:
            return
        if last.fault is None and not self._mapper.taken(self._mapper.rows([last.cells]))[0]:
            return
        found.noticed.append(Notice(last.line, NO_END, OPEN))
        others = [*before, *self._before[:-1]]
        if not (last.fault or self._is_proved) and may_be_cut(last.cells[-1], others, self._numbers):
            chunk.set_aside(len(chunk.rows) - 1, CUT_OFF)


_ENDS = ("\n", "\r")


def may_be_cut(cell: str, others: Sequence[str], numbers: NumberFormat) -> bool:
    """True if a cell may be the beginning of a number, since the column's other cells are numbers."""
    cell, filled = cell.strip(), [other.strip() for other in others if other.strip()]
    if not cell:
        return len(filled) == len(others) > 0 and _are_numbers(filled, numbers)
    plain = numbers.amount(cell)
    if plain and cell.endswith(numbers.decimal):
        return True
    if not _are_numbers(filled, numbers):
        return False
    fewest = min(_decimals(found) for other in filled if (found := numbers.amount(other)))
    return (
        plain is None or _decimals(plain) < fewest or (cell[-1] not in _MINUS and any(o[-1] in _MINUS for o in filled))
    )


_MINUS = "-\u2212"
"""Minus signs after an amount. If other amounts have one, the last one may have lost it."""


def _are_numbers(cells: Sequence[str], numbers: NumberFormat) -> bool:
    """True if more than half of some cells are numbers."""
    return sum(numbers.amount(cell) is not None for cell in cells) * 2 > len(cells)


def _decimals(plain: str) -> int:
    return len(plain.partition(".")[2])

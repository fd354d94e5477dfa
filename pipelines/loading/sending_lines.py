"""Lines on which rows are sent side by side: they decide which rows are sent together, and in which order.

A unit is the content of one request: one row, or the rows of a bundle. A line has one unit under way at a time.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipelines.loading.row import AcceptedRow

Unit = list[AcceptedRow]

CHARACTERS_A_UNIT = 8_000_000
CHARACTERS_AHEAD = 8 * CHARACTERS_A_UNIT
"""The number of characters that waiting bodies may have, apart from the last row's."""
ROWS_AHEAD = 2_000
"""The number of rows that may wait, or more to fill all lines: other lanes' rows may come after a long lane's."""
AHEAD_ON_A_LINE = 4
"""Rows that should wait on a line, even if rows are sent one by one, so that their patients are looked up meanwhile."""


class NotedPatients:
    """Patients whose resources at the target are noted before their rows are sent. noted: None if none need to be."""

    def __init__(self, noted: set[str] | None) -> None:
        self._noted = noted
        self._asked = set(noted or ())
        self._to_look: list[AcceptedRow] = []

    def ask(self, row: AcceptedRow) -> None:
        """Plan a look-up of the row's patient, once."""
        if self._noted is not None and row.patient_id and row.patient_id not in self._asked:
            self._asked.add(row.patient_id)
            self._to_look.append(row)

    def taken_to_look(self) -> list[AcceptedRow]:
        """Return rows for the planned look-ups, one for each patient."""
        taken, self._to_look = self._to_look, []
        return taken

    def note(self, patient_id: str) -> None:
        """Allow the rows of a patient to be sent, whose resources are noted now."""
        if self._noted is not None:
            self._noted.add(patient_id)

    def forget(self, patient_ids: Iterable[str]) -> None:
        """Forget that patients were noted, because the note could not be written."""
        if self._noted is not None:
            self._noted.difference_update(patient_ids)

    @property
    def are_looked_at(self) -> bool:
        return self._noted is not None

    def may_go(self, row: AcceptedRow) -> bool:
        return self._noted is None or not row.patient_id or row.patient_id in self._noted


@dataclass(slots=True)
class _LaneLine:
    """Rows that wait on a line, and the number of characters in their bodies."""

    rows: deque[AcceptedRow] = field(default_factory=deque)
    size: int = 0


class LaneLines:
    """Rows that were read and have no outcome yet. All rows of a lane are on one line, in order, and never under way
    at once.

    abreast: lines that are filled side by side, before others. most: rows of a unit. stopped: lanes of which no more
    rows are sent.
    """

    def __init__(self, number: int, abreast: int, most: int, stopped: set[str], patients: NotedPatients) -> None:
        self._abreast, self._most, self._stopped, self._patients = abreast, most, stopped, patients
        self._full = max(most, AHEAD_ON_A_LINE if patients.are_looked_at else 1)
        self._most_rows = max(ROWS_AHEAD, 2 * number * self._full)
        self._lines = [_LaneLine() for _ in range(number)]
        self._rows = self._size = 0
        self._short = [*range(number)]
        self._free = [*range(number)]
        self._of_lane: dict[str, list[int]] = {}
        self._have_stopped = len(stopped)

    @property
    def want_rows(self) -> bool:
        """True if more rows should be read: a line has too few, and not too many wait on the others."""
        return bool(self._short) and self._rows < self._most_rows and self._size < CHARACTERS_AHEAD

    @property
    def are_empty(self) -> bool:
        """True if no row waits."""
        return not self._rows

    def add(self, row: AcceptedRow) -> bool:
        """Add a row; return False if its lane has stopped."""
        if row.lane in self._stopped:
            return False
        of_lane = self._of_lane.get(row.lane)
        if of_lane is None:
            of_lane = self._of_lane[row.lane] = [self._shortest(), 0]
        of_lane[1] += 1
        self._more(of_lane[0], row)
        self._patients.ask(row)
        return True

    def take(self, most: int) -> list[Unit]:
        """Return at most `most` units of free lines, without rows of stopped lanes or of patients not noted yet."""
        units = list[Unit]()
        self._drop_stopped()
        for line in [*self._free]:
            if len(units) < most and (unit := self._unit(line)):
                self._free.remove(line)
                units.append(unit)
        return units

    def end(self, unit: Unit) -> None:
        """Release a unit that has its outcome, which frees its line."""
        self._free.append(self._of_lane[unit[0].lane][0])
        for row in unit:
            self._let_go(row)
        self._drop_stopped()

    def _unit(self, line: int) -> Unit:
        waiting, unit, size = self._lines[line].rows, Unit(), 0
        while waiting and len(unit) < self._most:
            row = waiting[0]
            if not self._patients.may_go(row) or (unit and size + len(row.body) > CHARACTERS_A_UNIT):
                break
            unit.append(waiting.popleft())
            size += len(row.body)
        self._less(line, len(unit), size)
        return unit

    def _drop_stopped(self) -> None:
        """Drop the rows of stopped lanes, so that others are read in their place."""
        if len(self._stopped) == self._have_stopped:
            return
        self._have_stopped = len(self._stopped)
        for number, line in enumerate(self._lines):
            if dropped := [row for row in line.rows if row.lane in self._stopped]:
                line.rows = deque(row for row in line.rows if row.lane not in self._stopped)
                self._less(number, len(dropped), sum(len(row.body) for row in dropped))
                for row in dropped:
                    self._let_go(row)

    def _more(self, number: int, row: AcceptedRow) -> None:
        line, size = self._lines[number], len(row.body)
        line.rows.append(row)
        line.size += size
        self._rows += 1
        self._size += size
        if self._is_full(line) and number in self._short:
            self._short.remove(number)

    def _less(self, number: int, rows: int, size: int) -> None:
        line = self._lines[number]
        line.size -= size
        self._rows -= rows
        self._size -= size
        if number not in self._short and not self._is_full(line):
            insort(self._short, number)

    def _let_go(self, row: AcceptedRow) -> None:
        """Take a row off its lane. A lane without rows may continue on another line."""
        of_lane = self._of_lane[row.lane]
        of_lane[1] -= 1
        if not of_lane[1]:
            del self._of_lane[row.lane]

    def _shortest(self) -> int:
        lines = self._short[: self._abreast] or range(len(self._lines))
        return min(lines, key=lambda number: len(self._lines[number].rows))

    def _is_full(self, line: _LaneLine) -> bool:
        return len(line.rows) >= self._full or line.size >= CHARACTERS_A_UNIT

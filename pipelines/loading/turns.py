"""The order in which rows go one by one: of each lane one at a time, and none before its patient has been looked at."""

from collections import deque
from collections.abc import Iterable

from pipelines.loading.row import Row


class Turns:
    """Rows that were read and have no outcome yet.

    ready: rows that may be sent now. to_look: rows whose patient's resources are to be noted first. Other rows wait
    behind the first row of their lane, or for their patient. count: the number of rows, with those under way.

    noted: patients whose resources are noted; None where none are to be.
    """

    def __init__(self, stopped: set[str], noted: set[str] | None) -> None:
        self._stopped, self._noted = stopped, noted
        self.ready: deque[Row] = deque()
        self.to_look: deque[Row] = deque()
        self.count = 0
        self._behind: dict[str, deque[Row]] = {}
        self._of_patient: dict[str, list[Row]] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """Take rows that were read, apart from those of stopped lanes."""
        for row in rows:
            if row.lane in self._stopped:
                continue
            self.count += 1
            if row.lane in self._behind:
                self._behind[row.lane].append(row)
            else:
                self._behind[row.lane] = deque()
                self._begin(row)

    def take(self, most: int) -> list[Row]:
        """Return rows that are ready, at most so many."""
        return [self.ready.popleft() for _ in range(max(0, min(len(self.ready), most)))]

    def end(self, row: Row) -> None:
        """Let the next row of a lane go, since this one has its outcome; none of a lane that was stopped."""
        self.count -= 1
        behind = self._behind.pop(row.lane)
        if row.lane in self._stopped:
            self.count -= len(behind)
        elif behind:
            self._behind[row.lane] = behind
            self._begin(behind.popleft())

    def note(self, patient_id: str) -> None:
        """Let the rows of a patient go, whose resources are noted now."""
        if self._noted is not None:
            self._noted.add(patient_id)
        self.ready.extend(self._of_patient.pop(patient_id))

    def _begin(self, row: Row) -> None:
        patient = row.patient_id
        if patient is None or self._noted is None or patient in self._noted:
            self.ready.append(row)
        elif patient in self._of_patient:
            self._of_patient[patient].append(row)
        else:
            self._of_patient[patient] = [row]
            self.to_look.append(row)

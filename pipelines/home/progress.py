"""Progress of a run: bars on a terminal (`progress_bars.py`), else plain lines. Only names of batches and counts."""

import time
from collections.abc import Callable

from pipelines.home.counted import counted

SECONDS_A_LINE = 5.0


class Progress:
    """Progress that shows nothing, and the base of the others.

    `stage` begins a stage, `expect` gives its number of rows, `advance` counts them. `end` ends it, with a result that
    is more than rows. `say` prints a line of its own. `close` frees the terminal for other output; a later stage takes
    it again.
    """

    def say(self, text: str) -> None: ...

    def stage(self, name: str, of: str, total: int | None = None) -> None: ...

    def expect(self, total: int) -> None: ...

    def advance(self, rows: int) -> None: ...

    def end(self, came_to: str = "", how: str = "done") -> None: ...

    def close(self) -> None: ...


class PlainProgress(Progress):
    """Progress as lines: one when a stage begins and ends, and one every few seconds between. write: prints a line."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write, self._name, self._rows, self._said, self._began = write, "", 0, 0.0, 0.0
        self._total: int | None = None

    def say(self, text: str) -> None:
        self._write(text)

    def stage(self, name: str, of: str, total: int | None = None) -> None:
        self._name, self._rows, self._total = f"{of}: {name}", 0, total
        self._began = self._said = time.monotonic()

    def expect(self, total: int) -> None:
        self._total = total

    def advance(self, rows: int) -> None:
        self._rows += rows
        if time.monotonic() - self._said >= SECONDS_A_LINE:
            self._said = time.monotonic()
            self.say(f"{self._name} {self._count()}")

    def end(self, came_to: str = "", how: str = "done") -> None:
        if self._name:
            seconds = time.monotonic() - self._began
            rows = f", {counted(self._rows, 'row')}" if self._rows else ""
            self.say(f"{self._name} {how}{rows} in {seconds:.1f} s{came_to and ': '}{came_to}")
            self._name = ""

    def _count(self) -> str:
        a_second = self._rows / max(time.monotonic() - self._began, 0.001)
        if not self._total:
            return f"{counted(self._rows, 'row')}, {a_second:,.0f} a second"
        left = f", {time_left((self._total - self._rows) / a_second)} left" if self._rows else ""
        return f"{self._rows:,} of {counted(self._total, 'row')}, {a_second:,.0f} a second{left}"


def time_left(seconds: float) -> str:
    """Return a duration as `4 s`, `3 min 20 s`, `2 h 5 min`."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"

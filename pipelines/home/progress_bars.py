"""Progress of a run as bars on a terminal, one for each stage. A separate module, since `rich` loads slowly."""

from functools import partial
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from pipelines.home.progress import PlainProgress, Progress


class RateColumn(ProgressColumn):
    """The present speed in rows a second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "")


class BarProgress(Progress):
    """One bar for each stage. On a narrow terminal the numbers take the bar's place."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            RateColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None, table_column=Column(max_width=40)),
        )
        self._bars = Bars(*columns, console=console)
        self._bars.start()
        self._task: TaskID | None = None
        self._rows = 0

    def say(self, text: str) -> None:
        self._bars.console.print(text, highlight=False, markup=False)

    def stage(self, name: str, of: str, total: int | None = None) -> None:
        self._rows = 0
        self._bars.start()
        self._task = self._bars.add_task(f"{of}: {name}", total=total)

    def expect(self, total: int) -> None:
        if self._task is not None:
            self._bars.update(self._task, total=total)

    def advance(self, rows: int) -> None:
        self._rows += rows
        if self._task is not None:
            self._bars.advance(self._task, rows)

    def end(self, came_to: str = "", how: str = "done") -> None:
        if self._task is not None:
            self._bars.update(self._task, total=self._rows, completed=self._rows)
            self._task = None
        if came_to:
            self.say(f"{how}: {came_to}")

    def close(self) -> None:
        self._bars.stop()
        self._task = None
        for task in self._bars.task_ids:  # so that a later stage shows only its own bar
            self._bars.remove_task(task)


def progress_on(out: TextIO) -> Progress:
    """Return bars if `out` is a terminal, else lines."""
    return BarProgress(Console(file=out)) if out.isatty() else PlainProgress(partial(print, file=out, flush=True))

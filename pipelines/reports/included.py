"""The results that come with the pages of reports, where a target includes them: kept until the results are read.

Included resources are in no total, so nobody could tell whether all of them came. What did not come is asked for by id.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.home import arrow
from pipelines.home.scratch import throwaway_folder
from pipelines.home.spill import Writer
from pipelines.reports.pages import SWEPT, PageReader, SweepIncomplete
from pipelines.reports.results import RESULT, SearchesById
from pipelines.reports.sweep import Sweep, now, sweep

INCLUDE = "DiagnosticReport:result"
"""The name by which a CapabilityStatement says that a search of reports includes their results."""


@contextmanager
def with_results(client: SearchesById, home: Path) -> Iterator["WithResults"]:
    """Yield a search of reports that includes their results; what it keeps of them is gone at the end."""
    with throwaway_folder(home) as folder:
        yield WithResults(client, folder / "included.parquet")


class WithResults:
    """A search whose first reading asks for the results of reports as well, and keeps those that came in a file.

    A search that has to be read again is read without them: a target may count what it includes.
    file: of the columns of `SWEPT`; not there if the last reading was without. Each result is in it once.
    readings: how many were begun.
    """

    def __init__(self, client: SearchesById, file: Path) -> None:
        self._client, self.file = client, file
        self.readings, self._read = 0, PageReader(RESULT)

    def pages(self, resource_type: str) -> Iterable[dict[str, Any]]:
        """Yield the bundles of a search."""
        self.readings += 1
        self.file.unlink(missing_ok=True)
        return self._included(resource_type) if self.readings == 1 else self._client.pages(resource_type)

    def _included(self, resource_type: str) -> Iterator[dict[str, Any]]:
        with Writer(self.file, SWEPT) as out:
            for page in self._client.pages(resource_type, {"_include": INCLUDE}):
                with suppress(SweepIncomplete):  # one of them is odd: those of the page are asked for by id
                    entries = {"resourceType": "Bundle", "total": 0, "entry": page.get("entry")}
                    out.add_batch(arrow.batch_of_rows(self._read.new_rows(entries), SWEPT))
                yield page


def sweep_including(including: WithResults, home: Path, target: str, clock: Callable[[], datetime] = now) -> Sweep:
    """Sweep the reports with their results; without these if that fails, for whatever reason.

    Raises `SweepIncomplete`, as the sweep without them does.
    """
    while True:
        try:
            return sweep(including, home, target, clock)
        except SweepIncomplete:
            if including.readings > 1:
                raise

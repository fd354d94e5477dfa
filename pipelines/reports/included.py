"""The results that come with the pages of reports, where a target includes them: kept until the results are read.

Included resources are in no total, so nobody could tell whether all of them came. What did not come is asked for by id.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipelines.home import arrow
from pipelines.home.scratch import throwaway_folder
from pipelines.reports.pages import SWEPT, PageReader, Row, SweepIncomplete
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
        self.readings, self._seen = 0, set[str]()

    def pages(self, resource_type: str) -> Iterable[dict[str, Any]]:
        """Yield the bundles of a search."""
        self.readings += 1
        self.file.unlink(missing_ok=True)
        return self._included(resource_type) if self.readings == 1 else self._client.pages(resource_type)

    def _included(self, resource_type: str) -> Iterator[dict[str, Any]]:
        with pq.ParquetWriter(self.file, SWEPT, compression="zstd", compression_level=1) as writer:
            for page in self._client.pages(resource_type, {"_include": INCLUDE}):
                if rows := [row for row in _results_on(page) if self._is_new(row[0])]:
                    writer.write_batch(arrow.batch_of_rows(rows, SWEPT))
                yield page

    def _is_new(self, result_id: str) -> bool:
        before = len(self._seen)
        self._seen.add(result_id)
        return len(self._seen) > before


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


def _results_on(page: dict[str, Any]) -> list[Row]:
    """The results on a page of reports; none if one of them is odd, so that they are asked for by id."""
    entries = page.get("entry")
    if not isinstance(entries, list):
        return []
    try:
        return PageReader(RESULT).new_rows({"resourceType": "Bundle", "total": 0, "entry": entries})
    except SweepIncomplete:
        return []

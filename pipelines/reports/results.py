"""The results that reports name: reads these Observations from the target, and keeps them beside the swept reports.

They are asked for by id, a hundred at a time: the longest address that servers surely take, and a page of the bundled
service; two such requests are under way at once. One that the target does not have is left out of its answers; one that
it had before counts as gone. They are not asked for by `_include`: what an answer includes is in no total, so that
nobody could tell that all of it came.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import pyarrow.parquet as pq

from pipelines.client.replies import NotDone, NotSent, Refused, Unknown
from pipelines.client.whole import Incomplete
from pipelines.home import arrow
from pipelines.home.files import locked, session
from pipelines.reports.pages import SWEPT, PageReader, Row, SweepIncomplete
from pipelines.reports.sweep import FILES, TRIES, folder_of, keep, kept, now

RESULT = "Observation"
IDS_A_REQUEST, REQUESTS = 100, 2
ROWS_A_GROUP = 4_000
NAMED = """
    SELECT DISTINCT id FROM (
        SELECT unnest(regexp_extract_all(body, '["/]Observation/([A-Za-z0-9.-]{1,64})[/"]', 1)) AS id
        FROM read_parquet($1) WHERE gone_at IS NULL
    ) ORDER BY id"""
"""The ids behind `Observation/` in the present reports. What is no result there costs a look-up, and no more."""


class SearchesById(Protocol):
    """The part of the client that is used: yield the bundles of a search."""

    def pages(self, resource_type: str, params: dict[str, str] | None = None) -> Iterable[dict[str, Any]]: ...


def sweep_results(client: SearchesById, home: Path, target: str, clock: Callable[[], datetime] = now) -> int:
    """Read the results that the last swept reports name, and keep them; return how many the target has.

    Raises `SweepIncomplete`, and leaves those last read as they are.
    """
    reports, folder = kept(home, target).path, folder_of(home, target)
    final, part = folder / FILES[RESULT][0], folder / "results.part"
    with locked(folder / ".results.lock"), session(folder / ".results.spill") as db:
        started, found = clock(), 0
        names = db.execute(NAMED, [str(reports)])
        with pq.ParquetWriter(part, SWEPT, compression="zstd", compression_level=1) as writer:
            rows: list[Row] = []
            for some in _read_ahead(client, lambda: [id for (id,) in names.fetchmany(IDS_A_REQUEST)]):
                rows += some
                if len(rows) >= ROWS_A_GROUP:
                    writer.write_batch(arrow.batch_of_rows(rows, SWEPT))
                    found += len(rows)
                    rows.clear()
            writer.write_batch(arrow.batch_of_rows(rows, SWEPT))
        with locked(folder / ".kept.lock"):
            keep(final, part, started)
        part.unlink()
        return found + len(rows)


def _read_ahead(client: SearchesById, next_ids: Callable[[], list[str]]) -> Iterator[list[Row]]:
    """Yield the resources of each group of ids, asking for the next while one is understood. Raises `SweepIncomplete`.

    next_ids: gives the next group; an empty one at the end.
    """
    coming: deque[Future[list[Row]]] = deque()
    with ThreadPoolExecutor(REQUESTS, "results") as pool:
        try:
            while True:
                while len(coming) < REQUESTS and (ids := next_ids()):
                    coming.append(pool.submit(_of_ids, client, ids))
                if not coming:
                    return
                yield coming.popleft().result()
        finally:
            for each in coming:
                each.cancel()


def _of_ids(client: SearchesById, ids: list[str]) -> list[Row]:
    """Return the resources of these ids, each once. Raises `SweepIncomplete`."""
    for _ in range(TRIES):
        read = PageReader(RESULT)
        rows = list(_rows(client, read, ids))
        if not read.disagreement:
            return rows
    raise SweepIncomplete(read.disagreement)


def _rows(client: SearchesById, read: PageReader, ids: list[str]) -> Iterator[Row]:
    asked = set(ids)
    try:
        for page in client.pages(RESULT, {"_id": ",".join(ids)}):
            rows = read.new_rows(page)
            if not asked.issuperset(row[0] for row in rows):
                raise SweepIncomplete(f"the target answers a search for {RESULT}s by `_id` with others")
            yield from rows
    except Incomplete:
        read.moved()
    except (NotSent, NotDone, Refused, Unknown) as error:
        raise SweepIncomplete(f"{RESULT}s by `_id`: {error}") from None

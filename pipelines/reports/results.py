"""Read the results that reports name, as Observations of the target, and keep them beside the swept reports.

Results are requested by id. A request has as many ids as fit in an address that servers surely take, and as the target
puts on a page. Two requests are under way at once. If the target includes results in the pages of reports, those
results are kept, and only the others are requested. A result that the target lacks is missing from its answers; if it
was read before, it counts as gone.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import duckdb

from pipelines.client.replies import NoResult, NotSent, RequestRefused, next_link
from pipelines.client.threads import result_of, threads
from pipelines.client.whole import IncompleteSearch
from pipelines.home import arrow
from pipelines.home.files import locked, session
from pipelines.home.scratch import throwaway_folder
from pipelines.home.spill import ParquetWriter
from pipelines.reports.pages import SWEPT, PageReader, Row, SweepIncomplete
from pipelines.reports.sweep import FILES, TRIES, Sweep, folder_of, keep, kept_sweep, now, sweep

RESULT = "Observation"
INCLUDE = "DiagnosticReport:result"
"""The name of the inclusion of results in a search of reports, as a CapabilityStatement lists it."""
IDS_A_REQUEST, REQUESTS = 500, 2
SURELY_TAKEN = 100
"""A request with at most this many ids is not made smaller if the target refuses it."""
LEAST = 10
"""The least number of ids in a request to a target with smaller pages."""
LONGEST, COMMA = 4_000, len("%2C")
"""The most characters of ids in an address. Some servers and proxies allow 8,000 for the address and all headers."""
ROWS_AT_ONCE = 4_000
NAMED = """
    CREATE TEMP TABLE named AS
    SELECT split_part(reference, '/', 1) AS id, bool_or(contains(reference, '/')) AS is_versioned FROM (
        SELECT unnest(
            regexp_extract_all(body, '["/]Observation/([A-Za-z0-9.-]{1,64}(?:/_history)?)[/"]', 1)
        ) AS reference
        FROM read_parquet($1) WHERE gone_at IS NULL
    ) GROUP BY ALL"""
"""The ids after `Observation/` in the present reports. An id that is no result costs only one look-up.

If a report names a result by version, the page includes that version, which may be old: the result is requested by id.
"""
INCLUDED = """
    SELECT report_id, content_hash, body FROM read_parquet($1)
    SEMI JOIN named ON report_id = id AND NOT is_versioned"""
OTHERS = "SELECT id FROM named ORDER BY id"
NOT_INCLUDED = "SELECT id FROM named ANTI JOIN read_parquet($1) ON report_id = id AND NOT is_versioned ORDER BY id"


class SearchesById(Protocol):
    """The part of the client that is used: `pages` yields the bundles of a search."""

    def pages(self, resource_type: str, params: dict[str, str] | None = None) -> Iterable[dict[str, Any]]: ...


def sweep_results(
    client: SearchesById, home: Path, target: str, clock: Callable[[], datetime] = now, included: Path | None = None
) -> int:
    """Read the results that the last swept reports name, and keep them; return how many the target has.

    included: a file of the results that came with the reports, with the columns of `SWEPT`, each result once. Raises
    `SweepIncomplete`, and keeps the results last read.
    """
    reports, folder = kept_sweep(home, target).path, folder_of(home, target)
    final, part = folder / FILES[RESULT][0], folder / "results.part"
    with locked(folder / ".results.lock"), session(folder / ".results.spill") as db:
        started = clock()
        db.execute(NAMED, [str(reports)])
        with ParquetWriter(part, SWEPT) as out:
            for some in _all_of(client, db, included):
                out.add_batch(arrow.batch_of_rows(some, SWEPT))
        with locked(folder / ".kept.lock"):
            keep(final, part, started)
        part.unlink()
        return out.count


def _all_of(client: SearchesById, db: duckdb.DuckDBPyConnection, included: Path | None) -> Iterator[list[Row]]:
    """Yield the results that reports name: first the included ones, then the others by id. Raises `SweepIncomplete`."""
    if included is None:
        yield from _read_ahead(client, IdGroups(db.execute(OTHERS)))
        return
    there = db.execute(INCLUDED, [str(included)])
    while some := there.fetchmany(ROWS_AT_ONCE):
        yield some
    yield from _read_ahead(client, IdGroups(db.execute(NOT_INCLUDED, [str(included)])))


class IdGroups:
    """Ids in groups, each for one request.

    most: the most ids in a group; lower once the size of the target's pages, or its limit, is known.
    """

    def __init__(self, names: duckdb.DuckDBPyConnection) -> None:
        self._names, self._left = names, deque[str]()
        self.most = IDS_A_REQUEST

    def next(self) -> list[str]:
        """Return the next group; an empty one at the end."""
        if len(self._left) < IDS_A_REQUEST:
            self._left.extend(name for (name,) in self._names.fetchmany(IDS_A_REQUEST))
        some, length = list[str](), 0
        while self._left and len(some) < self.most:
            length += len(self._left[0]) + COMMA
            if length > LONGEST:
                break
            some.append(self._left.popleft())
        return some

    def take_page(self, page: dict[str, Any]) -> None:
        """Adapt the size of groups to the number of entries on an answer's first page, unless it is the only page.

        Groups keep at least `LEAST` ids, even if the first page holds fewer.
        """
        if next_link(page) and (held := len(page.get("entry", ()))):
            self.most = min(self.most, max(held, LEAST))


def _read_ahead(client: SearchesById, groups: IdGroups) -> Iterator[list[Row]]:
    """Yield the resources of each group of ids, and request the next group meanwhile. Raises `SweepIncomplete`."""
    coming: deque[Future[list[Row]]] = deque()
    with threads(REQUESTS, "results") as pool:
        try:
            while True:
                while len(coming) < REQUESTS and (ids := groups.next()):
                    coming.append(pool.submit(_of_ids, client, ids, groups))
                if not coming:
                    return
                yield result_of(coming.popleft())
        finally:
            for each in coming:
                each.cancel()


def _of_ids(client: SearchesById, ids: list[str], groups: IdGroups) -> list[Row]:
    """Return the resources of these ids, each once. Raises `SweepIncomplete`.

    If the target refuses the request, ask for half as many ids, now and later. If the request fails otherwise, ask for
    as few as every target takes: the target may be away, and each further try is a long wait.
    """
    try:
        return _read(client, ids, groups)
    except NoResult as error:
        if isinstance(error, NotSent) or len(ids) <= SURELY_TAKEN:
            raise SweepIncomplete(f"{RESULT}s by `_id`: {error}") from None
        most = -(-len(ids) // 2) if isinstance(error, RequestRefused) else SURELY_TAKEN
    groups.most = min(groups.most, most)
    return [row for at in range(0, len(ids), most) for row in _of_ids(client, ids[at : at + most], groups)]


def _read(client: SearchesById, ids: list[str], groups: IdGroups) -> list[Row]:
    for _ in range(TRIES):
        read = PageReader(RESULT)
        rows = list(_rows(client, read, ids, groups))
        if not read.disagreement:
            return rows
    raise SweepIncomplete(read.disagreement)


def _rows(client: SearchesById, read: PageReader, ids: list[str], groups: IdGroups) -> Iterator[Row]:
    asked, size = set(ids), max(len(ids), SURELY_TAKEN)
    try:
        for page in client.pages(RESULT, {"_id": ",".join(ids), "_count": str(size)}):
            rows = read.new_rows(page)
            if read.pages == 1:
                groups.take_page(page)
            if not asked.issuperset(row[0] for row in rows):
                raise SweepIncomplete(f"the target answers a search for {RESULT}s by `_id` with others")
            yield from rows
    except IncompleteSearch:
        read.moved()


@contextmanager
def with_results(client: SearchesById, home: Path) -> Iterator["WithResults"]:
    """Yield a search of reports that includes their results. The file of included results is removed at the end."""
    with throwaway_folder(home) as folder:
        yield WithResults(client, folder / "included.parquet")


class WithResults:
    """A search whose first reading also asks for the results of reports, and keeps the included results in a file.

    If the search has to be read again, it is read without results, since a target may count included resources. file:
    each included result once, in the columns of `SWEPT`; missing if the last reading was without results. readings: the
    number of readings begun.
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
        with ParquetWriter(self.file, SWEPT) as out:
            for page in self._client.pages(resource_type, {"_include": INCLUDE}):
                with suppress(SweepIncomplete):  # one is odd: those of the page are requested by id
                    entries = {"resourceType": "Bundle", "total": 0, "entry": page.get("entry")}
                    out.add_batch(arrow.batch_of_rows(self._read.new_rows(entries), SWEPT))
                yield page


def sweep_including(including: WithResults, home: Path, target: str, clock: Callable[[], datetime] = now) -> Sweep:
    """Sweep the reports with their results; if that fails for any reason, sweep without results.

    Raises `SweepIncomplete` if the sweep without results fails too.
    """
    while True:
        try:
            return sweep(including, home, target, clock)
        except SweepIncomplete:
            if including.readings > 1:
                raise

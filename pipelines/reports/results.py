"""The results that reports name: reads these Observations from the target, and keeps them beside the swept reports.

They are asked for by id, as many at a time as an address holds that servers surely take, and as the target puts on a
page; two such requests are under way at once. Where a target includes results in pages of reports, these are kept until
the others are read, and are not asked for again.
One that the target does not have is left out of its answers; one that it had before counts as gone.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import duckdb

from pipelines.client.replies import NoResult, NotSent, Refused, next_link
from pipelines.client.threads import result_of, threads
from pipelines.client.whole import Incomplete
from pipelines.home import arrow
from pipelines.home.files import locked, session
from pipelines.home.scratch import throwaway_folder
from pipelines.home.spill import Writer
from pipelines.reports.pages import SWEPT, PageReader, Row, SweepIncomplete
from pipelines.reports.sweep import FILES, TRIES, Sweep, folder_of, keep, kept, now, sweep

RESULT = "Observation"
INCLUDE = "DiagnosticReport:result"
"""The name by which a CapabilityStatement says that a search of reports includes their results."""
IDS_A_REQUEST, REQUESTS = 500, 2
SURELY_TAKEN = 100
"""Ids in a request that is not made smaller where the target refuses it."""
LEAST = 10
"""Ids in a request where the target's pages hold fewer."""
LONGEST, COMMA = 4_000, len("%2C")
"""Characters of the ids in an address: some servers and proxies stop at 8,000 for it and all headers."""
ROWS_AT_ONCE = 4_000
NAMED = """
    CREATE TEMP TABLE named AS
    SELECT split_part(reference, '/', 1) AS id, bool_or(contains(reference, '/')) AS is_versioned FROM (
        SELECT unnest(
            regexp_extract_all(body, '["/]Observation/([A-Za-z0-9.-]{1,64}(?:/_history)?)[/"]', 1)
        ) AS reference
        FROM read_parquet($1) WHERE gone_at IS NULL
    ) GROUP BY ALL"""
"""The ids behind `Observation/` in the present reports. What is no result there costs a look-up, and no more.

Of one that a report names by version, that version is included, which may be an old one: it is asked for by id.
"""
INCLUDED = """
    SELECT report_id, content_hash, body FROM read_parquet($1)
    SEMI JOIN named ON report_id = id AND NOT is_versioned"""
OTHERS = "SELECT id FROM named ORDER BY id"
NOT_INCLUDED = "SELECT id FROM named ANTI JOIN read_parquet($1) ON report_id = id AND NOT is_versioned ORDER BY id"


class SearchesById(Protocol):
    """The part of the client that is used: yield the bundles of a search."""

    def pages(self, resource_type: str, params: dict[str, str] | None = None) -> Iterable[dict[str, Any]]: ...


def sweep_results(
    client: SearchesById,
    home: Path,
    target: str,
    clock: Callable[[], datetime] = now,
    included: Path | None = None,
) -> int:
    """Read the results that the last swept reports name, and keep them; return how many the target has.

    included: a file of results that came with the reports, of the columns of `SWEPT`, each once.

    Raises `SweepIncomplete`, and leaves those last read as they are.
    """
    reports, folder = kept(home, target).path, folder_of(home, target)
    final, part = folder / FILES[RESULT][0], folder / "results.part"
    with locked(folder / ".results.lock"), session(folder / ".results.spill") as db:
        started = clock()
        db.execute(NAMED, [str(reports)])
        with Writer(part, SWEPT) as out:
            for some in _all_of(client, db, included):
                out.add_batch(arrow.batch_of_rows(some, SWEPT))
        with locked(folder / ".kept.lock"):
            keep(final, part, started)
        part.unlink()
        return out.count


def _all_of(client: SearchesById, db: duckdb.DuckDBPyConnection, included: Path | None) -> Iterator[list[Row]]:
    """Yield the results that are named: those that are included, then the others by id. Raises `SweepIncomplete`."""
    if included is None:
        yield from _read_ahead(client, Groups(db.execute(OTHERS)))
        return
    there = db.execute(INCLUDED, [str(included)])
    while some := there.fetchmany(ROWS_AT_ONCE):
        yield some
    yield from _read_ahead(client, Groups(db.execute(NOT_INCLUDED, [str(included)])))


class Groups:
    """Ids in groups, each for one request.

    most: ids in a group; fewer once the size of the target's pages, or its limit, is known.
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
        """Take the first page of an answer: where another follows it, groups hold as many ids as it holds entries.

        That is at least `LEAST`, however little the first page happens to hold.
        """
        if next_link(page) and (held := len(page.get("entry", ()))):
            self.most = min(self.most, max(held, LEAST))


def _read_ahead(client: SearchesById, groups: Groups) -> Iterator[list[Row]]:
    """Yield the resources of each group of ids, asking for the next while one is understood.

    Raises `SweepIncomplete`.
    """
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


def _of_ids(client: SearchesById, ids: list[str], groups: Groups) -> list[Row]:
    """Return the resources of these ids, each once. Raises `SweepIncomplete`.

    A target that refuses so many at once is asked for half of them, and for no more from then on. One that fails may be
    away, and each further try a long wait: it is asked for as few at once as are surely taken.
    """
    try:
        return _read(client, ids, groups)
    except NoResult as error:
        if isinstance(error, NotSent) or len(ids) <= SURELY_TAKEN:
            raise SweepIncomplete(f"{RESULT}s by `_id`: {error}") from None
        most = -(-len(ids) // 2) if isinstance(error, Refused) else SURELY_TAKEN
    groups.most = min(groups.most, most)
    return [row for at in range(0, len(ids), most) for row in _of_ids(client, ids[at : at + most], groups)]


def _read(client: SearchesById, ids: list[str], groups: Groups) -> list[Row]:
    for _ in range(TRIES):
        read = PageReader(RESULT)
        rows = list(_rows(client, read, ids, groups))
        if not read.disagreement:
            return rows
    raise SweepIncomplete(read.disagreement)


def _rows(client: SearchesById, read: PageReader, ids: list[str], groups: Groups) -> Iterator[Row]:
    asked, size = set(ids), max(len(ids), SURELY_TAKEN)
    try:
        for page in client.pages(RESULT, {"_id": ",".join(ids), "_count": str(size)}):
            rows = read.new_rows(page)
            if read.pages == 1:
                groups.take_page(page)
            if not asked.issuperset(row[0] for row in rows):
                raise SweepIncomplete(f"the target answers a search for {RESULT}s by `_id` with others")
            yield from rows
    except Incomplete:
        read.moved()


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

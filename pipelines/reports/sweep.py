"""The sweep: read all resources of one type from the target, and keep them as Parquet in `<home>/batches/_reports/`.

The published tables are made of the swept DiagnosticReports; the Questionnaires give the words of answers. Every sweep
is full, since a watermark by date would lose late and corrected reports. The file tells for each resource when it was
first seen, when its content changed, and when it was gone. Pages are checked, not trusted: see `pages.py`.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from fhir_service.paths import exists
from pipelines.client.replies import NoResult
from pipelines.client.whole import AT_ONCE, LARGE, NONE, IncompleteSearch
from pipelines.home import arrow
from pipelines.home.files import locked, replace_whole, session, write_whole
from pipelines.home.spill import ParquetWriter, is_whole
from pipelines.reports.pages import RESOURCE, SWEPT, PageReader, SweepIncomplete
from pipelines.reports.publication import PublicationError

FILES = {
    RESOURCE: ("reports.parquet", "sweep.json"),
    "Questionnaire": ("questionnaires.parquet", "questionnaires.json"),
    "Observation": ("observations.parquet", ""),
    "QuestionnaireResponse": ("responses.parquet", "responses.json"),
    "Claim": ("claims.parquet", "claims.json"),
    "PaymentNotice": ("payments.parquet", "payments.json"),
    "Task": ("tasks.parquet", "tasks.json"),
    "Patient": ("patients.parquet", "patients.json"),
}
"""The file of each type's resources, and the file of the last sweep's figures; "" if the type is not swept itself."""
QUESTIONNAIRE = "Questionnaire"
BEFORE = "questionnaires_before.parquet"
"""The file of former questionnaires: each content that the target replaced or removed."""
TRIES = 3
OVERLAP = timedelta(hours=1)
"""The longest delay between a change's time and its appearance in a search."""
ROWS_A_GROUP = 4_000
MEGABYTES_A_GROUP = 16


class SearchesPages(Protocol):
    """The part of the client that the sweep uses: yield the bundles of a search, by following `next` links only."""

    def pages(self, resource_type: str) -> Iterable[dict[str, Any]]: ...


class Searches(Protocol):
    """The part of the client that is used; see `FhirClient.pages`."""

    def pages(
        self, resource_type: str, params: Mapping[str, str] | None, wishes: Mapping[str, str], at_once: int
    ) -> Iterator[dict[str, Any]]: ...


class WholeReads(NamedTuple):
    """The searches of a client for whole types: several pages are asked for at once. in_large_pages: True to wish for
    pages of the target's largest size.
    """

    client: Searches
    in_large_pages: bool = False

    def pages(self, resource_type: str, params: Mapping[str, str] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the bundles of a search."""
        return self.client.pages(resource_type, params, LARGE if self.in_large_pages else NONE, AT_ONCE)


@dataclass(frozen=True)
class Sweep:
    """A finished sweep of one type at one target. `path`: the Parquet file of its resources. Times are UTC.

    Columns of the file: report_id, content_hash, body (JSON without signed URLs), first_seen_at, changed_at, changes
    (number of later sweeps that found other content), gone_at (time of the first sweep that missed it; NULL while it is
    there).
    """

    target: str
    path: Path
    total: int
    started_at: datetime
    finished_at: datetime
    new: int = 0
    changed: int = 0
    gone: int = 0


def now() -> datetime:
    return datetime.now(UTC)


def sweep(
    client: SearchesPages, home: Path, target: str, clock: Callable[[], datetime] = now, resource_type: str = RESOURCE
) -> Sweep:
    """Read all resources of a type and keep them. Safe to stop and repeat: files are only replaced whole.

    Raises `SweepIncomplete` if a page cannot be read, or if pages and total still disagree at the third try.
    """
    folder = folder_of(home, target)
    final, figures = (folder / name for name in FILES[resource_type])
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(folder / ".lock"):
        part = folder / "sweep.part"
        started, total = read_whole(lambda: client.pages(resource_type), part, resource_type, clock)
        finished = clock()
        with locked(folder / ".kept.lock"):
            changes = keep(final, part, started)
            done = Sweep(target, final, total, started, finished, *changes)
            write_whole(figures, orjson.dumps({**asdict(done), "path": done.path.name}))
        part.unlink()
        return done


def kept_sweep(home: Path, target: str) -> Sweep:
    """Return the last finished sweep of the target's reports; an empty one if there was none."""
    with held_sweep(home, target) as last:
        return last


@contextmanager
def held_sweep(home: Path, target: str) -> Iterator[Sweep]:
    """Yield the last finished sweep of the target's reports. Within `with`, no other sweep replaces a file.

    The Parquet files of other types are in the same folder.
    """
    folder = folder_of(home, target)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(folder / ".kept.lock"):
        yield _last(folder, target)


def _last(folder: Path, target: str) -> Sweep:
    final, said = folder / FILES[RESOURCE][0], figures_of(folder, RESOURCE)
    total = _there(final)
    if not said:
        never = datetime.fromtimestamp(0, UTC)
        return Sweep(target, final, total, never, never)
    times = {name: datetime.fromisoformat(said[name]) for name in ("started_at", "finished_at")}
    return Sweep(**{**said, **times, "total": total, "path": folder / said["path"]})


def _there(file: Path) -> int:
    """Return how many resources of a file are at the target; 0 if the file cannot be read, nor its rows.

    Counted in the file: after a kill, the figures may still be those of the previous sweep.
    """
    try:
        with pq.ParquetFile(file) as found:
            return int(found.read(columns=["gone_at"])["gone_at"].null_count)
    except (OSError, pa.ArrowException):
        return 0


def whole_readings(folder: Path) -> Iterator[tuple[str, datetime]]:
    """Yield each type that was read whole, and the start of its last whole reading."""
    for resource_type in FILES:
        if said := figures_of(folder, resource_type):
            yield resource_type, datetime.fromisoformat(said.get("whole_at") or said["started_at"])


def last_read(folder: Path, resource_type: str) -> datetime | None:
    """Return the start of a type's last reading, whole or of changes; None if the type was never read."""
    said = figures_of(folder, resource_type)
    return datetime.fromisoformat(said.get("read_at") or said.get("whole_at") or said["started_at"]) if said else None


def figures_of(folder: Path, resource_type: str) -> dict[str, Any]:
    """Return the figures of a type's last reading; empty if it was never read, is not read by itself, or they
    are damaged.
    """
    try:
        said: dict[str, Any] = json.loads((folder / FILES[resource_type][1]).read_text())
    except (FileNotFoundError, IsADirectoryError, ValueError):  # a type without such a file names the folder itself
        return {}
    return said


def folder_of(home: Path, target: str) -> Path:
    """Return the folder of the sweeps of a target."""
    return home / "batches" / "_reports" / hashlib.sha256(target.encode()).hexdigest()[:12]


def read_whole(
    pages: Callable[[], Iterable[dict[str, Any]]], part: Path, resource_type: str, clock: Callable[[], datetime]
) -> tuple[datetime, int]:
    """Write all resources of a search to `part`; return when the search began, and how many resources there are.

    pages: begins the search and returns its bundles. Raises `SweepIncomplete` if a page cannot be read, or if pages and
    total still disagree at the third try.
    """
    for _ in range(TRIES):
        started = clock()
        read = _read_all(pages(), part, resource_type)
        if not read.disagreement:
            return started, read.total
    raise SweepIncomplete(read.disagreement)


def _read_all(pages: Iterable[dict[str, Any]], part: Path, resource_type: str) -> PageReader:
    """Write the resources of all pages to `part`, each id once; return the reader. Raises `SweepIncomplete`."""
    read = PageReader(resource_type)
    with ParquetWriter(part, SWEPT) as out:
        try:
            for page in pages:
                out.add_batch(arrow.batch_of_rows(read.new_rows(page), SWEPT))
        except IncompleteSearch:
            read.moved()
        except NoResult as error:
            raise SweepIncomplete(f"page {read.pages + 1}: {error}") from None
    return read


NOTHING_KNOWN = """
SELECT NULL::VARCHAR AS report_id, NULL::VARCHAR AS content_hash, NULL::VARCHAR AS body,
  NULL::TIMESTAMPTZ AS first_seen_at, NULL::TIMESTAMPTZ AS changed_at, NULL::BIGINT AS changes,
  NULL::TIMESTAMPTZ AS gone_at
WHERE false"""
MERGE = """
CREATE TEMP TABLE merged AS
SELECT
    coalesce(swept.content_hash <> known.content_hash, false) AS is_changed,
    coalesce(swept.report_id, known.report_id) AS report_id,
    coalesce(swept.content_hash, known.content_hash) AS content_hash,
    coalesce(known.first_seen_at, $started) AS first_seen_at,
    CASE WHEN is_changed THEN $started ELSE known.changed_at END AS changed_at,
    coalesce(known.changes, 0) + is_changed::BIGINT AS changes,
    CASE WHEN swept.report_id IS NULL THEN coalesce(known.gone_at, CASE WHEN $whole THEN $started END) END AS gone_at,
    known.report_id IS NULL AS is_new,
    swept.report_id IS NULL AND known.gone_at IS NULL AND $whole AS is_gone,
    swept.report_id IS NOT NULL AND known.gone_at IS NOT NULL AS is_back
FROM (SELECT report_id, content_hash FROM swept) AS swept
FULL JOIN (SELECT * EXCLUDE (body) FROM known) AS known ON swept.report_id = known.report_id"""
COUNT_CHANGES = "SELECT count_if(is_new), count_if(is_changed), count_if(is_gone), count_if(is_back) FROM merged"
WITH_BODIES = """
SELECT state.report_id, state.content_hash, body, first_seen_at, changed_at, changes, gone_at
FROM swept INNER JOIN merged AS state USING (report_id)
UNION ALL
SELECT state.report_id, state.content_hash, body, state.first_seen_at, state.changed_at, state.changes, state.gone_at
FROM known INNER JOIN merged AS state USING (report_id) ANTI JOIN swept USING (report_id)"""

FORMER = """
SELECT known.report_id, known.content_hash, known.body, from_at,
    CASE WHEN known.gone_at IS NULL THEN greatest(from_at, $last::TIMESTAMPTZ) ELSE from_at END AS seen_at,
    $started AS until_at
FROM (SELECT *, coalesce(changed_at, first_seen_at) AS from_at FROM known) AS known
LEFT JOIN swept USING (report_id)
WHERE swept.content_hash <> known.content_hash OR (swept.report_id IS NULL AND known.gone_at IS NULL)"""

GROUPS: dict[str, Any] = {
    "compression": "zstd",
    "row_group_size": ROWS_A_GROUP,
    "row_group_size_bytes": f"{MEGABYTES_A_GROUP}MiB",
}


def known_in(db: duckdb.DuckDBPyConnection, file: Path) -> duckdb.DuckDBPyRelation:
    """Return the resources in a file; an empty relation if there is no file. Raises `PublicationError` for one that is
    damaged: it has contents, and times, that the target shows no more.
    """
    if not exists(file):
        return db.sql(NOTHING_KNOWN)
    if not is_whole(file):
        raise PublicationError(f"not published: {file} is damaged: put a copy back, or remove it, and start again")
    return db.read_parquet(str(file))


def _keep_former(db: duckdb.DuckDBPyConnection, folder: Path, started: datetime) -> None:
    """Keep the former contents of questionnaires that this sweep found replaced or gone.

    Columns in addition to those of a sweep: from_at and seen_at (since and until when the content surely was there),
    until_at (when this sweep began). A questionnaire that is gone may come back with another content. After a kill,
    some rows may occur twice.
    """
    before, merged = folder / BEFORE, folder / "before.part"
    # After a kill during the first sweep there are no figures: then only the start of the content is known.
    last = figures_of(folder, QUESTIONNAIRE).get("started_at")
    replaced = db.sql(FORMER, params={"started": started, "last": last})
    former = replaced.union(db.read_parquet(str(before))) if exists(before) else replaced
    former.write_parquet(str(merged), compression="zstd")
    replace_whole(merged, before)


def keep(final: Path, part: Path, started: datetime, whole: bool = True) -> tuple[int, int, int]:
    """Merge the swept resources into the kept file, written only if it differs; count new, changed and gone ones.

    whole: True if a resource that was not swept is gone. Replaced contents of questionnaires are kept in `BEFORE`.
    """
    merged = final.with_suffix(".part")
    with session(final.with_name(".spill")) as db:
        db.read_parquet(str(part)).create_view("swept")
        known_in(db, final).create_view("known")
        db.execute(MERGE, {"started": started, "whole": whole})
        [(new, changed, gone, back)] = db.execute(COUNT_CHANGES).fetchall()
        if (changed or gone) and final.name == FILES[QUESTIONNAIRE][0]:
            _keep_former(db, final.parent, started)
        if new or changed or gone or back or not exists(final):
            db.sql(WITH_BODIES).write_parquet(str(merged), **GROUPS)
            replace_whole(merged, final)
        return new, changed, gone

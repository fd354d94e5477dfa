"""The sweep: every DiagnosticReport of the target, kept by id and content as Parquet under `<home>/batches/_reports/`.

Sweeps are full: a watermark by date would lose late and corrected reports. What is kept remembers, per report, whether
a later sweep found its content changed, and marks those that are gone.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.storage import locked, replace_whole, session, write_whole

RESOURCE = "DiagnosticReport"
TRIES = 3
ROWS_A_GROUP = 4_000
SWEPT = pa.schema([("report_id", pa.string()), ("content_hash", pa.string()), ("body", pa.string())])


class SweepIncomplete(Exception):
    """The target's pages did not hold as many different reports as its total says."""


class SearchesPages(Protocol):
    """What the sweep needs of a client: the bundles of a search, by following `next` links only."""

    def pages(self, resource_type: str) -> Iterable[dict[str, Any]]: ...


@dataclass(frozen=True)
class Sweep:
    """A finished sweep of one target. `path` is the Parquet of its reports; times are UTC.

    Columns: report_id, content_hash, body (JSON without signed URLs), first_seen_at, changed_at, changes (how often
    a later sweep found other content), gone_at (when a sweep no longer found it; empty while it is there).
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


def sweep(client: SearchesPages, home: Path, target: str, clock: Callable[[], datetime] = now) -> Sweep:
    """Reads all reports of the target and keeps them; safe to stop and repeat: files are only replaced whole.

    Raises `SweepIncomplete` when the pages and the total still disagree at the third try, and what the client raises.
    """
    folder = _folder(home, target)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(folder / ".lock"):
        part = folder / "sweep.part"
        for _ in range(TRIES):
            started = clock()
            total, distinct = _read_all(client, part)
            if total == distinct:
                break
        else:
            raise SweepIncomplete(f"the target counts {total} reports and its pages held {distinct}")
        finished = clock()
        with locked(folder / ".kept.lock"):
            changes = _keep(folder, part, started)
            done = Sweep(target, folder / "reports.parquet", total, started, finished, *changes)
            write_whole(folder / "sweep.json", orjson.dumps({**asdict(done), "path": done.path.name}))
        part.unlink()
        return done


def kept(home: Path, target: str) -> Sweep:
    """The last finished sweep of the target; one without reports when there was none."""
    with held(home, target) as last:
        return last


@contextmanager
def held(home: Path, target: str) -> Iterator[Sweep]:
    """The last finished sweep, and within `with` its file stays the one it tells of, however many sweep meanwhile."""
    folder = _folder(home, target)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(folder / ".kept.lock"):
        yield _last(folder, target)


def _last(folder: Path, target: str) -> Sweep:
    try:
        said = json.loads((folder / "sweep.json").read_text())
    except FileNotFoundError:
        never = datetime.fromtimestamp(0, UTC)
        return Sweep(target, folder / "reports.parquet", 0, never, never)
    times = {name: datetime.fromisoformat(said[name]) for name in ("started_at", "finished_at")}
    return Sweep(**{**said, **times, "path": folder / said["path"]})


def without_signatures(report: dict[str, Any]) -> dict[str, Any]:
    """The report as it is kept: no presigned URLs, and document addresses without the server's own.

    Neither is content: the one changes with every read, the other when the server moves.
    """
    if "presentedForm" not in report:
        return report
    return {**report, "presentedForm": [_document(form) for form in report["presentedForm"]]}


def _document(form: dict[str, Any]) -> dict[str, Any]:
    left = [e for e in form.get("extension", ()) if not str(e.get("url", "")).endswith("/deprecated-url")]
    plain = {name: value for name, value in form.items() if name != "extension"}
    if left:
        plain["extension"] = left
    if isinstance(form.get("url"), str):
        address = form["url"].partition("?")[0]
        plain["url"] = address[max(address.find(f"{RESOURCE}/"), 0) :]
    return plain


def _folder(home: Path, target: str) -> Path:
    return home / "batches" / "_reports" / hashlib.sha256(target.encode()).hexdigest()[:12]


def _read_all(client: SearchesPages, part: Path) -> tuple[int, int]:
    """Writes what the pages hold, each id once; gives the total that the last page says, and the number of ids."""
    total, seen = 0, set[str]()
    with pq.ParquetWriter(part, SWEPT, compression="zstd") as writer:
        rows: list[tuple[str, str, str]] = []
        for page in client.pages(RESOURCE):
            total = page["total"]
            rows.extend(_new_rows(page, seen))
            if len(rows) >= ROWS_A_GROUP:
                writer.write_table(_table(rows))
                rows.clear()
        writer.write_table(_table(rows))
    return total, len(seen)


def _new_rows(page: dict[str, Any], seen: set[str]) -> Iterator[tuple[str, str, str]]:
    for entry in page.get("entry", ()):
        report = without_signatures(entry["resource"])
        if report["id"] not in seen:
            seen.add(report["id"])
            body = orjson.dumps(report, option=orjson.OPT_SORT_KEYS, default=str)
            yield report["id"], hashlib.sha256(body).hexdigest(), body.decode()


def _table(rows: list[tuple[str, str, str]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ([], [], [])
    return pa.table([pa.array(c, pa.string()) for c in columns], schema=SWEPT)


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
    CASE WHEN swept.report_id IS NULL THEN coalesce(known.gone_at, $started) END AS gone_at,
    known.report_id IS NULL AS is_new,
    swept.report_id IS NULL AND known.gone_at IS NULL AS is_gone,
    swept.report_id IS NOT NULL AND known.gone_at IS NOT NULL AS is_back
FROM (SELECT report_id, content_hash FROM swept) AS swept
FULL JOIN (SELECT * EXCLUDE (body) FROM known) AS known ON swept.report_id = known.report_id"""
COUNT_CHANGES = "SELECT count_if(is_new), count_if(is_changed), count_if(is_gone), count_if(is_back) FROM merged"
WITH_BODIES = """
SELECT state.report_id, state.content_hash, body, first_seen_at, changed_at, changes, gone_at
FROM swept INNER JOIN merged AS state USING (report_id)
UNION ALL
SELECT state.report_id, state.content_hash, body, state.first_seen_at, state.changed_at, state.changes, state.gone_at
FROM known INNER JOIN merged AS state USING (report_id)
WHERE state.gone_at IS NOT NULL"""


def _keep(folder: Path, part: Path, started: datetime) -> tuple[int, int, int]:
    """Merges the swept reports into the kept ones, rewritten when anything differs; counts new, changed, gone."""
    final, merged = folder / "reports.parquet", folder / "reports.part"
    with session(folder / ".spill") as db:
        db.read_parquet(str(part)).create_view("swept")
        (db.read_parquet(str(final)) if final.exists() else db.sql(NOTHING_KNOWN)).create_view("known")
        db.execute(MERGE, {"started": started})
        [(new, changed, gone, back)] = db.execute(COUNT_CHANGES).fetchall()
        if new or changed or gone or back or not final.exists():
            db.sql(WITH_BODIES).write_parquet(str(merged), compression="zstd", row_group_size=ROWS_A_GROUP)
            replace_whole(merged, final)
        return new, changed, gone

"""Sweep resource types that other programs write too: whole once a day, and only the changes in between.

Changes are read only where the target has a search by `_lastUpdated`. The search starts an hour before the newest
change seen, by the target's clock, since a change may become visible later than its time. A change dated in the future,
as by a wrong clock, counts as of the time of reading: it would otherwise hide all changes before its time. A removed
resource is noticed by the next whole sweep. If `verify` has found a resource gone, the next sweep is whole.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import orjson

from fhir_service.paths import exists
from pipelines.home.files import locked, session, write_whole
from pipelines.reports.results import SearchesById
from pipelines.reports.sweep import FILES, OVERLAP, figures_of, folder_of, keep, now, read_whole

WHOLE_AFTER = timedelta(days=1)
NEWEST = """
    SELECT CASE WHEN count(changed) = count(*) THEN max(changed) END
    FROM (SELECT try_cast(body ->> '$.meta.lastUpdated' AS TIMESTAMPTZ) AS changed FROM read_parquet($1))"""
"""The time of the newest change; NULL if a resource has no `meta.lastUpdated`."""


def sweep_changes(
    client: SearchesById,
    home: Path,
    target: str,
    resource_type: str,
    is_dated: bool = False,
    is_asked_for: bool = False,
    clock: Callable[[], datetime] = now,
) -> bool:
    """Read the resources of a type, or their changes since the last reading, and keep them; return True if it was due.

    Args:
        client: Searches the target.
        home: The home that keeps the resources.
        target: The target's name in the ledger.
        resource_type: The type.
        is_dated: True if the target has a search by `_lastUpdated`.
        is_asked_for: True to read all of them where changes cannot be searched, even within a day of the last sweep.
        clock: Returns the present time.

    Raises:
        SweepIncomplete: The resources could not be read. Those of the last reading stay.
    """
    folder = folder_of(home, target)
    final, figures = (folder / name for name in FILES[resource_type])
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(folder / ".changes.lock"):
        said = figures_of(folder, resource_type)
        last_whole, newest = (_moment(said.get(name)) for name in ("whole_at", "newest"))
        whole = last_whole is None or said.get("is_due") or not exists(final) or clock() - last_whole >= WHOLE_AFTER
        since = None if whole or newest is None or not is_dated else newest - OVERLAP
        if since is None and not whole and not is_asked_for:
            return False
        part = folder / "changes.part"
        params = {"_lastUpdated": f"ge{since:%Y-%m-%dT%H:%M:%SZ}"} if since else None
        started, total = read_whole(lambda: client.pages(resource_type, params), part, resource_type, clock)
        with session(folder / ".changes.spill") as db:
            [[seen]] = db.execute(NEWEST, [str(part)]).fetchall()
        if since and not total:
            seen = newest
        seen = min(seen, started) if seen else None
        with locked(folder / ".kept.lock"):
            keep(final, part, started, whole=since is None)
        part.unlink()
        whole_at = last_whole if since else started
        write_whole(figures, orjson.dumps({"whole_at": whole_at, "newest": seen, "read_at": started}))
    return True


def read_whole_next(home: Path, target: str, resource_type: str) -> None:
    """Make the next reading of the type a whole one, if the type was read before."""
    folder = folder_of(home, target)
    if figures_of(folder, resource_type):
        with locked(folder / ".changes.lock"):
            said = figures_of(folder, resource_type) | {"is_due": True}
            write_whole(folder / FILES[resource_type][1], orjson.dumps(said))


def _moment(said: str | None) -> datetime | None:
    return datetime.fromisoformat(said) if said else None

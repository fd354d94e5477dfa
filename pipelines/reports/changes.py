"""Resources that others write too: read whole once a day, and in between what has changed, if the target tells that.

A search by `_lastUpdated` goes back an hour before the newest change that was seen, by the target's own clock, since a
change may show later than its time. A change that is dated ahead of time, as by a clock that was wrong, counts as of
the reading: it would hide all that come before its time. A resource that was removed is noticed by the next whole
sweep, which comes sooner where `verify` has found one gone.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import orjson

from pipelines.home.files import locked, session, write_whole
from pipelines.home.paths import exists
from pipelines.reports.results import SearchesById
from pipelines.reports.sweep import FILES, OVERLAP, figures_of, folder_of, keep, now, read_whole

WHOLE_AFTER = timedelta(days=1)
NEWEST = """
    SELECT CASE WHEN count(changed) = count(*) THEN max(changed) END
    FROM (SELECT try_cast(body ->> '$.meta.lastUpdated' AS TIMESTAMPTZ) AS changed FROM read_parquet($1))"""
"""The time of the newest change; none if a resource does not tell."""


def sweep_changes(
    client: SearchesById,
    home: Path,
    target: str,
    resource_type: str,
    is_dated: bool = False,
    is_asked_for: bool = False,
    clock: Callable[[], datetime] = now,
) -> bool:
    """Read the resources of a type, or what has changed since they were last read, and keep them; return if it was due.

    Args:
        client: Searches the target.
        home: The home that keeps them.
        target: The target, as the ledger knows it.
        resource_type: The type.
        is_dated: True if the target has a search by `_lastUpdated`.
        is_asked_for: True if they are read whole even if that was done within a day and changes cannot be asked for.
        clock: Tells the time.

    Raises:
        SweepIncomplete: They could not be read. Those read before stay.
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
    """Let the next reading of the type be whole, if it was read before."""
    folder = folder_of(home, target)
    if figures_of(folder, resource_type):
        with locked(folder / ".changes.lock"):
            said = figures_of(folder, resource_type) | {"is_due": True}
            write_whole(folder / FILES[resource_type][1], orjson.dumps(said))


def _moment(said: str | None) -> datetime | None:
    return datetime.fromisoformat(said) if said else None

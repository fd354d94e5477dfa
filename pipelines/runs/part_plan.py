"""The plan of a load in parts, and the orders made from it for its own workers and those that join it.

A plan is announced by a file in the run's folder, named by the owner of the target's lease. Like that folder, it
contains keys of rows. It contains no credentials: a process that joins has a session of its own.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path

from fhir_service.paths import exists, matching
from pipelines.client.pace import Pace
from pipelines.home.files import write_whole
from pipelines.loading.load import Load
from pipelines.loading.load_counts import BatchRun
from pipelines.runs.order import PartsPlan, WorkerOrder
from pipelines.session.session import Session

PLANS = "parts-*.json"
PARTS_A_WORKER = 4
"""More parts than workers: an early worker takes another part, and a killed one leaves fewer rows to look up."""


def plan_of(load: Load, workers: int) -> PartsPlan:
    """Return the plan for a load by so many workers, before any row is settled or sent."""
    first = not load.ledger.row_counts(load.batch.target, load.batch.batch_id)
    return PartsPlan(workers * PARTS_A_WORKER, workers, first)


def order_of(session: Session, batch: BatchRun, loader: str, plan: PartsPlan) -> WorkerOrder:
    """Return the order for each worker. loader: the owner of the target's lease."""
    connection = session.connection
    pace = replace(session.pace, per_second=session.pace.per_second or connection.client.profile.per_second)
    feed = replace(batch.feed, tables={}, environ={})  # other parts of the feed are needed only to read files
    return WorkerOrder(
        replace(batch, run=None, feed=feed, pace=share(pace, plan.workers), workers=plan.workers),
        plan,
        loader,
        _address(session),
        connection.base_url,
        connection.credentials,
        connection.capabilities,
        connection.client.profile,
    )


def share(pace: Pace, workers: int) -> Pace:
    """Return the pace of one worker: its share of the target's pace."""
    per_second = pace.per_second and pace.per_second / workers
    return replace(pace, at_once=max(1, pace.at_once // workers), per_second=per_second)


def announce(session: Session, load: Load, plan: PartsPlan) -> None:
    """Announce the plan, so that others can join. They read it once they see which process holds the target."""
    folder = load.batch.folder
    path = _path(folder, load.lease.owner)
    write_whole(path, json.dumps({**asdict(plan), "freed": sorted(plan.freed)}).encode())
    session.batches.keep(load.batch.batch_id, f"{folder.name}/{path.name}")


def announced_plan(session: Session, batch: BatchRun, loader: str) -> PartsPlan | None:
    """Return the plan of the load that holds the target; None if it loads another batch or run, or cannot be joined."""
    path = _path(batch.folder, loader)
    session.batches.renew(batch.batch_id, f"{batch.folder.name}/{path.name}")
    return _read(path) if exists(path) else None


def is_joined(folder: Path) -> bool:
    """True if a load of a run was announced before. Later ones must be announced too, for `is_first` to see them."""
    return any(matching(folder, PLANS))


def is_first(folder: Path) -> bool:
    """True if a run was loaded in parts only once and from its beginning, as the plans in its folder say."""
    plans = [_read(path) for path in matching(folder, PLANS)]
    return len(plans) == 1 and plans[0].first


def _path(folder: Path, loader: str) -> Path:
    return folder / PLANS.replace("*", loader)


def _read(path: Path) -> PartsPlan:
    said = json.loads(path.read_bytes())
    return PartsPlan(**{**said, "freed": set(said["freed"])})


def _address(session: Session) -> str | Path:
    url = session.ledger.engine.url
    return Path(str(url.database)) if url.get_backend_name() == "sqlite" else url.render_as_string(hide_password=False)

"""Whether the ledger is behind what lies in the home: it is lost, or an older copy, while its runs are here."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.feeds.catalog import Feed
from pipelines.manifest import ledger_is_behind
from pipelines.session import Session, received_before


def batch_behind(session: Session, feed: Feed, batch_id: str) -> str | None:
    """A batch with records of the feed's source and kind of which the ledger lacks runs: this one before others.

    What such a batch sent may come again in any file. Batches whose source rows are purged are passed over: nothing can
    be found out of them. Looked up once a session.
    """
    if session.behind is None:
        session.behind = dict(_behind(session))
    here = [name for name, about in session.behind.items() if about in (None, (feed.source, feed.resource))]
    return batch_id if batch_id in here else next(iter(here), None)


def _behind(session: Session) -> Iterator[tuple[str, tuple[str, str] | None]]:
    """Batches, each with its source and kind of resource where a run has put them down."""
    numbers = session.ledger.run_numbers(session.target)
    for folder in sorted((session.home / "batches").iterdir()):
        runs = [run.name for run in folder.glob("run-*")]
        known = {f"run-{number}" for number in numbers.get(folder.name, ())}
        if known.issuperset(runs) or received_before(folder) is None:
            continue
        if ledger_is_behind(session.home, session.ledger, session.target, folder.name):
            yield folder.name, _about(folder)


def _about(folder: Path) -> tuple[str, str] | None:
    manifests: list[dict[str, Any]] = [json.loads(path.read_bytes()) for path in folder.glob("run-*/manifest.json")]
    return next(((each["source"], each["resource"]) for each in manifests if "source" in each), None)

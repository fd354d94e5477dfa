"""Why imports wait: reference data that is not loaded yet, a target that does not answer, or an inbox out of reach.

The reason is computed only once something has waited for some minutes, so that it costs nothing while all is well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipelines.dagster.inbox.look import lain_with_feed
from pipelines.dagster.inbox.outside_inbox import out_of_reach
from pipelines.dagster.reference import looks_new, named_files
from pipelines.dagster.unfinished import left_batches, somebody_loads
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import printable_name
from pipelines.home.counted import listed
from pipelines.home.inbox import Inbox
from pipelines.importing.current_problems import NAMED, loaded_last
from pipelines.session.bundled import is_bundled
from pipelines.session.connections import target_now
from pipelines.session.ledger import ledger_of

PATIENCE = timedelta(minutes=5)


@dataclass(frozen=True)
class WaitReason:
    """The reason why imports wait. cause: reference, target or inbox. files: all files that wait."""

    cause: str
    why: str
    files: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"Imports wait, because {self.why}{': ' if self.files else ''}{listed(self.files, NAMED)}."


def waiting_now(home: Path, environ: Mapping[str, str], feeds: Sequence[Feed], now: datetime) -> WaitReason | None:
    """Return the cause if imports have waited for `PATIENCE`; None if nothing blocks them."""
    in_inbox = tuple(sorted(lain_with_feed(home, environ, feeds, now, PATIENCE)))
    new = looks_new(home) if is_bundled(environ) else []
    if in_inbox and new and all(_came(path) <= now - PATIENCE for path in new):
        return WaitReason("reference", f"reference data is not loaded ({named_files(new)})", in_inbox)
    files = in_inbox + _left(home, environ)
    if files and target_now(home, environ) is None:
        which = "the bundled service does not run" if is_bundled(environ) else "the target does not answer"
        return WaitReason("target", which, files)
    return _beyond(Inbox.of(home, environ), home, now)


def _beyond(inbox: Inbox, home: Path, now: datetime) -> WaitReason | None:
    found = out_of_reach(home, now) if inbox.beyond else None
    if found is None or found.since > now - PATIENCE:
        return None
    return WaitReason("inbox", f"nothing can be taken in from {inbox.beyond} ({found.why})", ())


def _came(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_ctime, UTC)


def _left(home: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files of batches without an end that have made no progress for `PATIENCE`."""
    with ledger_of(home, environ) as ledger:
        if ledger is None:
            return ()
        target, before = loaded_last(ledger) or "", ledger.clock() - PATIENCE
        left = [each for each in left_batches(ledger, home, target) if each.since <= before]
        if not left or somebody_loads(ledger):
            return ()
    return tuple(printable_name(each.file_name or each.batch_id) for each in left)

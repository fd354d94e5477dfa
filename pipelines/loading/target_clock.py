"""The clock of a target compared with the ledger's, which may have been ahead. Runs note it when they begin."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

from fhir_service.paths import matching
from pipelines.client.comparison import moment
from pipelines.home.batch_files import MANIFESTS
from pipelines.ledger.manifests import run_of
from pipelines.loading.lookup import ahead
from pipelines.session.session import Session

AHEAD = "target_ahead_us"
"""The manifest's field for the microseconds that the target's clock was ahead of the ledger's, at least."""
MOST = 1 << 60


def ahead_now(session: Session) -> int | None:
    """Return the microseconds that the target's clock is ahead of the ledger's, at least; None if it shows no clock."""
    return ahead(session.connection.client, session.ledger.clock())


def ahead_in(manifest: Mapping[str, Any]) -> timedelta | None:
    """Return how far the target's clock was ahead when a run began; None if it showed none, or if it was not noted."""
    said = manifest.get(AHEAD)
    return timedelta(microseconds=said) if isinstance(said, int) and abs(said) < MOST else None


class TargetClock:
    """Notes of runs about the clock of a target, by batch: the moment, and how far the clock was ahead."""

    def __init__(self, noted: Mapping[str, list[tuple[str, timedelta]]]) -> None:
        self._noted = {batch: sorted(runs) for batch, runs in noted.items()}

    @classmethod
    def of(cls, session: Session, batch_id: str | None = None) -> Self:
        """Read the manifests of a batch, or of all batches."""
        batches = session.batches
        batches.bring(names := batches.names() if batch_id is None else [batch_id], MANIFESTS)
        return cls.in_runs((run for name in names for run in matching(batches.path / name, "run-*")), session.target)

    @classmethod
    def in_runs(cls, folders: Iterable[Path], target: str) -> Self:
        """Read the manifests of these runs that were for a target."""
        noted = defaultdict[str, list[tuple[str, timedelta]]](list)
        for run in folders:
            said = run_of(run, target)
            if said and (by := ahead_in(said)) is not None:
                noted[run.parent.name].append((said["started_at"], by))
        return cls(noted)

    def shown_at(self, batch_id: str, said: str | None) -> datetime | None:
        """Return the target's time at a moment (UTC text) of a batch's run; the ledger's time if it was not noted."""
        at, by = moment(said), self.ahead_at(batch_id, said)
        return at + by if at and by is not None else at

    def ahead_at(self, batch_id: str, said: str | None) -> timedelta | None:
        """Return how far the target's clock was ahead at a moment (UTC text) of a batch's run; None if unknown."""
        runs = self._noted.get(batch_id, [])
        before = bisect_right(runs, (str(said), timedelta.max))
        return runs[before - 1][1] if before else None

    def most_behind(self) -> timedelta:
        """Return the longest time that the target's clock was behind the ledger's."""
        return max((-by for runs in self._noted.values() for _, by in runs), default=timedelta(0))

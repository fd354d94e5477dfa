"""Open the ledger for the standing checks: broken batches, unexpected files, and the figures for Prometheus."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from pipelines.dagster.standing.specs import expecting
from pipelines.feeds.files.catalog import Feed
from pipelines.importing.broken import Broken, broken_now
from pipelines.importing.expected import Unexpected, unexpected_now
from pipelines.importing.figures import write_figures
from pipelines.session.ledger import has_ledger, open_ledger


def broken_in(home: Path, environ: Mapping[str, str]) -> dict[str, Broken]:
    """Return what is broken, by feed; empty if there is no ledger yet."""
    if not has_ledger(home, environ):
        return {}
    with closing(open_ledger(home, environ)) as ledger:
        return broken_now(ledger, home, datetime.now(UTC))


def write_figures_of(home: Path, environ: Mapping[str, str]) -> None:
    """Put `metrics.prom` into the home, where there is a ledger to tell of."""
    if has_ledger(home, environ):
        with closing(open_ledger(home, environ)) as ledger:
            write_figures(home, ledger)


def unexpected_in(home: Path, environ: Mapping[str, str], feeds: Sequence[Feed]) -> dict[str, Unexpected]:
    """Return what is not as expected, by feed; empty if no feed expects something, or there is no ledger yet."""
    if not expecting(feeds) or not has_ledger(home, environ):
        return {}
    with closing(open_ledger(home, environ)) as ledger:
        return unexpected_now(ledger, feeds, datetime.now(UTC))

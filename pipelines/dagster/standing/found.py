"""Open the ledger for the standing checks: broken batches and unexpected files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines.dagster.standing.specs import expecting
from pipelines.feeds.files.catalog import Feed
from pipelines.home.preparing import check_mounted
from pipelines.importing.broken import Broken, broken_now
from pipelines.importing.expected import Unexpected, unexpected_now
from pipelines.session.ledger import ledger_of


def broken_in(home: Path, environ: Mapping[str, str]) -> dict[str, Broken]:
    """Return what is broken, by feed; empty if there is no ledger yet. Raises `BadHome` where it may be elsewhere."""
    check_mounted(home, environ)
    with ledger_of(home, environ) as ledger:
        return broken_now(ledger, home, ledger.clock()) if ledger else {}


def unexpected_in(home: Path, environ: Mapping[str, str], feeds: Sequence[Feed]) -> dict[str, Unexpected]:
    """Return what is not as expected, by feed; empty if no feed expects something, or there is no ledger yet."""
    if not expecting(feeds):
        return {}
    with ledger_of(home, environ) as ledger:
        return unexpected_now(ledger, feeds, ledger.moments.shown()) if ledger else {}

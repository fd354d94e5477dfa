"""Export rejects of a home in the form they came in, for correction; discard rejects for good, with a decision."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines.corrections.exporting import ExportResult, export
from pipelines.feeds.files.catalog import home_catalog
from pipelines.home.preparing import prepare_home
from pipelines.home.user import user_name
from pipelines.ledger.addresses import known_as
from pipelines.ledger.rejects import discard, targets_with_rejects
from pipelines.session.connections import connect
from pipelines.session.ledger import ledger_of, nothing_in


def export_home(
    home: Path,
    environ: Mapping[str, str],
    feed_folders: Sequence[Path],
    insecure: bool = False,
    batch_id: str | None = None,
    out: Path | None = None,
) -> ExportResult:
    """Export the open rejects of a home. The target is asked for its name only if the ledger has rejects of several."""
    with ledger_of(home, environ) as ledger:
        if ledger is None:
            return ExportResult(of=batch_id)
        prepare_home(home)
        catalog = home_catalog(home, environ, feed_folders)
        targets = targets_with_rejects(ledger)
        if len(targets) > 1:
            with connect(home, environ, insecure) as connection:
                targets = [known_as(ledger, connection.id)]
        return export(home, ledger, catalog, targets[0], batch_id, out) if targets else ExportResult(of=batch_id)


NOT_OPEN = {
    "unknown": "no such reject (chartferry status BATCH lists the rejects of a batch)",
    "closed": "is closed already",
    "resubmitted": "is on its way again",
}


def discard_in(home: Path, environ: Mapping[str, str], ids: Sequence[str], why: str) -> tuple[int | None, list[str]]:
    """Discard all of these rejects or none. Return their number, earlier discards included, and what prevents it."""
    with ledger_of(home, environ) as ledger:
        if ledger is None:
            return None, [nothing_in(home)]
        ledger.take_up_journal(home)
        wrong = discard(ledger, list(dict.fromkeys(ids)), user_name(), why)
    return (None if wrong else len(set(ids))), [f"{name}: {NOT_OPEN[state]}" for name, state in wrong.items()]

"""The standing checks for each feed, the inbox, and waiting imports: their descriptions and their present verdicts.

Verdicts are the arguments of a check's result in Dagster.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from pipelines.dagster import metadata
from pipelines.dagster.inbox.files import LAIN_TOO_LONG, lain_for
from pipelines.dagster.names import DagsterNames
from pipelines.dagster.waiting import waiting_now
from pipelines.feeds.files.catalog import Feed, plain
from pipelines.home.batch import printable_name
from pipelines.home.preparing import check_mounted
from pipelines.importing.current_problems import NAMED, FeedProblems, broken_now
from pipelines.importing.expectations import Deviations, unexpected_now
from pipelines.ledger.failures import UNREAD, unread
from pipelines.session.ledger import ledger_of

OF_FEEDS = {
    "nothing_of_{}_is_broken": "At present no batch of `{}` failed, is unfinished, or had all its records set aside, "
    "and no row is in doubt.",
    "no_reject_of_{}_is_open": "No reject of `{}` is open. If this fails, it is a warning: `chartferry rejects export` "
    "writes the rejects to files.",
    "files_of_{}_are_as_expected": "The newest file of `{}` came in time, and its size is within [expect] of its feed.",
}
"""Name and description of each check of a feed, with a place for the feed's name."""
BROKEN, REJECTS, EXPECTED = OF_FEEDS
OF_HOME = {
    "no_file_has_lain_in_the_inbox_for_an_hour": "No file has been in the inbox for an hour. Such a file is taken by "
    "no feed, cannot be received, or still waits for its run.",
    "imports_do_not_wait": "Imports do not wait for reference data to be loaded, for the target to answer, or for an "
    "inbox beyond the home to be reached.",
}
INBOX_CHECK, WAITING_CHECK = OF_HOME


def expecting(feeds: Sequence[Feed]) -> list[Feed]:
    return [feed for feed in feeds if feed.file.expect]


def checked(check: str, feeds: Sequence[Feed]) -> dict[str, Feed]:
    """Return the feeds that have a check of `OF_FEEDS`, by the name of the check for each feed."""
    return {check.format(plain(feed.name)): feed for feed in (expecting(feeds) if check == EXPECTED else feeds)}


def specs_of(names: DagsterNames, feeds: Sequence[Feed]) -> list[dg.AssetCheckSpec]:
    """Return the standing checks of these feeds, of the inbox, and of waiting imports."""
    of_feeds = {
        name: said.format(feed.name) for check, said in OF_FEEDS.items() for name, feed in checked(check, feeds).items()
    }
    described = {**of_feeds, **OF_HOME}
    return [dg.AssetCheckSpec(name, asset=names.published, description=said) for name, said in described.items()]


def broken_in(home: Path, environ: Mapping[str, str]) -> dict[str, FeedProblems]:
    """Return what is broken, by feed; empty if there is no ledger yet. Raises `BadHome` if it may be elsewhere."""
    check_mounted(home, environ)
    with ledger_of(home, environ) as ledger:
        return broken_now(ledger, home, ledger.clock()) if ledger else {}


def unexpected_in(home: Path, environ: Mapping[str, str], feeds: Sequence[Feed]) -> dict[str, Deviations]:
    """Return what is not as expected, by feed; empty if no feed expects anything, or there is no ledger yet."""
    if not expecting(feeds):
        return {}
    with ledger_of(home, environ) as ledger:
        return unexpected_now(ledger, home, feeds, ledger.moments.shown()) if ledger else {}


def verdicts_of(home: Path, environ: Mapping[str, str], feeds: Sequence[Feed]) -> dict[str, dict[str, Any]]:
    """Return the arguments of each check's result by the name of the check."""
    broken = broken_in(home, environ)
    now = datetime.now(UTC)
    lain, held = lain_for(home / "inbox", now, LAIN_TOO_LONG), waiting_now(home, environ, feeds, now)
    unexpected = unexpected_in(home, environ, feeds)
    of_feeds: dict[str, Callable[[str], dict[str, Any]]] = {
        BROKEN: lambda name: _broken_verdict(broken.get(name, FeedProblems())),
        REJECTS: lambda name: _rejects_verdict(broken.get(name, FeedProblems())),
        EXPECTED: lambda name: _as_expected(unexpected.get(name, Deviations())),
    }
    found = {name: of(feed.name) for check, of in of_feeds.items() for name, feed in checked(check, feeds).items()}
    found[INBOX_CHECK] = _inbox_verdict(lain)
    found[WAITING_CHECK] = _verdict(held.sentence if held else None, {"files": len(held.files) if held else 0})
    published = DagsterNames.of(environ).published
    return {name: {"asset_key": published, "check_name": name, **verdict} for name, verdict in found.items()}


def verdicts_now(
    home: Path, environ: Mapping[str, str], feeds: Sequence[Feed]
) -> tuple[dict[str, dict[str, Any]], bool]:
    """Return the arguments of each check's result by the name of the check, and True if the state could be read.

    If it could not be read, each check says that, so that no check stays green without knowledge.
    """
    try:
        return verdicts_of(home, environ, feeds), True
    except UNREAD as error:
        verdict, names = _verdict(unread(error), {}), DagsterNames.of(environ)
        keys = (spec.key for spec in specs_of(names, feeds))
        return {key.name: {"asset_key": key.asset_key, "check_name": key.name, **verdict} for key in keys}, False


def _inbox_verdict(lain: Mapping[str, datetime]) -> dict[str, Any]:
    named = sorted(lain.items(), key=lambda each: each[1])[:NAMED]
    said = [f"{printable_name(name)} has lain in the inbox since {at:%Y-%m-%d %H:%M} UTC" for name, at in named]
    return _verdict("; ".join(said), {"files": len(lain)})


def _broken_verdict(found: FeedProblems) -> dict[str, Any]:
    numbers = {
        "batches_failed": len(found.failed),
        "batches_with_nothing_taken": len(found.nothing_taken),
        "batches_unfinished": len(found.unfinished),
        "rows_in_doubt": sum(found.doubts.values()),
    }
    return _verdict("; ".join(found.sentences()), numbers)


def _as_expected(found: Deviations) -> dict[str, Any]:
    numbers = {"is_late": bool(found.late), "files_unusual": len(found.unusual)}
    return _verdict("; ".join(found.sentences()), numbers, dg.AssetCheckSeverity.WARN)


def _rejects_verdict(found: FeedProblems) -> dict[str, Any]:
    columns = [("age", "string", "Since the record was first set aside."), ("rejects", "int", "Open rejects.")]
    by_age = metadata.table(columns, list(found.rejects.items()))
    numbers = {"rejects_open": found.rejects.total(), "rejects_by_age": by_age}
    return _verdict(found.open_rejects(), numbers, dg.AssetCheckSeverity.WARN)


def _verdict(
    said: str | None, numbers: Mapping[str, Any], severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
) -> dict[str, Any]:
    """Return a verdict, which passes if there is no sentence against it."""
    return {"passed": not said, "severity": severity, "description": said or None, "metadata": dict(numbers)}

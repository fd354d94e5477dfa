"""The verdict of each standing check, as the arguments of its result in Dagster."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from pipelines.dagster import metadata
from pipelines.dagster.inbox.files import lain_too_long
from pipelines.dagster.names import Names
from pipelines.dagster.standing.found import broken_in, unexpected_in
from pipelines.dagster.standing.specs import (
    INBOX_CHECK,
    WAITING_CHECK,
    check_of,
    expectation_of,
    expecting,
    rejects_check_of,
)
from pipelines.dagster.waiting import Waiting, waiting_now
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import shown
from pipelines.importing.broken import NAMED, Broken
from pipelines.importing.expected import Unexpected


def verdicts_of(home: Path, environ: Mapping[str, str], feeds: Sequence[Feed]) -> dict[str, dict[str, Any]]:
    """Return the arguments of each check's result by the name of the check."""
    broken = broken_in(home, environ)
    by_feed = {check_of(feed): _verdict(feed, broken) for feed in feeds}
    by_feed |= {rejects_check_of(feed): _rejects_verdict(feed, broken) for feed in feeds}
    now = datetime.now(UTC)
    lain, held = lain_too_long(home / "inbox", now), waiting_now(home, environ, now)
    unexpected = unexpected_in(home, environ, feeds)
    by_feed |= {expectation_of(feed): _as_expected(feed, unexpected) for feed in expecting(feeds)}
    found = {**by_feed, INBOX_CHECK: _inbox_verdict(lain), WAITING_CHECK: _waiting_verdict(held)}
    published = Names.of(environ).published
    return {name: {"asset_key": published, "check_name": name, **verdict} for name, verdict in found.items()}


def _waiting_verdict(held: Waiting | None) -> dict[str, Any]:
    return {
        "passed": held is None,
        "severity": dg.AssetCheckSeverity.ERROR,
        "description": held.sentence if held else None,
        "metadata": {"files": len(held.files) if held else 0},
    }


def _inbox_verdict(lain: Mapping[str, datetime]) -> dict[str, Any]:
    named = sorted(lain.items(), key=lambda each: each[1])[:NAMED]
    said = [f"{shown(name)} has lain in the inbox since {at:%Y-%m-%d %H:%M} UTC" for name, at in named]
    return {
        "passed": not lain,
        "severity": dg.AssetCheckSeverity.ERROR,
        "description": "; ".join(said) or None,
        "metadata": {"files": len(lain)},
    }


def _verdict(feed: Feed, broken: Mapping[str, Broken]) -> dict[str, Any]:
    found = broken.get(feed.name, Broken())
    return {
        "passed": not found.broken,
        "severity": dg.AssetCheckSeverity.ERROR,
        "description": "; ".join(found.sentences()) or None,
        "metadata": _numbers(found),
    }


def _as_expected(feed: Feed, unexpected: Mapping[str, Unexpected]) -> dict[str, Any]:
    found = unexpected.get(feed.name, Unexpected())
    return {
        "passed": not found.sentences(),
        "severity": dg.AssetCheckSeverity.WARN,
        "description": "; ".join(found.sentences()) or None,
        "metadata": {"is_late": bool(found.late), "files_unusual": len(found.unusual)},
    }


def _rejects_verdict(feed: Feed, broken: Mapping[str, Broken]) -> dict[str, Any]:
    found = broken.get(feed.name, Broken())
    columns = [("age", "string", "Since the record was first set aside."), ("rejects", "int", "Open rejects.")]
    return {
        "passed": found.open_rejects() is None,
        "severity": dg.AssetCheckSeverity.WARN,
        "description": found.open_rejects(),
        "metadata": {
            "rejects_open": found.rejects.total(),
            "rejects_by_age": metadata.table(columns, list(found.rejects.items())),
        },
    }


def _numbers(found: Broken) -> metadata.Metadata:
    return {
        "batches_failed": len(found.failed),
        "batches_with_nothing_taken": len(found.nothing_taken),
        "batches_unfinished": len(found.unfinished),
        "rows_in_doubt": sum(found.doubts.values()),
    }

"""The standing check: asset checks that report what is broken now and which rejects are open, and one for the inbox.

A schedule runs it every hour. A sensor records a verdict when it changes, and records all of them after a publication.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData,
)

from pipelines.dagster import metadata
from pipelines.dagster.cursors import understood
from pipelines.dagster.inbox import lain_too_long
from pipelines.dagster.tables import PUBLISHED
from pipelines.dagster.waiting import Waiting, waiting_now
from pipelines.dagster.workplace import RESOURCE_KEY, place_of, told_without_data
from pipelines.feeds.files.catalog import Feed, plain
from pipelines.home.batch import shown
from pipelines.home.ticks import note_tick
from pipelines.importing.broken import NAMED, Broken, broken_now
from pipelines.importing.expected import Unexpected, unexpected_now
from pipelines.importing.figures import write_figures
from pipelines.session.opening import has_ledger, open_ledger

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

SECONDS_BETWEEN_LOOKS = 60
EVERY_HOUR = "30 * * * *"
INBOX_CHECK = "no_file_has_lain_in_the_inbox_for_an_hour"
WAITING_CHECK = "imports_do_not_wait"


def check_of(feed: Feed) -> str:
    """Return the name of the feed's standing check."""
    return f"nothing_of_{plain(feed.name)}_is_broken"


def rejects_check_of(feed: Feed) -> str:
    """Return the name of the check that warns of the feed's open rejects."""
    return f"no_reject_of_{plain(feed.name)}_is_open"


def expectation_of(feed: Feed) -> str:
    """Return the name of the check of a feed's expectations."""
    return f"files_of_{plain(feed.name)}_are_as_expected"


def _expecting(feeds: Sequence[Feed]) -> list[Feed]:
    return [feed for feed in feeds if feed.file.expect]


def standing_check(feeds: Sequence[Feed]) -> dg.AssetChecksDefinition:
    specs = [
        dg.AssetCheckSpec(
            check_of(feed),
            asset=PUBLISHED,
            description=f"Right now no batch of `{feed.name}` failed, is left without an end, or had all its records "
            "set aside, and no row is in doubt.",
        )
        for feed in feeds
    ]
    specs += [
        dg.AssetCheckSpec(
            rejects_check_of(feed),
            asset=PUBLISHED,
            description=f"No reject of `{feed.name}` waits for a person: a warning. `rejects export` has them.",
        )
        for feed in feeds
    ]
    specs += [
        dg.AssetCheckSpec(
            expectation_of(feed),
            asset=PUBLISHED,
            description=f"The newest file of `{feed.name}` came in time, and is as large as [expect] in its feed says.",
        )
        for feed in _expecting(feeds)
    ]
    specs.append(
        dg.AssetCheckSpec(
            INBOX_CHECK,
            asset=PUBLISHED,
            description="No file has lain in the inbox for an hour: one that no feed takes, that cannot be received, "
            "or that still waits for its run.",
        )
    )
    specs.append(
        dg.AssetCheckSpec(
            WAITING_CHECK,
            asset=PUBLISHED,
            description="Neither reference data that is not loaded nor a target that does not answer holds up imports.",
        )
    )

    @dg.multi_asset_check(name="what_is_broken", specs=specs, can_subset=True, required_resource_keys={RESOURCE_KEY})
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        place = place_of(context)
        with told_without_data(place):
            for name, verdict in _verdicts(place.home, place.environ, feeds).items():
                if dg.AssetCheckKey(PUBLISHED, name) in context.selected_asset_check_keys:
                    yield dg.AssetCheckResult(**verdict)

    return check


def standing_job(feeds: Sequence[Feed]) -> "UnresolvedAssetJobDefinition":
    of_feeds = [*map(check_of, feeds), *map(rejects_check_of, feeds), *map(expectation_of, _expecting(feeds))]
    names = [*of_feeds, INBOX_CHECK, WAITING_CHECK]
    return dg.define_asset_job(
        "standing_check",
        selection=dg.AssetSelection.checks(*(dg.AssetCheckKey(PUBLISHED, name) for name in names)),
        description="Names what is broken right now: failed batches, rows in doubt, open rejects by age, files that "
        "stay in the inbox.",
    )


def standing_schedule(job: "UnresolvedAssetJobDefinition") -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name="standing_check",
        job=job,
        cron_schedule=EVERY_HOUR,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Every hour.",
    )


def standing_sensor(home: Path, environ: Mapping[str, str], feeds: Sequence[Feed]) -> dg.SensorDefinition:
    @dg.sensor(
        name="standing_check_after_imports",
        minimum_interval_seconds=SECONDS_BETWEEN_LOOKS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Notes what is broken as soon as that has changed, and anew beside each publication: Dagster shows "
        "only checks that were made since.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        note_tick(home, "standing_check_after_imports")
        verdicts, nothing = _verdicts(home, environ, feeds), dict[str, Any]()
        _write_figures(home, environ)
        before = understood(context.cursor, dict[str, Any], nothing)
        last = context.instance.get_latest_materialization_event(PUBLISHED)
        beside = last.timestamp if last else None
        said = {name: [verdict["passed"], verdict["description"], beside] for name, verdict in verdicts.items()}
        news = [verdicts[name] for name in said if said[name] != before.get(name)]
        made_on = _newest_publication(context.instance)
        return dg.SensorResult(
            asset_events=[dg.AssetCheckEvaluation(**verdict, target_materialization_data=made_on) for verdict in news],
            cursor=json.dumps(said),
            skip_reason=f"{len(news)} verdicts were noted.",
        )

    return sensor


def note_verdicts(instance: dg.DagsterInstance, home: Path, environ: Mapping[str, str], feeds: Sequence[Feed]) -> None:
    """Record every verdict for the newest publication: Dagster hides older ones, and the sensor looks once a minute."""
    made_on = _newest_publication(instance)
    for verdict in _verdicts(home, environ, feeds).values():
        instance.report_runless_asset_event(dg.AssetCheckEvaluation(**verdict, target_materialization_data=made_on))


def _newest_publication(instance: dg.DagsterInstance) -> AssetCheckEvaluationTargetMaterializationData | None:
    records = instance.fetch_materializations(PUBLISHED, limit=1).records
    if not records:
        return None
    [record] = records
    return AssetCheckEvaluationTargetMaterializationData(
        storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp
    )


def broken_in(home: Path, environ: Mapping[str, str]) -> dict[str, Broken]:
    """Return what is broken, by feed; empty if there is no ledger yet."""
    if not has_ledger(home, environ):
        return {}
    with closing(open_ledger(home, environ)) as ledger:
        return broken_now(ledger, home, datetime.now(UTC))


def _write_figures(home: Path, environ: Mapping[str, str]) -> None:
    """Put `metrics.prom` into the home, where there is a ledger to tell of."""
    if has_ledger(home, environ):
        with closing(open_ledger(home, environ)) as ledger:
            write_figures(home, ledger)


def unexpected_in(home: Path, environ: Mapping[str, str], feeds: Sequence[Feed]) -> dict[str, Unexpected]:
    """Return what is not as expected, by feed; empty if no feed expects something, or there is no ledger yet."""
    if not _expecting(feeds) or not has_ledger(home, environ):
        return {}
    with closing(open_ledger(home, environ)) as ledger:
        return unexpected_now(ledger, feeds, datetime.now(UTC))


def _verdicts(home: Path, environ: Mapping[str, str], feeds: Sequence[Feed]) -> dict[str, dict[str, Any]]:
    """Return the arguments of each check's result by the name of the check."""
    broken = broken_in(home, environ)
    by_feed = {check_of(feed): _verdict(feed, broken) for feed in feeds}
    by_feed |= {rejects_check_of(feed): _rejects_verdict(feed, broken) for feed in feeds}
    now = datetime.now(UTC)
    lain, held = lain_too_long(home / "inbox", now), waiting_now(home, environ, now)
    unexpected = unexpected_in(home, environ, feeds)
    by_feed |= {expectation_of(feed): _as_expected(feed, unexpected) for feed in _expecting(feeds)}
    return {**by_feed, INBOX_CHECK: _inbox_verdict(lain), WAITING_CHECK: _waiting_verdict(held)}


def _waiting_verdict(held: Waiting | None) -> dict[str, Any]:
    return {
        "asset_key": PUBLISHED,
        "check_name": WAITING_CHECK,
        "passed": held is None,
        "severity": dg.AssetCheckSeverity.ERROR,
        "description": held.sentence if held else None,
        "metadata": {"files": len(held.files) if held else 0},
    }


def _inbox_verdict(lain: Mapping[str, datetime]) -> dict[str, Any]:
    named = sorted(lain.items(), key=lambda each: each[1])[:NAMED]
    said = [f"{shown(name)} has lain in the inbox since {at:%Y-%m-%d %H:%M} UTC" for name, at in named]
    return {
        "asset_key": PUBLISHED,
        "check_name": INBOX_CHECK,
        "passed": not lain,
        "severity": dg.AssetCheckSeverity.ERROR,
        "description": "; ".join(said) or None,
        "metadata": {"files": len(lain)},
    }


def _verdict(feed: Feed, broken: Mapping[str, Broken]) -> dict[str, Any]:
    found = broken.get(feed.name, Broken())
    return {
        "asset_key": PUBLISHED,
        "check_name": check_of(feed),
        "passed": not found.broken,
        "severity": dg.AssetCheckSeverity.ERROR,
        "description": "; ".join(found.sentences()) or None,
        "metadata": _numbers(found),
    }


def _as_expected(feed: Feed, unexpected: Mapping[str, Unexpected]) -> dict[str, Any]:
    found = unexpected.get(feed.name, Unexpected())
    return {
        "asset_key": PUBLISHED,
        "check_name": expectation_of(feed),
        "passed": not found.sentences(),
        "severity": dg.AssetCheckSeverity.WARN,
        "description": "; ".join(found.sentences()) or None,
        "metadata": {"is_late": bool(found.late), "files_unusual": len(found.unusual)},
    }


def _rejects_verdict(feed: Feed, broken: Mapping[str, Broken]) -> dict[str, Any]:
    found = broken.get(feed.name, Broken())
    columns = [("age", "string", "Since the record was first set aside."), ("rejects", "int", "Open rejects.")]
    return {
        "asset_key": PUBLISHED,
        "check_name": rejects_check_of(feed),
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

"""The standing check: what is broken right now, as one check for each feed on the published tables.

A schedule makes it, and a sensor notes a verdict as soon as it has changed, whoever imported, or the tables have.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from pipelines.feeds.catalog import Feed
from pipelines.orchestration import metadata
from pipelines.orchestration.names import plain
from pipelines.orchestration.tables import PUBLISHED
from pipelines.orchestration.workplace import RESOURCE_KEY, place_of, told_without_data
from pipelines.session import has_ledger, open_ledger
from pipelines.standing import Standing, standing_of

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

SECONDS_BETWEEN_LOOKS = 60
EVERY_HOUR = "30 * * * *"


def check_of(feed: Feed) -> str:
    """The name of the feed's standing check."""
    return f"nothing_of_{plain(feed.name)}_is_broken"


def standing_check(feeds: Sequence[Feed]) -> dg.AssetChecksDefinition:
    specs = [
        dg.AssetCheckSpec(
            check_of(feed),
            asset=PUBLISHED,
            description=f"No batch of `{feed.name}` failed or is left without an end, and no row is in doubt, right "
            "now. A warning where only rejects are open.",
        )
        for feed in feeds
    ]

    @dg.multi_asset_check(name="what_is_broken", specs=specs, can_subset=True, required_resource_keys={RESOURCE_KEY})
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        place = place_of(context)
        with told_without_data(place):
            standing = standing_now(place.home, place.environ)
            for feed in feeds:
                if dg.AssetCheckKey(PUBLISHED, check_of(feed)) in context.selected_asset_check_keys:
                    yield dg.AssetCheckResult(**_verdict(feed, standing))

    return check


def standing_job(feeds: Sequence[Feed]) -> "UnresolvedAssetJobDefinition":
    return dg.define_asset_job(
        "standing_check",
        selection=dg.AssetSelection.checks(*(dg.AssetCheckKey(PUBLISHED, check_of(feed)) for feed in feeds)),
        description="Names what is broken right now: failed batches, rows in doubt, open rejects by age.",
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
        standing, before = standing_now(home, environ), json.loads(context.cursor or "{}")
        verdicts = {feed.name: _verdict(feed, standing) for feed in feeds}
        last = context.instance.get_latest_materialization_event(PUBLISHED)
        beside = last.timestamp if last else None
        said = {name: [verdict["passed"], verdict["description"], beside] for name, verdict in verdicts.items()}
        news = [verdicts[name] for name in said if said[name] != before.get(name)]
        return dg.SensorResult(
            asset_events=[dg.AssetCheckEvaluation(**verdict) for verdict in news],
            cursor=json.dumps(said),
            skip_reason=f"{len(news)} verdicts were noted.",
        )

    return sensor


def standing_now(home: Path, environ: Mapping[str, str]) -> dict[str, Standing]:
    if not has_ledger(home, environ):
        return {}
    with closing(open_ledger(home, environ)) as ledger:
        return standing_of(ledger, home, datetime.now(UTC))


def _verdict(feed: Feed, standing: Mapping[str, Standing]) -> dict[str, Any]:
    found = standing.get(feed.name, Standing())
    severity = dg.AssetCheckSeverity.ERROR if found.broken else dg.AssetCheckSeverity.WARN
    return {
        "asset_key": PUBLISHED,
        "check_name": check_of(feed),
        "passed": not found.sentences(),
        "severity": severity,
        "description": "; ".join(found.sentences()) or None,
        "metadata": _numbers(found),
    }


def _numbers(found: Standing) -> metadata.Metadata:
    columns = [("age", "string", "Since the record was first set aside."), ("rejects", "int", "Open rejects.")]
    return {
        "batches_failed": len(found.failed),
        "batches_unfinished": len(found.unfinished),
        "rows_in_doubt": sum(found.doubts.values()),
        "rejects_open": found.rejects.total(),
        "rejects_by_age": metadata.table(columns, list(found.rejects.items())),
    }

"""The standing checks in Dagster: a sensor records a verdict when it changes, and all verdicts after a publication.

A person may also run the checks on Dagster's pages.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData

from pipelines.dagster.names import DagsterNames
from pipelines.dagster.requests import kept, ticking, understood
from pipelines.dagster.run_resource import RESOURCE_KEY, workplace_of
from pipelines.dagster.standing.verdicts import specs_of, verdicts_now, verdicts_of
from pipelines.feeds.files.catalog import Feed
from pipelines.home.counted import counted
from pipelines.importing.prometheus_figures import write_figures_of

SECONDS_BETWEEN_LOOKS = 60


def standing_check(names: DagsterNames, feeds: Sequence[Feed]) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=names.job("what_is_broken"),
        specs=specs_of(names, feeds),
        can_subset=True,
        required_resource_keys={RESOURCE_KEY},
    )
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        with workplace_of(context) as place:
            for name, verdict in verdicts_of(place.home, place.environ, feeds).items():
                if dg.AssetCheckKey(names.published, name) in context.selected_asset_check_keys:
                    yield dg.AssetCheckResult(**verdict)

    return check


def standing_sensor(home: Path, environ: Mapping[str, str], feeds: Sequence[Feed]) -> dg.SensorDefinition:
    names = DagsterNames.of(environ)
    says = (
        "Records what is broken when that changes, and again after each publication, since Dagster shows only checks "
        "made after the last one."
    )

    @ticking(names, home, "standing_check_after_imports", SECONDS_BETWEEN_LOOKS, says)
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        verdicts, was_read = verdicts_now(home, environ, feeds)
        if was_read:
            write_figures_of(home, environ)
        before = understood(context.cursor, dict[str, Any], {})
        last = context.instance.get_latest_materialization_event(names.published)
        beside = last.timestamp if last else None
        said = {name: [verdict["passed"], verdict["description"], beside] for name, verdict in verdicts.items()}
        news = [verdicts[name] for name in said if said[name] != before.get(name)]
        made_on = _newest_publication(context.instance, names)
        return dg.SensorResult(
            asset_events=[dg.AssetCheckEvaluation(**verdict, target_materialization_data=made_on) for verdict in news],
            cursor=kept(said),
            skip_reason=f"{counted(len(news), 'verdict was', 'verdicts were')} recorded.",
        )

    return sensor


def note_verdicts(instance: dg.DagsterInstance, home: Path, environ: Mapping[str, str], feeds: Sequence[Feed]) -> None:
    """Record every verdict for the newest publication: Dagster hides older ones, and the sensor looks later."""
    made_on = _newest_publication(instance, DagsterNames.of(environ))
    for verdict in verdicts_now(home, environ, feeds)[0].values():
        instance.report_runless_asset_event(dg.AssetCheckEvaluation(**verdict, target_materialization_data=made_on))


def _newest_publication(
    instance: dg.DagsterInstance, names: DagsterNames
) -> AssetCheckEvaluationTargetMaterializationData | None:
    records = instance.fetch_materializations(names.published, limit=1).records
    if not records:
        return None
    [record] = records
    return AssetCheckEvaluationTargetMaterializationData(
        storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp
    )

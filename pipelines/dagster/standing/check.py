"""The standing check: asset checks that report what is broken now and which rejects are open, every hour."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from pipelines.dagster.names import Names
from pipelines.dagster.standing.specs import specs_of
from pipelines.dagster.standing.verdicts import verdicts_of
from pipelines.dagster.workplace import RESOURCE_KEY, place_of, told_without_data
from pipelines.feeds.files.catalog import Feed

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition


def standing_check(names: Names, feeds: Sequence[Feed]) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=names.job("what_is_broken"),
        specs=specs_of(names, feeds),
        can_subset=True,
        required_resource_keys={RESOURCE_KEY},
    )
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        place = place_of(context)
        with told_without_data(place):
            for name, verdict in verdicts_of(place.home, place.environ, feeds).items():
                if dg.AssetCheckKey(names.published, name) in context.selected_asset_check_keys:
                    yield dg.AssetCheckResult(**verdict)

    return check


def standing_job(names: Names, feeds: Sequence[Feed]) -> "UnresolvedAssetJobDefinition":
    return dg.define_asset_job(
        names.job("standing_check"),
        tags=names.tags,
        selection=dg.AssetSelection.checks(*(spec.key for spec in specs_of(names, feeds))),
        description="Names what is broken right now: failed batches, rows in doubt, open rejects by age, files that "
        "stay in the inbox.",
    )

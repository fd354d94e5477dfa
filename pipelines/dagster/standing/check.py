"""The standing check, where a person has it made on Dagster's pages; the sensor beside it notes what has changed."""

from collections.abc import Iterator, Sequence

import dagster as dg

from pipelines.dagster.names import Names
from pipelines.dagster.standing.specs import specs_of
from pipelines.dagster.standing.verdicts import verdicts_of
from pipelines.dagster.workplace import RESOURCE_KEY, workplace_of
from pipelines.feeds.files.catalog import Feed


def standing_check(names: Names, feeds: Sequence[Feed]) -> dg.AssetChecksDefinition:
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

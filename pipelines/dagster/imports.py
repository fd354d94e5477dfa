"""The three assets of a feed: received, validated, loaded. A partition is a batch; a run takes one or more, in order.

If a file fails, the other files of the run continue, and the run ends as failed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from pipelines.dagster.checks import AFTER_VALIDATE
from pipelines.dagster.executors import executor_of
from pipelines.dagster.loaded import loaded_by_one_step, loaded_by_several
from pipelines.dagster.names import AGAIN, DagsterNames, Job
from pipelines.dagster.results import carry_out_stage, specs_of
from pipelines.dagster.run_resource import RunWorkplace, batches_in
from pipelines.dagster.stages.asset import stage_asset
from pipelines.dagster.stages.outcome import StageOutcome
from pipelines.dagster.stages.receiving import receive_at
from pipelines.dagster.stages.validating import validate_all
from pipelines.feeds.files.catalog import Feed
from pipelines.home.dagster_folder import FEED_TAG


def imports_of(
    names: DagsterNames, feeds: Sequence[Feed], environ: Mapping[str, str], before: Sequence[dg.AssetKey]
) -> tuple[list[dg.AssetsDefinition], list[Job]]:
    """Return the assets of feeds, and the jobs that import them.

    The jobs use the executor that the environment names, if any. It loads the parts of a batch by several steps.
    before: assets with the data that rules look up.
    """
    executor, assets = executor_of(environ), list[dg.AssetsDefinition]()
    loaded = loaded_by_several if executor else loaded_by_one_step
    for feed in feeds:
        assets += [_received(names, feed), _validated(names, feed, before), loaded(names, feed)]
    jobs = [
        names.job_over(
            names.job_of(feed),
            list(names.keys_of(feed).values()),
            f"Receives, validates and loads batches of the feed `{feed.name}`.",
            tags={FEED_TAG: names.partition(feed.name), **names.tags},  # by which one of them runs at a time
            executor_def=executor,  # for the job's steps, instead of the default of all jobs
        )
        for feed in feeds
    ]
    return assets, jobs


def _received(names: DagsterNames, feed: Feed) -> dg.AssetsDefinition:
    patterns = " or ".join(f"`{pattern}`" for pattern in feed.file.files)
    taken = f"The feed takes files with names like {patterns}." if patterns else "The exports come from its query."

    @stage_asset(
        names,
        feed,
        "received",
        f"Exports of the feed `{feed.name}`, each received into a batch, which is named after the feed and the file's "
        f"hash. {taken}",
        kinds={"file"},
    )
    def received(context: dg.AssetExecutionContext) -> Iterator[Any]:
        yield from carry_out_stage(
            context, feed, lambda place: receive_at(place, feed, batches_in(context), context.log)
        )

    return received


def _validated(names: DagsterNames, feed: Feed, before: Sequence[dg.AssetKey]) -> dg.AssetsDefinition:
    keys = names.keys_of(feed)

    @stage_asset(
        names,
        feed,
        "validated",
        f"The rows of each export as {feed.resource} records, mapped by the feed and checked by the rules of the "
        "interface: records to send, and rejects with every reason.",
        deps=[keys["received"], *before],
        kinds={"python", "parquet"},
        check_specs=specs_of(AFTER_VALIDATE, keys["validated"]),
        retry_policy=AGAIN,
    )
    def validated(context: dg.AssetExecutionContext) -> Iterator[Any]:
        def validate(place: RunWorkplace) -> StageOutcome:
            return validate_all(place.session(context.log), feed, batches_in(context), place.began)

        yield from carry_out_stage(context, feed, validate, AFTER_VALIDATE)

    return validated

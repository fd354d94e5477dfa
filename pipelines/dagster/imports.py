"""The three assets of a feed: received, validated, loaded. A partition is a batch; a run takes one or more, in order.

If a file fails, the other files of the run continue, and the run ends as failed.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import dagster as dg

from pipelines.dagster.checks import AFTER_LOAD, AFTER_VALIDATE, Statement
from pipelines.dagster.names import AGAIN, batches_of, job_of, keys_of
from pipelines.dagster.not_loaded import note_not_loaded, stopped
from pipelines.dagster.schemas import accepted_schema, ledger_schema, source_schema
from pipelines.dagster.stages import Outcome, failure, load_all, receive_all, validate_all
from pipelines.dagster.telling import Told, tell
from pipelines.dagster.workplace import RESOURCE_KEY, place_of, told_without_data
from pipelines.feeds.files.catalog import Feed, plain
from pipelines.home.dagster_folder import FEED_TAG, LOAD_POOL, TOLD_TAG
from pipelines.home.inbox import Inbox
from pipelines.runs.manifest import rules_version, software_version

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

OWNERS = ["team:data-engineering"]


def import_assets(feed: Feed, before: Sequence[dg.AssetKey] = ()) -> list[dg.AssetsDefinition]:
    """Return the three assets of a feed. before: assets with the data that its rules look up."""
    return [_received(feed), _validated(feed, before), _loaded(feed)]


def _received(feed: Feed) -> dg.AssetsDefinition:
    patterns = " or ".join(f"`{pattern}`" for pattern in feed.patterns)
    taken = f"Taken are files that are called {patterns}." if patterns else "They come from its query."

    @_stage(
        feed,
        "received",
        f"Exports of the feed `{feed.name}`, each taken from the inbox into its batch, which is named by the file's "
        f"hash. {taken}",
        kinds={"file"},
        code_version=software_version(),
        metadata={"dagster/column_schema": source_schema(feed)},
    )
    def received(context: dg.AssetExecutionContext) -> Iterator[Any]:
        place = place_of(context)
        with told_without_data(place):
            told = _told(context, feed)
            inbox = Inbox.of(place.home, place.environ)
            outcome = told.outcome if told else receive_all(feed, place.home, context.partition_keys, inbox)
            note_not_loaded(context, place.home, feed, outcome.failed)
            yield from _ended(context, outcome)

    return received


def _validated(feed: Feed, before: Sequence[dg.AssetKey]) -> dg.AssetsDefinition:
    keys = keys_of(feed)

    @_stage(
        feed,
        "validated",
        f"What each row of such an export becomes as a {feed.resource}, by the feed and the rules of the interface: "
        "records to send, and rejects with every reason.",
        deps=[keys["received"], *before],
        kinds={"python", "parquet"},
        code_version=f"{software_version()}+{rules_version()}+{feed.hash[:12]}",
        check_specs=_specs(AFTER_VALIDATE, keys["validated"]),
        retry_policy=AGAIN,
        metadata={"dagster/column_schema": accepted_schema()},
    )
    def validated(context: dg.AssetExecutionContext) -> Iterator[Any]:
        place = place_of(context)
        with told_without_data(place):
            if told := _told(context, feed):
                note_not_loaded(context, place.home, feed, told.outcome.failed)
                yield from _ended(context, told.outcome, AFTER_VALIDATE, told.facts)
                return
            outcome = Outcome()
            facts = validate_all(place.session(context.log), feed, context.partition_keys, place.began, outcome)
            held = stopped(facts)
            note_not_loaded(context, place.home, feed, {**outcome.failed, **held})
            yield from _ended(context, outcome, AFTER_VALIDATE, facts, held)

    return validated


def _loaded(feed: Feed) -> dg.AssetsDefinition:
    keys = keys_of(feed)

    @_stage(
        feed,
        "loaded",
        f"The records in the chart, as {feed.resource} resources, each in one known state in the ledger.",
        deps=[keys["validated"]],
        kinds={"fhir"},
        code_version=software_version(),
        metadata={"dagster/column_schema": ledger_schema()},
        check_specs=_specs(AFTER_LOAD, keys["loaded"]),
        retry_policy=AGAIN,
        pool=LOAD_POOL,
        output_required=False,
    )
    def loaded(context: dg.AssetExecutionContext) -> Iterator[Any]:
        place = place_of(context)
        with told_without_data(place):
            if told := _told(context, feed):
                note_not_loaded(context, place.home, feed, told.outcome.failed)
                yield from _ended(context, told.outcome, AFTER_LOAD, told.facts, last=True)
                return
            outcome = Outcome()
            facts = load_all(place.session(context.log), feed, context.partition_keys, place.began, outcome)
            note_not_loaded(context, place.home, feed, outcome.failed)
            yield from _ended(context, outcome, AFTER_LOAD, facts, last=True)

    return loaded


def _stage(
    feed: Feed, stage: str, description: str, **more: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Return the decorator for an asset of a feed, with the settings that all three share."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # of the backfill policy: one run for all batches
        decorator = dg.asset(
            key=keys_of(feed)[stage],
            description=description,
            partitions_def=batches_of(feed),
            backfill_policy=dg.BackfillPolicy.single_run(),
            group_name=plain(feed.name),
            owners=OWNERS,
            required_resource_keys={RESOURCE_KEY},
            tags={"chartferry/source": plain(feed.source), "chartferry/resource": feed.resource},
            **more,
        )
    return cast("Callable[[Callable[..., Any]], dg.AssetsDefinition]", decorator)


def import_job(feed: Feed) -> "UnresolvedAssetJobDefinition":
    """Return the job that imports batches of a feed."""
    return dg.define_asset_job(
        job_of(feed),
        selection=list(keys_of(feed).values()),
        tags={FEED_TAG: feed.name},
        description=f"Receives, validates and loads batches of the feed `{feed.name}`.",
    )


def _specs(statements: Sequence[Statement[Any]], key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    return [statement.spec(key.path) for statement in statements]


# -- results of a stage


def _told(context: dg.AssetExecutionContext, feed: Feed) -> Told | None:
    """Return what the ledger knows of this stage if the run only shows the command line, else None."""
    target = context.run.tags.get(TOLD_TAG)
    if target is None:
        return None
    place = place_of(context)
    return tell(place.home, place.environ, feed, target, context.partition_keys, context.asset_key.path[-1])


def _ended(
    context: dg.AssetExecutionContext,
    outcome: Outcome,
    statements: Sequence[Statement[Any]] = (),
    facts: Mapping[str, Any] | None = None,
    held: Mapping[str, str] = MappingProxyType({}),
    last: bool = False,
) -> Iterator[Any]:
    """Yield the materializations and the check results of a stage; raise a Failure where the run must end.

    It must end if no batch can go on or, in the last stage, if any failed. Otherwise the run continues with the batches
    that succeeded, and the last stage reports the others. held: why batches that succeeded do not go on.
    """
    ended = {**outcome.failed, **held}
    failing = bool(ended) and (last or ended.keys() >= outcome.done.keys())
    if failing:
        for batch_id, about in outcome.done.items():
            yield dg.AssetMaterialization(context.asset_key, partition=batch_id, metadata=about)
    else:
        for batch_id, about in outcome.done.items():
            context.add_asset_metadata(about, partition_key=batch_id)
        for batch_id, sentence in outcome.failed.items():
            context.add_asset_metadata({"failed": sentence}, partition_key=batch_id)
        yield dg.MaterializeResult()
    if facts or not failing:
        for statement in statements:
            yield statement.result(facts or {}, context.asset_key.path)
    if failing:
        raise failure(ended, outcome)

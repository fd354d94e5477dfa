"""The asset `loaded` of a feed: made by one step, or by several if the steps of a run are spread over hosts.

Several steps load the parts of a batch: one holds the target and loads too, the others join it. Then the last step does
the work of the single step: it loads the rest, which is usually nothing, and reports the end.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dagster as dg

from pipelines.dagster.checks import AFTER_LOAD
from pipelines.dagster.names import AGAIN, DagsterNames
from pipelines.dagster.results import carry_out_stage, specs_of
from pipelines.dagster.run_resource import RESOURCE_KEY, RunWorkplace, batches_in, workplace_of
from pipelines.dagster.stages.asset import loaded_asset, stage_asset
from pipelines.dagster.stages.joining import join_all, workers_of
from pipelines.dagster.stages.loading import load_all
from pipelines.dagster.stages.outcome import StageOutcome
from pipelines.feeds.files.catalog import Feed
from pipelines.home.dagster_folder import TOLD_TAG

KIND = "fhir"
WAIT_SECONDS = 20
"""Seconds after which a joining step that found no load yields its place to another step, such as the holder."""
TRIES = 45
"""The most times that a joining step yields its place while the holder does not work: for about an hour."""
HOLDER = "1"
"""The first of the steps that load parts, which holds the target."""


def loaded_by_one_step(names: DagsterNames, feed: Feed) -> dg.AssetsDefinition:
    keys = names.keys_of(feed)

    @stage_asset(
        names,
        feed,
        "loaded",
        _description(feed),
        deps=[keys["validated"]],
        kinds={KIND},
        check_specs=specs_of(AFTER_LOAD, keys["loaded"]),
        retry_policy=AGAIN,
        pool=names.load_pool,
        output_required=False,
    )
    def loaded(context: dg.AssetExecutionContext) -> Iterator[Any]:
        yield from _load(context, feed)

    return loaded


def loaded_by_several(names: DagsterNames, feed: Feed) -> dg.AssetsDefinition:
    name = names.keys_of(feed)["loaded"].to_python_identifier()
    checks = specs_of(AFTER_LOAD, names.keys_of(feed)["loaded"])
    outs = ["result", *(each.get_python_identifier() for each in checks)]
    of_all: dict[str, dg.Out] = dict.fromkeys(outs, dg.Out(dg.Nothing, is_required=False))
    after = {"start": dg.In(dg.Nothing)}
    ours: dict[str, Any] = {"required_resource_keys": {RESOURCE_KEY}, "retry_policy": AGAIN}
    dealt: dict[str, dg.Out] = {each: dg.DynamicOut(dg.Nothing) for each in ("first", "others")}

    @dg.op(name=f"{name}__plan", ins=after, out=dealt, **ours)
    def plan(context: dg.OpExecutionContext) -> Iterator[Any]:
        for number in range(1, _workers(context, names, feed) + 1):
            out = "first" if str(number) == HOLDER else "others"
            yield dg.DynamicOutput(None, mapping_key=str(number), output_name=out)

    @dg.op(name=f"{name}__hold", ins=after, out=dg.Out(dg.Nothing), pool=names.load_pool, **ours)
    def hold(context: dg.OpExecutionContext) -> None:
        _hold(context, feed)

    @dg.op(name=f"{name}__join", ins=after, out=dg.Out(dg.Nothing), **ours)
    def join(context: dg.OpExecutionContext) -> None:
        _join(context, feed, f"{name}.{name}__hold[{HOLDER}]")

    ins = {"held": dg.In(dg.Nothing), "joined": dg.In(dg.Nothing)}

    @dg.op(name=f"{name}__end", ins=ins, out=of_all, pool=names.load_pool, **ours)
    def end(context: dg.AssetExecutionContext) -> Iterator[Any]:
        yield from _load(context, feed, after_others=True)

    @dg.graph(name=name, ins={"validated": dg.GraphIn()}, out={each: dg.GraphOut() for each in outs})
    def steps(validated: Any) -> Any:
        first, others = plan(start=validated)
        held, joined = first.map(lambda each: hold(start=each)), others.map(lambda each: join(start=each))
        return dict(zip(outs, end(held=held.collect(), joined=joined.collect()), strict=True))

    return loaded_asset(names, feed, steps, _description(feed), KIND, checks)


def _description(feed: Feed) -> str:
    return f"The records in the chart, as {feed.resource} resources, each in one known state in the ledger."


def _load(context: dg.AssetExecutionContext, feed: Feed, after_others: bool = False) -> Iterator[Any]:
    """Load the rest, and report the end. after_others: True if steps of this run have loaded parts."""

    def load(place: RunWorkplace) -> StageOutcome:
        session, batch_ids = place.session(context.log), batches_in(context)
        return load_all(session, feed, batch_ids, place.began, StageOutcome(), after_others)

    yield from carry_out_stage(context, feed, load, AFTER_LOAD, last=True)


def _workers(context: dg.OpExecutionContext, names: DagsterNames, feed: Feed) -> int:
    """Return how many steps load the largest batch of a run; 0 if the last step loads alone.

    The last step loads alone in runs started from the page of an asset: their steps run one after another.
    """
    if TOLD_TAG in context.run.tags or context.run.job_name != names.job_of(feed):
        return 0
    with workplace_of(context) as place:
        workers = workers_of(place.session(context.log), feed, batches_in(context))
    return workers if workers > 1 else 0


def _hold(context: dg.OpExecutionContext, feed: Feed) -> None:
    """Load the batches, and let others join. Failures are left to the last step, which may try again."""
    outcome = StageOutcome()
    try:
        with workplace_of(context) as place:
            session = place.session(context.log)
            session.pace = replace(session.pace, here=1)
            load_all(session, feed, batches_in(context), place.began, outcome)
    except dg.Failure as failure:
        context.log.warning("%s", failure.description)
    for batch_id, sentence in outcome.failed.items():
        context.log.warning("%s: %s", batch_id, sentence)


def _join(context: dg.OpExecutionContext, feed: Feed, holder: str) -> None:
    """Load parts until the step that holds the target has ended, or until no load was led for some time.

    Failures are left to the others. If the holder is still to come, or was lost and will come again, this step yields
    its place and is retried.
    """

    def is_over() -> bool:
        run = context.instance.get_run_by_id(context.run_id)
        if run is None or run.status != dg.DagsterRunStatus.STARTED:
            return True
        found = context.instance.get_run_step_stats(context.run_id, [holder])
        return any(each.end_time for each in found)

    try:
        with workplace_of(context) as place:
            if is_over():
                return
            number = int(str(context.get_mapping_key()))
            parts = join_all(place.session(context.log), feed, batches_in(context), is_over, number)
            context.log.info("%d parts were loaded here", parts)
            may_come_again = not is_over() and context.retry_number < TRIES
    except dg.Failure as failure:
        context.log.warning("%s", failure.description)
    else:
        if may_come_again:
            raise dg.RetryRequested(TRIES, WAIT_SECONDS)

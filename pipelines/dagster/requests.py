"""The common part of the sensors of a home, and their requests for runs over batches.

Sensors are on by default, and each notes when it looked. Anyone can edit a cursor on Dagster's pages, so its form is
never trusted. A request adds new partitions first, then a run for each stretch of partitions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import dagster as dg
import msgspec

from pipelines.dagster.names import DagsterNames, Job
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import printable_name
from pipelines.home.counted import listed
from pipelines.home.dagster_folder import BATCH_TAG, FILE_TAG
from pipelines.home.sensor_ticks import forget_tick, note_tick
from pipelines.ledger.failures import said_of

Memory = TypeVar("Memory")
Look = Callable[[dg.SensorEvaluationContext], dg.SensorResult | dg.SkipReason]


def ticking(
    names: DagsterNames,
    home: Path,
    name: str,
    seconds: int,
    says: str,
    jobs: Sequence[Job] = (),
    is_wanted: bool = True,
) -> Callable[[Look], dg.SensorDefinition]:
    """Return a decorator that makes a sensor from a function that looks once.

    Args:
        names: those of the home in Dagster.
        seconds: the shortest time between two looks.
        says: the description on the page of the sensor.
        jobs: the jobs whose runs it may request.
        is_wanted: False if the settings give it nothing to do; then it is off until a person switches it on.
    """

    if not is_wanted:
        forget_tick(home, name)

    def sensor_of(look: Look) -> dg.SensorDefinition:
        @dg.sensor(
            name=names.job(name),
            jobs=list(jobs) or None,
            minimum_interval_seconds=seconds,
            default_status=dg.DefaultSensorStatus.RUNNING if is_wanted else dg.DefaultSensorStatus.STOPPED,
            description=says,
        )
        def noted(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
            note_tick(home, name)
            try:
                return look(context)
            except Exception as error:  # noqa: BLE001 - raised again without its text and its causes
                said = said_of(error)
            raise dg.Failure(said)  # outside the handler, or Dagster would keep the first error beside it

        return noted

    return sensor_of


def understood(cursor: str | None, form: type[Memory], otherwise: Memory) -> Memory:
    """Return a sensor's memory from its cursor, or `otherwise` if the cursor is empty or has another form."""
    try:
        return msgspec.json.decode(cursor, type=form) if cursor else otherwise
    except (msgspec.MsgspecError, ValueError):
        return otherwise


def kept(memory: object) -> str:
    """Return a sensor's memory as the text of its cursor."""
    return msgspec.json.encode(memory, order="deterministic").decode()


FILES_A_RUN = 200
FILES_NAMED = 5
"""The most files that a run names in its tag."""
RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
Additions = list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]


def ask_for(
    instance: dg.DagsterInstance,
    names: DagsterNames,
    feed: Feed,
    batch_ids: Sequence[str],
    key: str,
    files: Mapping[str, str],
    tags: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[dg.RunRequest], Additions]:
    """Return requests for runs over the batches, in their order, and the partitions to add.

    key: part of the run key; must differ for each request, since Dagster ignores a run key that it has seen.
    """
    batches, wanted = names.batches_of(feed), list(dict.fromkeys(map(names.partition, batch_ids)))
    if not wanted:
        return [], []
    known = instance.get_dynamic_partitions(batches.name or "")
    new = [partition for partition in wanted if partition not in set(known)]
    runs = [
        _request(names, feed, some, key, {**tags, **_named(map(names.batch, some), files)})
        for some in stretches(wanted, [*known, *new])
    ]
    return runs, [batches.build_add_request(new)] if new else []


def result_of(
    asked: Iterable[tuple[list[dg.RunRequest], Additions]],
    cursor: str,
    if_none: str,
    events: Sequence[dg.AssetMaterialization] = (),
) -> dg.SensorResult:
    """Return the result of a sensor's look that requests all of these runs.

    if_none: the reason if there is no request. events: events of assets without a run.
    """
    found = list(asked)
    requests = [request for some, _ in found for request in some]
    return dg.SensorResult(
        run_requests=requests,
        dynamic_partitions_requests=[addition for _, some in found for addition in some],
        cursor=cursor,
        asset_events=list(events),
        skip_reason=None if requests else if_none,
    )


def stretches(wanted: Sequence[str], known: Sequence[str]) -> list[list[str]]:
    """Return the wanted partitions in stretches of neighbouring partitions, each of at most `FILES_A_RUN`.

    A run takes a range of partitions, so a stretch holds only wanted ones. known: all partitions in their order.
    """
    place = {partition: number for number, partition in enumerate(known)}
    found: list[list[str]] = []
    for partition in wanted:
        last = found[-1] if found else None
        if last and len(last) < FILES_A_RUN and place[partition] == place[last[-1]] + 1:
            last.append(partition)
        else:
            found.append([partition])
    return found


def _named(batch_ids: Iterable[str], files: Mapping[str, str]) -> dict[str, str]:
    """Return a tag with the names of the first files, as far as they are known."""
    names = [printable_name(files[batch_id]) for batch_id in batch_ids if batch_id in files]
    return {FILE_TAG: listed(names, FILES_NAMED)} if names else {}


def _request(
    names: DagsterNames, feed: Feed, partitions: Sequence[str], key: str, tags: Mapping[str, str]
) -> dg.RunRequest:
    run_key = f"{partitions[0]} {len(partitions)} {key}"
    job, tags = names.job_of(feed), {**tags, BATCH_TAG: " ".join(partitions)}
    if len(partitions) == 1:
        return dg.RunRequest(run_key, job_name=job, tags=tags, partition_key=partitions[0])
    ends = dict(zip(RANGE, (partitions[0], partitions[-1]), strict=True))
    return dg.RunRequest(run_key, job_name=job, tags={**tags, **ends})


def batches_under_way(instance: dg.DagsterInstance, names: DagsterNames, feeds: Sequence[Feed]) -> set[str]:
    """Return the batches of all imports of these feeds that are waiting or under way."""
    jobs, found = {names.job_of(feed) for feed in feeds}, set[str]()
    for run in instance.get_runs(dg.RunsFilter(statuses=UNDER_WAY)):
        if run.job_name in jobs:
            found.update(map(names.batch, run.tags.get(BATCH_TAG, "").split()))
    return found

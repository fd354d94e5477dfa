"""Events for an OpenLineage server, by `dagster-openlineage` (extra `lineage`), where `OPENLINEAGE_URL` names one.

They tell of runs, assets, checks and columns by name, and hold what Dagster's metadata holds: no row of data. Of steps
they tell where Dagster's storage counts their events through all runs, as that of `up` does not.
"""

import logging
from collections.abc import Collection, Iterator, Mapping

import dagster as dg

from pipelines.dagster.names import Names

URL = "OPENLINEAGE_URL"
LACKING = f"{URL} is set, and dagster-openlineage is not installed: pip install 'chartferry[lineage]'"
SECONDS_BETWEEN_LOOKS = 60
EVENTS_A_LOOK = 2_000

log = logging.getLogger(__name__)


def is_told(environ: Mapping[str, str]) -> bool:
    """True if an OpenLineage server is named."""
    return bool(environ.get(URL))


def lineage_sensors(environ: Mapping[str, str]) -> list[dg.SensorDefinition]:
    """Return the sensor that sends the events, or none if no server is named or the extra is not installed."""
    if not is_told(environ):
        return []
    try:
        from dagster_openlineage import sensor as module
    except ImportError:
        log.warning(LACKING)
        return []
    module.get_event_log_records = events_of_runs
    theirs = module.openlineage_sensor(record_filter_limit=EVENTS_A_LOOK, include_asset_events=True)

    @dg.sensor(
        name=Names.of(environ).job("openlineage"),
        minimum_interval_seconds=SECONDS_BETWEEN_LOOKS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Sends what Dagster did since its last look to the OpenLineage server in {URL}.",
    )
    def openlineage(context: dg.SensorEvaluationContext) -> Iterator[dg.SkipReason]:
        yield from theirs(context)

    return [openlineage]


def events_of_runs(
    instance: dg.DagsterInstance,
    event_type: dg.DagsterEventType | Collection[dg.DagsterEventType],
    last_storage_id: int,
    record_filter_limit: int,
) -> list[dg.EventLogRecord]:
    """Return the next events of runs behind a number: the oldest, in their order, and at least one if there is one.

    Those of no run, such as of checks that a sensor notes, are left out: the sensor of OpenLineage takes the id of a
    run for a UUID, and would stay at the first of these for good. Its own reading takes the newest of assets first.
    """
    kinds = [event_type] if isinstance(event_type, dg.DagsterEventType) else [*event_type]
    behind, limit, stored = last_storage_id, record_filter_limit or None, instance.event_log_storage
    while True:
        asked = [dg.EventRecordsFilter(event_type=kind, after_cursor=behind) for kind in kinds]
        found = [record for each in asked for record in stored.get_event_records(each, limit, ascending=True)]
        read = sorted(found, key=lambda record: record.storage_id)[:limit]
        of_runs = [record for record in read if record.run_id]
        if of_runs or not limit or len(read) < limit:
            return of_runs
        behind = read[-1].storage_id

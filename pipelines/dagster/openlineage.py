"""Events for an OpenLineage server, by `dagster-openlineage` (extra `lineage`), where `OPENLINEAGE_URL` names one.

They tell of runs, assets, checks and columns by name, and hold what Dagster's metadata holds: no row of data. Of steps
they tell where Dagster's storage counts their events through all runs, as that of `up` does not.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any

import dagster as dg

from pipelines.dagster.names import Names

URL = "OPENLINEAGE_URL"
LACKING = f"{URL} is set, and dagster-openlineage is not installed: pip install 'chartferry[lineage]'"
SECONDS_BETWEEN_LOOKS = 60
EVENTS_A_LOOK = 2_000
"""Of one kind: more than a load of 500 files makes, since older ones would be left out."""

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
    if not hasattr(module.get_event_log_records, "__wrapped__"):
        module.get_event_log_records = _of_runs(module.get_event_log_records)
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


def _of_runs(read: Callable[..., Iterable[dg.EventLogRecord]]) -> Callable[..., list[dg.EventLogRecord]]:
    """Return a reading of events without those of no run, such as of checks that a sensor notes.

    Their sensor takes the id of a run for a UUID, and would stay at the first of these for good.
    """

    @wraps(read)
    def of_runs(*given: Any, **named: Any) -> list[dg.EventLogRecord]:
        return [record for record in read(*given, **named) if record.run_id]

    return of_runs

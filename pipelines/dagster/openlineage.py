"""Events for an OpenLineage server, by `dagster-openlineage` (extra `lineage`), where `OPENLINEAGE_URL` names one.

They tell of runs, steps, assets, checks and columns by name, and hold what Dagster's metadata holds: no row of data.
"""

import logging
from collections.abc import Iterator, Mapping

import dagster as dg

from pipelines.dagster.names import Names

URL = "OPENLINEAGE_URL"
LACKING = f"{URL} is set, and dagster-openlineage is not installed: pip install 'chartferry[lineage]'"
SECONDS_BETWEEN_LOOKS = 60
EVENTS_A_LOOK = 500

log = logging.getLogger(__name__)


def is_told(environ: Mapping[str, str]) -> bool:
    """True if an OpenLineage server is named."""
    return bool(environ.get(URL))


def lineage_sensors(environ: Mapping[str, str]) -> list[dg.SensorDefinition]:
    """Return the sensor that sends the events, or none if no server is named or the extra is not installed."""
    if not is_told(environ):
        return []
    try:
        from dagster_openlineage import openlineage_sensor
    except ImportError:
        log.warning(LACKING)
        return []
    theirs = openlineage_sensor(record_filter_limit=EVENTS_A_LOOK, include_asset_events=True)

    @dg.sensor(
        name=Names.of(environ).job("openlineage"),
        minimum_interval_seconds=SECONDS_BETWEEN_LOOKS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Sends what Dagster did since its last look to the OpenLineage server in {URL}.",
    )
    def openlineage(context: dg.SensorEvaluationContext) -> Iterator[dg.SkipReason]:
        yield from theirs(context)

    return [openlineage]

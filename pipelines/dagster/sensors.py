"""All sensors of a home. Each is made by a module of its own."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import dagster as dg

from pipelines.dagster.alerts import alert_sensor
from pipelines.dagster.command_line import telling_sensor
from pipelines.dagster.inbox.sensor import inbox_sensor
from pipelines.dagster.names import DagsterNames, Job
from pipelines.dagster.openlineage import lineage_sensors
from pipelines.dagster.publishing import publishing_sensor
from pipelines.dagster.standing.sensor import standing_sensor
from pipelines.dagster.unfinished import unfinished_sensor
from pipelines.feeds.files.catalog import Catalog


def sensors_of(
    home: Path,
    environ: Mapping[str, str],
    catalog: Catalog,
    imports: Sequence[Job],
    reference: Sequence[Job],
    publications: tuple[Job, Job],
) -> list[dg.SensorDefinition]:
    """Return all sensors.

    Args:
        imports: a job for each feed.
        reference: the job that loads reference data, if the target is the bundled service.
        publications: the job that publishes, and the job that sweeps the reports first.
    """
    return [
        inbox_sensor(home, environ, catalog, [*reference, *imports]),
        unfinished_sensor(home, environ, catalog, imports),
        telling_sensor(home, environ, catalog, imports),
        publishing_sensor(DagsterNames.of(environ), home, catalog.feeds, *publications, [*reference, *imports]),
        standing_sensor(home, environ, catalog.feeds),
        alert_sensor(home, environ, catalog.feeds),
        *lineage_sensors(environ),
    ]

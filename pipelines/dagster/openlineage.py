"""Events for an OpenLineage server, by `dagster-openlineage` (extra `lineage`), if `OPENLINEAGE_URL` names one.

They report runs, steps, assets, checks and columns by name, with Dagster's metadata: no row of data.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid5

import dagster as dg

from pipelines.dagster.names import DagsterNames
from pipelines.home.counted import counted

URL = "OPENLINEAGE_URL"
LACKING = f"{URL} is set, but dagster-openlineage is not installed: pip install 'chartferry[lineage]'"
SECONDS_BETWEEN_LOOKS = 60
RUNS_A_LOOK, EVENTS_A_LOOK = 50, 1_000
"""The most that a look sends, except that a run is sent whole: Dagster gives a look one minute."""
REFUSED = (400, 413, 422)
"""Answers that the same event would get again."""
BEHIND = "last_storage_id"
"""In the cursor: the number of the event that ended the last reported run."""
ENDS = (dg.DagsterEventType.RUN_SUCCESS, dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.RUN_CANCELED)
RUN = {
    "PIPELINE_START": "start_pipeline",
    "PIPELINE_SUCCESS": "complete_pipeline",
    "PIPELINE_FAILURE": "fail_pipeline",
    "PIPELINE_CANCELED": "cancel_pipeline",
}
STEP = {"STEP_START": "start_step", "STEP_SUCCESS": "complete_step", "STEP_FAILURE": "fail_step"}
ASSET = (
    "ASSET_MATERIALIZATION_PLANNED",
    "ASSET_MATERIALIZATION",
    "ASSET_FAILED_TO_MATERIALIZE",
    "ASSET_OBSERVATION",
    "ASSET_CHECK_EVALUATION_PLANNED",
    "ASSET_CHECK_EVALUATION",
)
TOLD = {dg.DagsterEventType(name) for name in (*RUN, *STEP, *ASSET)}
NOT_MADE = "the run ended before it was made"

log = logging.getLogger(__name__)


def is_told(environ: Mapping[str, str]) -> bool:
    """True if an OpenLineage server is named."""
    return bool(environ.get(URL))


def lineage_sensors(environ: Mapping[str, str]) -> list[dg.SensorDefinition]:
    """Return the sensor that sends the events; none if no server is named or the extra is not installed."""
    if not is_told(environ):
        return []
    try:
        from dagster_openlineage import OpenLineageAdapter
        from openlineage.client import OpenLineageClient
    except ImportError:
        log.warning(LACKING)
        return []

    @dg.sensor(
        name=DagsterNames.of(environ).job("openlineage"),
        minimum_interval_seconds=SECONDS_BETWEEN_LOOKS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Sends the runs that ended since its last look to the OpenLineage server in {URL}.",
    )
    def openlineage(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        # The package's own emitter drops what the server does not accept.
        adapter, events = OpenLineageAdapter(emitter=OpenLineageClient()), 0
        for end in runs_ended(context.instance, int(json.loads(context.cursor or "{}").get(BEHIND, 0))):
            try:
                events += tell(adapter, context.instance, end.run_id)
            except OSError as error:  # of the client
                status = getattr(getattr(error, "response", None), "status_code", None)
                if status not in REFUSED:
                    why = f"HTTP {status}" if status else type(error).__name__
                    return dg.SkipReason(f"run {end.run_id} could not be sent: {why}. The next look sends it again.")
                log.warning("the server in %s refused the run %s: HTTP %s", URL, end.run_id, status)
            context.update_cursor(json.dumps({BEHIND: end.storage_id}))
            if events > EVENTS_A_LOOK:
                break
        return dg.SkipReason(f"sent {counted(events, 'event')}")

    return [openlineage]


def runs_ended(instance: dg.DagsterInstance, behind: int) -> list[dg.EventLogRecord]:
    """Return the events that ended the next runs after an event number, in their order."""
    asked = [dg.RunStatusChangeRecordsFilter(kind, after_storage_id=behind) for kind in ENDS]  # type: ignore[arg-type]
    found = [instance.fetch_run_status_changes(each, RUNS_A_LOOK, ascending=True).records for each in asked]
    return sorted((one for some in found for one in some), key=lambda end: end.storage_id)[:RUNS_A_LOOK]


def tell(adapter: Any, instance: dg.DagsterInstance, run_id: str) -> int:
    """Send the events of a run that has ended, in their order; return their number. Raises the client's errors.

    A run that is reported again keeps its ids, and so do its steps.
    """
    if (run := instance.get_run_by_id(run_id)) is None:
        return 0
    origin = run.remote_job_origin
    repository = origin.repository_origin.repository_name if origin else None
    planned, events = set[dg.AssetKey](), instance.all_logs(run_id, TOLD)
    for entry in events:
        event, at = entry.get_dagster_event(), entry.timestamp
        name, step = event.event_type_value, event.step_key or ""
        if name in RUN:
            while event.event_type in ENDS and planned:
                adapter.asset_failed_to_materialize(planned.pop(), run_id, at, error_message=NOT_MADE)
            getattr(adapter, RUN[name])(run.job_name, run_id, at, repository)
        elif name in STEP:
            own = str(uuid5(UUID(run_id), step))
            getattr(adapter, STEP[name])(run.job_name, run_id, at, own, step, repository)
        else:
            _tell_of_asset(adapter, event, run_id, at, planned)
    return len(events)


def _tell_of_asset(adapter: Any, event: Any, run_id: str, at: float, planned: set[dg.AssetKey]) -> None:
    """Send an event of an asset. planned: the assets that the run has not made so far; updated here."""
    name, said = event.event_type_value, event.event_specific_data
    if name == "ASSET_MATERIALIZATION_PLANNED":
        planned.add(said.asset_key)
        adapter.asset_materialization_planned(said.asset_key, run_id, at)
    elif name == "ASSET_MATERIALIZATION":
        made = said.materialization
        planned.discard(made.asset_key)
        adapter.asset_materialization(made.asset_key, run_id, at, metadata=made.metadata, partition_key=made.partition)
    elif name == "ASSET_FAILED_TO_MATERIALIZE":
        planned.discard(said.asset_key)
        adapter.asset_failed_to_materialize(said.asset_key, run_id, at, partition_key=said.partition)
    elif name == "ASSET_OBSERVATION":
        seen = said.asset_observation
        adapter.asset_observation(seen.asset_key, run_id, at, metadata=seen.metadata, partition_key=seen.partition)
    elif name == "ASSET_CHECK_EVALUATION_PLANNED":
        adapter.asset_check_evaluation_planned(said.asset_key, said.check_name, run_id, at, standalone=True)
    else:
        adapter.asset_check_evaluation(said.asset_key, [said], run_id, at)

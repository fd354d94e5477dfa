"""The common part of all sensors of a home: they are on by default, and each notes when it looked.

Anyone can edit a cursor on Dagster's pages, so its form is never trusted.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg

from pipelines.dagster.names import DagsterNames, Job
from pipelines.home.sensor_ticks import forget_tick, note_tick
from pipelines.ledger.failures import said_of

Read = TypeVar("Read")
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


def understood(cursor: str | None, read: Callable[[Any], Read], otherwise: Read) -> Read:
    """Return `read` of the cursor's JSON, or `otherwise` if the cursor is empty or has another form."""
    try:
        return read(json.loads(cursor)) if cursor else otherwise
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
        return otherwise

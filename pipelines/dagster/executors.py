"""The executors that spread the steps of imports over processes and hosts, by the setting `CHARTFERRY_EXECUTOR`."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg

from pipelines.home.executor import EXECUTOR, problem_of_executor

BROKER, BACKEND, STEP_SECONDS = "CHARTFERRY_BROKER", "CHARTFERRY_BROKER_RESULTS", "CHARTFERRY_STEP_SECONDS"
SILENCE_SECONDS, SHORTEST_SILENCE = 180, 30
"""Seconds of silence after which a worker's step goes to another worker; a sign of life comes every 10 s."""


def executor_of(environ: Mapping[str, str]) -> dg.ExecutorDefinition | None:
    """Return the executor that the environment names; None for the default of all jobs.

    Raises an error that Dagster shows.
    """
    named = environ.get(EXECUTOR)
    if not named:
        return None
    if named not in EXECUTORS:
        raise dg.DagsterInvalidDefinitionError(f"{EXECUTOR} is not one of {', '.join(EXECUTORS)}")
    if problem := problem_of_executor(environ):
        raise dg.DagsterInvalidDefinitionError(problem)
    return EXECUTORS[named](environ)


def celery_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings by which the executor and its workers reach each other.

    A step is acknowledged when it ends: the step of a lost worker or process goes to another worker. If Redis is away,
    executor and workers wait for it. A worker takes one step at a time, and runs each in a new process, which reads the
    feeds anew.
    """
    broker = environ.get(BROKER)
    if not broker:
        raise dg.DagsterInvalidDefinitionError(f"{BROKER} must name a broker, such as redis://10.0.0.2:6379/0")
    seconds = _seconds_of(environ.get(STEP_SECONDS) or str(SILENCE_SECONDS))
    is_redis = broker.startswith(("redis://", "rediss://"))
    return {
        "broker": broker,
        "backend": environ.get(BACKEND) or (broker if is_redis else "rpc://"),
        "config_source": {
            "task_acks_late": True,
            "task_reject_on_worker_lost": True,
            "worker_prefetch_multiplier": 1,
            "worker_concurrency": 1,
            "worker_max_tasks_per_child": 1,
            "worker_cancel_long_running_tasks_on_connection_loss": False,
            "broker_connection_retry_on_startup": True,
            "broker_connection_max_retries": None,
            "broker_channel_error_retry": True,  # otherwise a Redis that becomes a replica would end all workers
            "broker_transport_options": {"visibility_timeout": seconds} if is_redis else {},
            "result_backend_transport_options": {"retry_policy": {"max_retries": None}} if is_redis else {},
        },
    }


def _seconds_of(said: str) -> float:
    try:
        seconds = float(said)
    except ValueError:
        seconds = math.nan
    if not SHORTEST_SILENCE <= seconds < math.inf:
        raise dg.DagsterInvalidDefinitionError(
            f"{STEP_SECONDS} must be a number of seconds, at least {SHORTEST_SILENCE}: {said!r}"
        )
    return seconds


def _celery(environ: Mapping[str, str]) -> dg.ExecutorDefinition:
    from pipelines.dagster.celery_steps import steps_by_celery  # needs the extra `celery`

    return steps_by_celery.configured(celery_settings(environ), name="celery")


def _kubernetes(_: Mapping[str, str]) -> dg.ExecutorDefinition:
    from dagster_k8s import k8s_job_executor  # of the extra `kubernetes`

    return k8s_job_executor


def _processes(_: Mapping[str, str]) -> dg.ExecutorDefinition:
    return dg.multiprocess_executor


EXECUTORS: Mapping[str, Callable[[Mapping[str, str]], dg.ExecutorDefinition]] = {
    "celery": _celery,
    "kubernetes": _kubernetes,
    "processes": _processes,
}

"""The worker program for steps of imports: `celery -A pipelines.dagster.celery_worker worker`.

It is Dagster's own worker with settings from the environment. The code of the steps is loaded before the process of a
step is forked, but the definitions are read anew for each step.
"""

import os
from typing import Any

from dagster_celery.executor import CeleryExecutor
from dagster_celery.make_app import make_app
from dagster_celery.tasks import create_task

from pipelines.dagster import building  # noqa: F401 - loaded once, for all steps
from pipelines.dagster.celery_broker import watch_silence
from pipelines.dagster.executors import celery_settings

watch_silence()
made: Any = CeleryExecutor
app: Any = make_app(made.for_cli(**celery_settings(os.environ)).app_args())  # type: ignore[no-untyped-call]
execute_plan = create_task(app)  # type: ignore[no-untyped-call]

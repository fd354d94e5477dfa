"""A Celery worker whose steps last until a file exists: `celery -A tests.support.waiting_steps worker`.

It has our settings, with far shorter intervals.
"""

import os
import time
from pathlib import Path

from celery import Celery

from pipelines.dagster import celery_broker
from pipelines.dagster.executors import celery_settings

celery_broker.BEAT_SECONDS = 0.3
celery_broker.watch_silence()
url = os.environ["CHARTFERRY_BROKER"]
app = Celery("waiting", broker=url, backend=url)
app.conf.update(celery_settings({"CHARTFERRY_BROKER": "redis://"})["config_source"])
app.conf.broker_transport_options = {"visibility_timeout": 2, "unacked_restore_interval": 0.5}


@app.task(name="wait")
def wait(folder: str, step: str) -> str:
    """Write a line each time a step runs, then wait for a file."""
    with (Path(folder) / f"{step}.begun").open("a") as begun:
        begun.write(f"{os.environ['WORKER']}\n")
    while not (Path(folder) / f"{step}.end").exists():
        time.sleep(0.05)
    return step

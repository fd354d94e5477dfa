"""A program of Celery workers that make parts of few rows: `celery -A tests.support.few_rows_a_part worker`."""

from pipelines.dagster.celery_worker import app, execute_plan
from pipelines.runs import parts

__all__ = ["app", "execute_plan"]
parts.ROWS_A_WORKER = 2_000

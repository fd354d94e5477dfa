"""A feed of tasks whose later files update existing tasks."""

from pathlib import Path

from tests.support.exports import feed_file

TASKS = "task_id,patient_id,description,status,requester_id"


def feed_of_tasks(home: Path) -> None:
    feed_file(home, "tasks", 'kind = "tasks"\nsource = "default"\nfiles = ["tasks*"]\nchanged = "update"\n', TASKS)

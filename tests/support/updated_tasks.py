"""A feed of tasks whose later files update those that are there."""

from pathlib import Path

TASKS = "task_id,patient_id,description,status,requester_id"


def feed_of_tasks(home: Path) -> None:
    (home / "feeds").mkdir(exist_ok=True)
    columns = "".join(f'{column} = "{column}"\n' for column in TASKS.split(","))
    terms = 'kind = "tasks"\nsource = "default"\nfiles = ["tasks*"]\nchanged = "update"\n[columns]\n'
    (home / "feeds" / "tasks.toml").write_text(terms + columns)

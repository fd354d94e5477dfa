"""Small exports of payments and tasks in the inbox of a home, feed files, and a questionnaire for answers."""

from pathlib import Path

PAYMENTS = "payment_id,patient_id,amount,paid_on,claim_id\n"

QUESTIONS = {
    "resourceType": "Questionnaire",
    "id": "q1",
    "name": "q",
    "status": "active",
    "code": [{"system": "http://loinc.org", "code": "1"}],
    "item": [{"linkId": "1", "type": "text", "text": "?", "repeats": False}],
}
TASKS = "task_id,patient_id,description,status,requester_id\n"
ANSWERS = "response_id,patient_id,questionnaire,question,answer_text\n"


def put(home, name, text):
    (home / "inbox" / name).write_text(text)


def feed_file(home: Path, name: str, says: str, header: str) -> Path:
    """Write a feed file with these settings, whose columns have our own names. Return its path."""
    path = home / "feeds" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{says}[columns]\n" + "".join(f'{column} = "{column}"\n' for column in header.strip().split(",")))
    return path


def payments(home, *rows, name="payments.csv"):
    put(
        home,
        name,
        PAYMENTS + "".join(f"{key},{patient},{amount},2026-03-01,\n" for key, patient, amount in rows),
    )


def tasks(home, *keys, text="call"):
    put(home, "tasks.csv", TASKS + "".join(f"{key},p1,{text} {key},requested,a\n" for key in keys))


def let_update(home):
    """Have later files update tasks."""
    feed_file(home, "tasks", 'kind = "tasks"\nfiles = ["tasks*.csv"]\nchanged = "update"\n', TASKS)

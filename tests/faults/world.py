"""The data of fault runs: the patients of each run, the rows of its exports, and the expected resources."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.exports import QUESTIONS, feed_file
from tests.support.payers import claim

PAYMENTS, TASKS, RESPONSES = 6, 3, 3
PAYMENT_COLUMNS = "payment_id patient_id amount paid_on claim_id".split()
TASK_COLUMNS = "task_id patient_id description status requester_id comment comment_author_id".split()
ANSWER_COLUMNS = "response_id patient_id questionnaire question answer_text".split()
FEEDS = {"calls": ("tasks", "update", TASK_COLUMNS), "forms": ("answers", "supersede", ANSWER_COLUMNS)}
STAFF = {"resourceType": "Practitioner", "id": "a", "name": [{"family": "B"}]}
Body = dict[str, Any]


def patients_of(run: int) -> list[str]:
    return [f"r{run}-{name}" for name in "ab"]


def write_world(folder: Path, runs: int) -> Path:
    """Reference data for runs 0 to `runs`: each has its own patients, who owe enough."""
    folder.mkdir(parents=True)
    people = [patient for run in range(runs) for patient in patients_of(run)]
    bodies = {
        "patient": [{"resourceType": "Patient", "id": each, "name": [{"family": "A"}]} for each in people],
        "claim": [claim(each) for each in people],
        "practitioner": [STAFF],
        "questionnaire": [QUESTIONS],
    }
    for name, some in bodies.items():
        (folder / f"{name}.ndjson").write_text("".join(json.dumps(body) + "\n" for body in some))
    return folder


@dataclass
class Source:
    """The exports of one run, and by key what the store is to hold in the end: see `content`."""

    run: int
    wanted: dict[str, tuple[Any, ...]]
    times: int = 1

    @property
    def patients(self) -> list[str]:
        return patients_of(self.run)


def write_feeds(home: Path) -> None:
    """Feeds like the built-in ones, whose changed records are brought to the target."""
    for name, (kind, changed, columns) in FEEDS.items():
        feed_file(home, name, f'kind = "{kind}"\nfiles = ["{name}*.csv"]\nchanged = "{changed}"\n', ",".join(columns))


def first_exports(home: Path, run: int, dice: random.Random, times: int = 1) -> Source:
    """Payments, equal ones among them, tasks with a comment each, and responses; so many times the usual number."""
    source = Source(run, {}, times)
    rows = []
    for number in range(PAYMENTS * times):
        patient, cents = dice.choice(source.patients), dice.choice([100, 100, 250, 999])
        key = f"{run}-p{number}"
        source.wanted[key] = ("PaymentNotice", patient, cents)
        rows.append([key, patient, f"{cents / 100:.2f}", "2026-02-01", ""])
    _write(home / "inbox" / f"payments-{run}.csv", PAYMENT_COLUMNS, rows)
    change_tasks(home, source, dice, "first")
    change_responses(home, source, dice, "first")
    return source


def change_tasks(home: Path, source: Source, dice: random.Random, said: str) -> None:
    """Every task of the run with another description and one more comment."""
    rows = []
    for number in range(TASKS * source.times):
        key, patient = f"{source.run}-t{number}", source.patients[number % 2]
        before = source.wanted.get(key)
        comments = (*(before[4] if before else ()), f"{said} {dice.randrange(1000)}")
        source.wanted[key] = ("Task", patient, f"{key} {said}", "requested", comments)
        rows.append([key, patient, f"{key} {said}", "requested", "a", comments[-1], "a"])
    _write(home / "inbox" / f"calls-{source.run}-{said}.csv", TASK_COLUMNS, rows)


def change_responses(home: Path, source: Source, dice: random.Random, said: str) -> None:
    """Every response of the run with another answer."""
    rows = []
    for number in range(RESPONSES * source.times):
        key, patient = f"{source.run}-r{number}", dice.choice(source.patients)
        source.wanted[key] = ("QuestionnaireResponse", patient, f"{said} {number}", "completed")
        rows.append([key, patient, "q1", "1", f"{said} {number}"])
    _write(home / "inbox" / f"forms-{source.run}-{said}.csv", ANSWER_COLUMNS, rows)


def content(body: Body) -> tuple[Any, ...]:
    """Return the content of a resource in the form of `Source.wanted`."""
    match body["resourceType"]:
        case "PaymentNotice":
            return "PaymentNotice", body["request"]["reference"][8:], round(body["amount"]["value"] * 100)
        case "Task":
            comments = tuple(note["text"] for note in body.get("note", ()))
            return "Task", body["for"]["reference"][8:], body.get("description"), body["status"], comments
    (item,) = body["item"]
    answer = item["answer"][0]["valueString"]
    return "QuestionnaireResponse", body["subject"]["reference"][8:], answer, body["status"]


def _write(path: Path, columns: list[str], rows: list[list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(",".join(line) + "\n" for line in [columns, *rows]))

"""Exports of many rows in several files of each kind, and what a store is to hold of them in the end."""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.exports import QUESTIONS
from tests.support.payers import AMOUNTS, practice

HEADERS = {
    "payments": "payment_id,patient_id,amount,paid_on",
    "tasks": "task_id,patient_id,description,status,requester_id",
    "answers": "response_id,patient_id,questionnaire,encounter_id,question,answer_text",
}
TYPES = {"payments": "PaymentNotice", "tasks": "Task", "answers": "QuestionnaireResponse"}
FIRST = datetime(2026, 2, 1, tzinfo=UTC)
"""When the first payment was made, each other one a second after the one before: no two files have equal content."""
ENCOUNTERS = 3
"""Encounters of a patient; every other response has one of them."""


@dataclass
class Exports:
    """Files by name, what each key comes to, and the lane of each key. Keys are `<file>:<number>`, in their order."""

    files: dict[str, str] = field(default_factory=dict)
    wanted: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    lanes: dict[str, str] = field(default_factory=dict)

    @property
    def cents(self) -> int:
        return sum(wanted[2] for wanted in self.wanted.values() if wanted[0] == "PaymentNotice")


def make_exports(rows: Mapping[str, int], files: Mapping[str, int], patients: int, dice: random.Random) -> Exports:
    """Make so many rows of each kind, in so many files, in an order in which the kinds are mixed."""
    made = Exports()
    names = [f"{kind}-{number:03}" for kind in rows for number in range(files[kind])]
    dice.shuffle(names)
    for name in names:
        kind, _, number = name.partition("-")
        whole, more = divmod(rows[kind], files[kind])
        lines = list(_lines(made, kind, name, whole + (int(number) < more), patients, dice))
        made.files[f"{name}.csv"] = "\n".join([HEADERS[kind], *lines, ""])
    return made


def reference(folder: Path, patients: int) -> Path:
    """Write patients who owe enough, with encounters, a practitioner and a questionnaire."""
    practice(folder, patients)
    (folder / "questionnaire.ndjson").write_text(json.dumps(QUESTIONS) + "\n")
    encounters = (encounter(f"p{patient}", number) for patient in range(patients) for number in range(ENCOUNTERS))
    (folder / "encounter.ndjson").write_text("".join(json.dumps(body) + "\n" for body in encounters))
    return folder


def encounter(patient: str, number: int) -> dict[str, Any]:
    return {
        "resourceType": "Encounter",
        "id": f"e-{patient}-{number}",
        "status": "finished",
        "class": {"system": "http://terminology.hl7.org/CodeSystem/v3-ActCode", "code": "AMB"},
        "subject": {"reference": f"Patient/{patient}"},
        "period": {"start": f"2026-01-1{number}T09:00:00Z"},
    }


def _lines(made: Exports, kind: str, name: str, rows: int, patients: int, dice: random.Random) -> Iterator[str]:
    for number in range(rows):
        key, patient = f"{name}:{number}", f"p{dice.randrange(patients)}"
        made.lanes[key] = patient
        if kind == "payments":
            cents, paid_on = dice.choice(AMOUNTS), FIRST + timedelta(seconds=len(made.wanted))
            made.wanted[key] = (TYPES[kind], patient, cents)
            yield f"{key},{patient},{cents / 100:.2f},{paid_on.isoformat()}"
        elif kind == "tasks":
            made.wanted[key] = (TYPES[kind], patient, f"call {key}", "requested", ())
            yield f"{key},{patient},call {key},requested,a"
        else:
            encounter = f"e-{patient}-{dice.randrange(ENCOUNTERS)}" if number % 2 else ""
            made.lanes[key] = encounter or patient
            made.wanted[key] = (TYPES[kind], patient, f"said {key}", "completed")
            yield f"{key},{patient},q1,{encounter},1,said {key}"

"""Benchmark input of any size: reference data, and an inbox of tasks, payments and answers for the built-in feeds.

usage: make_rows.py OUT [--patients N] [--tasks N] [--payments N] [--responses N]
Every row is acceptable: one claim a patient covers all of the patient's payments. The same numbers give the same files.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from pathlib import Path

PRACTITIONERS = 20
LOINC = "http://loinc.org"
QUESTIONS = ("44250-9", "44255-8", "44259-0", "44254-1", "44251-7", "44258-2", "44252-5", "44253-3", "44260-8")
OPTIONS = (("LA6568-5", "Not at all"), ("LA6569-3", "Several days"), ("LA6570-1", "More than half the days"))
FIRST = date(2026, 1, 1)
DAYS = tuple((FIRST + timedelta(days=day)).isoformat() for day in range(365))
LABELS = ("", "", "billing", "labs;urgent", "refill", "call back;records;follow-up")
SUBJECTS = (
    "Call about lab results",
    "Refill request",
    "Schedule follow-up",
    'Letter: "fit for work"',
    "Visit, Größe prüfen",
)


# --- Reference data -------------------------------------------------------------------------------


def patients(number: int) -> Iterator[dict]:
    for index in range(number):
        name = [{"family": f"Family{index}", "given": ["Given"]}]
        yield {"resourceType": "Patient", "id": patient(index), "name": name, "birthDate": "1970-01-01"}


def practitioners() -> Iterator[dict]:
    for index in range(PRACTITIONERS):
        yield {"resourceType": "Practitioner", "id": practitioner(index), "name": [{"family": f"Doctor{index}"}]}


def claims(number: int, payments: int) -> Iterator[dict]:
    """Yield a claim for each patient, one dollar larger than the patient's payments."""
    owed: Counter[int] = Counter()
    for index in range(payments):
        owed[payer(index, number)] += cents(index)
    for index in range(number):
        total = owed[index] + 100
        yield {
            "resourceType": "Claim",
            "id": f"c{index}",
            "status": "active",
            "type": {
                "coding": [{"system": "http://terminology.hl7.org/CodeSystem/claim-type", "code": "professional"}]
            },
            "use": "claim",
            "patient": {"reference": f"Patient/{patient(index)}"},
            "created": "2025-12-31",
            "provider": {"reference": f"Practitioner/{practitioner(index)}"},
            "priority": {"coding": [{"code": "normal"}]},
            "insurance": [{"sequence": 1, "focal": True, "coverage": {"display": "Self-pay"}}],
            "total": {"value": total / 100, "currency": "USD"},
        }


def questionnaires() -> Iterator[dict]:
    options = [{"valueCoding": {"system": LOINC, "code": code, "display": display}} for code, display in OPTIONS]
    items = [
        {
            "linkId": f"/{code}",
            "code": [{"system": LOINC, "code": code}],
            "text": f"Question {code}",
            "type": "choice",
            "repeats": False,
            "answerOption": options,
        }
        for code in QUESTIONS
    ]
    head = {"resourceType": "Questionnaire", "id": "q-bench", "name": "Bench", "status": "active"}
    yield head | {"code": [{"system": LOINC, "code": "44249-1"}], "item": items}


# --- The inbox ------------------------------------------------------------------------------------


def tasks(number: int, people: int) -> Iterator[str]:
    yield (
        "task_id,patient_id,description,status,requester_id,owner_id,group_id,authored,due,labels,"
        "comment,comment_author_id,comment_time"
    )
    for index in range(number):
        subject = SUBJECTS[index % len(SUBJECTS)]
        if "," in subject or '"' in subject:
            subject = '"' + subject.replace('"', '""') + '"'
        comment = f"Left a voicemail,{practitioner(index + 3)},{day(index + 1)}T16:00:00Z" if index % 3 == 0 else ",,"
        owner = practitioner(index + 7) if index % 2 else ""
        due = day(index + 30) if index % 4 else ""
        yield (
            f"T{index:08d},{patient(index % people)},{subject},{'completed' if index % 5 == 0 else 'requested'},"
            f"{practitioner(index)},{owner},,{day(index)}T09:30:00Z,{due},{LABELS[index % len(LABELS)]},{comment}"
        )


def payments(number: int, people: int) -> Iterator[str]:
    yield "payment_id,patient_id,amount,paid_on,claim_id"
    for index in range(number):
        who, amount = payer(index, people), cents(index)
        claim = f"c{who}" if index % 10 == 0 else ""
        yield f"P{index:08d},{patient(who)},{amount // 100}.{amount % 100:02d},{day(index)},{claim}"


def answers(number: int, people: int) -> Iterator[str]:
    """Yield the rows of responses: nine rows for each, one after another."""
    yield (
        "response_id,patient_id,questionnaire,authored,author,encounter_id,note_id,question,"
        "answer_code,answer_text,answer_number"
    )
    for index in range(number):
        who = patient(index % people)
        head = f"R{index:08d},{who},q-bench,{day(index)}T10:00:00Z,Patient/{who},,"
        for place, question in enumerate(QUESTIONS):
            yield f"{head},/{question},{OPTIONS[(index + place * 2) % len(OPTIONS)][0]},,"


def patient(index: int) -> str:
    return f"p{index}"


def practitioner(index: int) -> str:
    return f"dr{index % PRACTITIONERS}"


def day(index: int) -> str:
    return DAYS[index % len(DAYS)]


def payer(index: int, people: int) -> int:
    return index % people


def cents(index: int) -> int:
    return 500 + index * 37 % 9_500


# --- Writing --------------------------------------------------------------------------------------


def write(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(f"{line}\n" for line in lines)


def make(folder: Path, people: int, counts: dict[str, int]) -> None:
    """Write `reference/*.ndjson` and `inbox/*.csv`. counts: the numbers of `tasks`, `payments` and `responses`."""
    reference = {
        "patient": patients(people),
        "practitioner": practitioners(),
        "claim": claims(people, counts["payments"]),
        "questionnaire": questionnaires(),
    }
    for name, resources in reference.items():
        write(folder / "reference" / f"{name}.ndjson", map(json.dumps, resources))
    write(folder / "inbox" / "tasks.csv", tasks(counts["tasks"], people))
    write(folder / "inbox" / "payments.csv", payments(counts["payments"], people))
    write(folder / "inbox" / "answers.csv", answers(counts["responses"], people))


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes benchmark input into OUT/reference and OUT/inbox.")
    parser.add_argument("out", type=Path, metavar="OUT")
    for name, default in (("patients", 1_000), ("tasks", 100_000), ("payments", 100_000), ("responses", 10_000)):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N")
    given = parser.parse_args()
    if given.patients < 1:
        parser.error("there must be a patient")
    make(given.out, given.patients, {"tasks": given.tasks, "payments": given.payments, "responses": given.responses})


if __name__ == "__main__":
    main()

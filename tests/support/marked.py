"""Reference data, exports and a home in which each kind of personal data has a marker to search for."""

import json
from pathlib import Path
from typing import Any

from tests.support.clinic_feed import lay_clinic

BIRTH, AMOUNT = "1931-07-09", "7654321.{:02}"
KINDS = {
    "name": rb"QznameZq",
    "number": rb"QznumberZq",
    "text": rb"QztextZq",
    "comment": rb"QzcommentZq",
    "key": rb"QzkeyZq",
    "birth date": rb"1931\D?07\D?09|0?9\D0?7\D1931",
    "amount": rb"7[,']?654[,']?321\D?[0-9][0-9]",
}
"""The marker of each kind of personal data. `number`: a person's in another system; `key`: a record's."""

NAME, NUMBER, TEXT, COMMENT, KEY = ("QznameZq", "QznumberZq", "QztextZq", "QzcommentZq", "QzkeyZq")
WORDS = {"family": NAME, "given": [NAME], "text": NAME}
DIV = {"status": "generated", "div": f"<div xmlns='http://www.w3.org/1999/xhtml'>{TEXT}</div>"}
LOINC = "http://loinc.org"
CODE = {"coding": [{"system": LOINC, "code": "4548-4", "display": "HbA1c"}]}


def patient(number: int) -> dict[str, Any]:
    about = {"resourceType": "Patient", "id": f"p{number}", "name": [WORDS], "birthDate": BIRTH, "gender": "female"}
    ways = {"telecom": [{"system": "phone", "value": NAME}], "address": [{"line": [NAME]}]}
    return about | ways | {"identifier": [{"system": "urn:mrn", "value": NUMBER}], "text": DIV}


def option(code: str) -> dict[str, Any]:
    return {"valueCoding": {"system": LOINC, "code": code, "display": f"option {code}"}}


VALUES: tuple[dict[str, Any], ...] = (
    {"valueString": TEXT},
    {"valueQuantity": {"value": 7.1, "unit": "%"}},
    {"valueDateTime": BIRTH},
)
INSURANCE = {"sequence": 1, "focal": True, "coverage": {"display": "self-pay"}}
PATIENT, DOCTOR = {"reference": "Patient/p1"}, {"reference": "Practitioner/d1"}
REFERENCE: list[dict[str, Any]] = [
    *(patient(number) for number in (1, 2)),
    {"resourceType": "Practitioner", "id": "d1", "name": [{"family": "Staff"}]},
    {"resourceType": "Group", "id": "g1", "name": "Front desk", "type": "practitioner", "actual": True},
    *(
        {"resourceType": "Claim", "id": f"c{number}", "status": "active", "patient": PATIENT, "created": "2026-01-01"}
        | {"type": {"coding": [{"code": "professional"}]}, "use": "claim", "provider": DOCTOR}
        | {"priority": {"coding": [{"code": "normal"}]}, "insurance": [INSURANCE]}
        | {"total": {"value": 9_000_000 + number, "currency": "USD"}}
        for number in (1, 2, 3)
    ),
    {
        "resourceType": "Questionnaire",
        "id": "q1",
        "name": "intake",
        "status": "active",
        "code": [{"system": LOINC, "code": "55757-9"}],
        "item": [
            {"linkId": "story", "text": "Tell us", "type": "text"},
            {"linkId": "mood", "text": "Mood?", "type": "choice", "answerOption": [option("fine"), option("low")]},
            {"linkId": "born", "text": "Born?", "type": "text"},
        ],
    },
    *(
        {"resourceType": "Observation", "id": f"o{number}", "status": "final", "code": CODE, "subject": PATIENT}
        | {"effectiveDateTime": "2026-02-01", "text": DIV, "note": [{"text": TEXT}]}
        | value
        for number, value in enumerate(VALUES, 1)
    ),
    *(
        {"resourceType": "DiagnosticReport", "id": f"r{number}", "status": "final", "code": CODE, "subject": PATIENT}
        | {"category": [{"coding": [{"system": LOINC, "code": "LP29684-5"}]}], "conclusion": TEXT, "text": DIV}
        | {"effectiveDateTime": "2026-02-01", "issued": "2026-02-02T00:00:00Z", "performer": [DOCTOR]}
        | {"result": [{"reference": f"Observation/o{each}"} for each in (1, 2, 3)]}
        for number in (1, 2)
    ),
    {**patient(1), "id": f"not an id {NUMBER}"},
]
TASKS = "task_id,patient_id,description,status,requester_id,owner_id,due,labels,comment,comment_author_id,comment_time"
ANSWERS = "response_id,patient_id,questionnaire,authored,author,question,answer_code,answer_text,answer_number"
PAYMENTS = "payment_id,patient_id,amount,paid_on,claim_id"


def payment(number: int, patient_id: str = "p1", more: str = "") -> str:
    return f"{KEY}y{number},{patient_id},{AMOUNT.format(number)}{more},2026-01-03,\n"


FILES = {
    "clinic-1.csv": "ID,MRN,WHAT,DONE,BY\n"
    f"{KEY}1,{NUMBER},{TEXT},Y,d1\n{KEY}2,{NUMBER}unknown,{TEXT},Y,d1\n{KEY}3,{NUMBER},{TEXT},{TEXT},d1\n",
    "tasks-1.csv": f"{TASKS}\n"
    f"{KEY}t1,p1,{TEXT} {NAME} {BIRTH},requested,d1,d1,2026-05-01,front,{COMMENT},d1,2026-01-01T00:00:00Z\n"
    f"{KEY}t2,p1,{TEXT}\x01,requested,d1,,,,{COMMENT},,\n"
    f"{KEY}t3,{NUMBER},{TEXT},requested,d1,,,,,,\n",
    "answers-1.csv": f"{ANSWERS}\n"
    f"{KEY}a1,p1,intake,2026-01-02,,story,,{TEXT} {NAME},\n{KEY}a1,p1,intake,2026-01-02,,mood,fine,,\n"
    f"{KEY}a1,p1,intake,2026-01-02,,born,,{BIRTH},\n{KEY}a2,p1,intake,2026-01-02,,mood,none,,\n"
    f"{KEY}a3,p1,intake,2026-01-02,,{TEXT},,{TEXT},\n",
    "payments-1.csv": f"{PAYMENTS}\n"
    + "".join(payment(number) for number in (1, 2))
    + "".join(payment(number, "p2") for number in (3, 4))
    + "".join(payment(number, more="7") for number in (5, 6))
    + "".join(payment(number, NUMBER) for number in (7, 8)),
    "payments-2.csv": f"{TEXT},{NUMBER}\n{AMOUNT.format(9)},{BIRTH}\n",
    "payments-3.csv.gz": f"no gzip {TEXT}",
}
VIEW = {
    "resourceType": "ViewDefinition",
    "name": "reading",
    "resource": "Observation",
    "select": [
        {
            "column": [
                {"name": "id", "path": "id", "type": "id"},
                {"name": "value", "path": "value.ofType(string)", "type": "string"}
                | {"tag": [{"name": "chartferry/free-text", "value": "true"}]},
            ]
        }
    ],
}


def lay_out(home: Path) -> None:
    for folder in ("inbox", "feeds", "views", "reference"):
        (home / folder).mkdir(parents=True, mode=0o700)
    (home / "reference" / "all.ndjson").write_text("".join(f"{json.dumps(each)}\n" for each in REFERENCE))
    lay_clinic(home / "feeds", f"MRN,NAME,FHIR\n{NUMBER},{NAME},p1\n")
    (home / "views" / "reading.view.json").write_text(json.dumps(VIEW))
    (home / "reports.toml").write_text("publish_free_text = true\npublish_patients = true\n")


def drop(home: Path) -> None:
    for name, text in FILES.items():
        (home / "inbox" / f".{name}").write_text(text)
        (home / "inbox" / f".{name}").rename(home / "inbox" / name)

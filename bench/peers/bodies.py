"""The bodies that all servers get: reference data, tasks, payments and responses.

A body has STAMP in its identifier. The load generator replaces it by twelve digits, so that no two requests of a run
carry the same record.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import orjson

from bench.make_rows import (
    LABELS,
    LOINC,
    OPTIONS,
    QUESTIONS,
    SUBJECTS,
    cents,
    claims,
    day,
    patient,
    patients,
    practitioner,
    practitioners,
    questionnaires,
)

STAMP = "@" * 12
BASE_URL = "http://peers.example"
"""The address under which the service of ours is known, as a response names its questionnaire by it."""
PEOPLE = 1_000
OWED = 9_000_000
"""The dollars that each patient owes: more than any run pays."""
SYSTEM = "urn:chartferry:peers"
BUNDLE = 500

Body = dict[str, Any]


def reference() -> Iterator[Body]:
    """Return all records that the bodies name. A record comes before those that refer to it."""
    owed = ({**claim, "total": {"value": OWED, "currency": "USD"}} for claim in claims(PEOPLE, 0))
    return chain(practitioners(), patients(PEOPLE), owed, questionnaires())


def named(kind: str, key: str) -> Body:
    return {"reference": f"{kind}/{key}"}


def identifier(number: int) -> Body:
    return {"system": SYSTEM, "value": f"{STAMP}-{number}"}


def task(number: int) -> Body:
    body: Body = {
        "resourceType": "Task",
        "identifier": [identifier(number)],
        "status": "completed" if number % 5 == 0 else "requested",
        "intent": "unknown",
        "description": SUBJECTS[number % len(SUBJECTS)],
        "for": named("Patient", patient(number % PEOPLE)),
        "authoredOn": f"{day(number)}T09:30:00Z",
        "requester": named("Practitioner", practitioner(number)),
        "owner": named("Practitioner", practitioner(number + 7)),
        "restriction": {"period": {"end": day(number + 30)}},
    }
    if labels := LABELS[number % len(LABELS)]:
        body["input"] = [{"type": {"text": "label"}, "valueString": label} for label in labels.split(";")]
    if number % 3 == 0:
        author = named("Practitioner", practitioner(number + 3))
        body["note"] = [{"authorReference": author, "time": f"{day(number + 1)}T16:00:00Z", "text": "Left a voicemail"}]
    return body


def payment(number: int) -> Body:
    """A payment; every tenth is a copayment."""
    who = number % PEOPLE
    body: Body = {
        "resourceType": "PaymentNotice",
        "identifier": [identifier(number)],
        "status": "active",
        "request": named("Patient", patient(who)),
        "created": f"{day(number)}T12:00:00Z",
        "payment": {},
        "recipient": {},
        "amount": {"value": cents(number) / 100, "currency": "USD"},
    }
    if number % 10 == 0:
        claim = {"url": "claim", "valueReference": named("Claim", f"c{who}")}
        body["extension"] = [{"url": "http://schemas.example.com/fhir/copayment-claims", "extension": [claim]}]
    return body


def response(number: int) -> Body:
    """A response of nine answers."""
    who = patient(number % PEOPLE)
    return {
        "resourceType": "QuestionnaireResponse",
        "identifier": identifier(number),
        "questionnaire": f"{BASE_URL}/Questionnaire/q-bench",
        "status": "completed",
        "subject": named("Patient", who),
        "authored": f"{day(number)}T10:00:00Z",
        "author": named("Patient", who),
        "item": [{"linkId": f"/{code}", "answer": [answer(number + at * 2)]} for at, code in enumerate(QUESTIONS)],
    }


def answer(number: int) -> Body:
    code, display = OPTIONS[number % len(OPTIONS)]
    return {"valueCoding": {"system": LOINC, "code": code, "display": display}}


MAKE: dict[str, Callable[[int], Body]] = {"Task": task, "PaymentNotice": payment, "QuestionnaireResponse": response}


def singles(kind: str, number: int) -> list[bytes]:
    """Bodies of single creates, one line each."""
    return [orjson.dumps(MAKE[kind](at)) for at in range(number)]


def bundles(kind: str, number: int, bundle_type: str, conditional: bool) -> list[bytes]:
    """Return bundles of creates. Only the type of a Bundle depends on the server."""
    return [
        orjson.dumps(
            {"resourceType": "Bundle", "type": bundle_type, "entry": list(entries(kind, at * BUNDLE, conditional))}
        )
        for at in range(number)
    ]


def entries(kind: str, first: int, conditional: bool) -> Iterator[Body]:
    for number in range(first, first + BUNDLE):
        condition = {"ifNoneExist": f"identifier={SYSTEM}|{STAMP}-{number}"} if conditional else {}
        yield {"resource": MAKE[kind](number), "request": {"method": "POST", "url": kind} | condition}


def stamped(body: bytes, number: int) -> bytes:
    return body.replace(STAMP.encode(), b"%012d" % number)


def loading() -> list[bytes]:
    """Return the reference data as transactions that keep the ids: for servers without a command to load it."""
    found, size = list(reference()), 250
    parts = (found[at : at + size] for at in range(0, len(found), size))
    return [
        orjson.dumps(
            {
                "resourceType": "Bundle",
                "type": "transaction",
                "entry": [
                    {"resource": one, "request": {"method": "PUT", "url": f"{one['resourceType']}/{one['id']}"}}
                    for one in part
                ],
            }
        )
        for part in parts
    ]

"""Compare a resource at the target with a row's, by the elements that identify the record.

Payments: patient, amount, claim. Responses: patient, questionnaire, answers. Tasks: patient and description. Dates are
left out.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

Body = dict[str, Any]
REFERENCE = re.compile(r"(?:https?://.*/)?([A-Z][A-Za-z]+/[A-Za-z0-9.-]+)(?:/_history/[^/]+)?")


def same_content(resource_type: str, ours: Body, theirs: Body) -> bool:
    """True if our body and one that was read have the same content; elements of the wrong shape count as different."""
    draw = CONTENT[resource_type]
    try:
        return bool(draw(ours) == draw(theirs))
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError):
        return False


def fingerprints(resource_type: str, body: Body) -> tuple[str | None, str | None]:
    """Return short hashes of the content: without the record's own time, and with it. Equal contents have equal
    hashes.

    None for elements of the wrong shape.
    """
    try:
        content, when = CONTENT[resource_type](body), own_time(resource_type, body)
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError):
        return None, None
    untimed = _short((content, None))
    return untimed, untimed if when is None else _short((content, when))


def _short(drawn: Any) -> str:
    return hashlib.sha256(repr(drawn).encode()).hexdigest()[:32]


def moment(value: Any) -> datetime | None:
    """Return a date or datetime as an instant, for a date its first one; None for anything else."""
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def second(value: Any) -> datetime | None:
    """Return a time cut to the second, since some targets keep times only so."""
    found = moment(value)
    return found.replace(microsecond=0) if found else None


def own_time(resource_type: str, body: Body) -> datetime | None:
    """Return the record's own time that the target keeps, to the second; None if it has none."""
    return second(body.get(OWN_TIME.get(resource_type, "")))


def _payment(body: Body) -> Any:
    claims = {referred(part["valueReference"]) for part in copayment_of(body) if "valueReference" in part}
    return referred(body["request"]), Decimal(str(body["amount"]["value"])).normalize(), sorted(claims)


def copayment_of(body: Body) -> Iterator[Body]:
    for extension in body.get("extension", ()):
        if extension.get("url", "").endswith("/copayment-claims"):
            yield from extension.get("extension", ())


def _response(body: Body) -> Any:
    questionnaire = body["questionnaire"].rsplit("/", 1)[-1].split("|")[0]
    return referred(body["subject"]), questionnaire, sorted(_answers(body))


def _answers(element: Body) -> Iterator[tuple[str, str, str]]:
    for item in element.get("item", ()):
        for answer in item.get("answer", ()):
            yield (item["linkId"], *_value(answer))
            yield from _answers(answer)
        yield from _answers(item)


def _value(answer: Body) -> tuple[str, str]:
    if "valueCoding" in answer:
        return "coding", f"{answer['valueCoding']['system']}|{answer['valueCoding']['code']}"
    if "valueDecimal" in answer:
        return "decimal", str(Decimal(str(answer["valueDecimal"])).normalize())
    return "string", answer["valueString"]


def _task(body: Body) -> Any:
    return referred(body["for"]) if "for" in body else None, body.get("description")


def patient_of(body: Mapping[str, Any]) -> str | None:
    """Return the id of the patient of a resource; None if the resource shows none."""
    shown = (body[name] for name in PATIENT if isinstance(body.get(name), dict))
    kind, _, patient = next((referred(each) for each in shown if "reference" in each), "").partition("/")
    return patient if kind == "Patient" else None


def referred(element: Body) -> str:
    """Return a reference as `Type/id`, also if the target shows it with its address or a version."""
    found = REFERENCE.fullmatch(str(element["reference"]))
    return found[1] if found else str(element["reference"])


def is_note_id(extension: Mapping[str, Any]) -> bool:
    """True for the extension by which a response shows its note."""
    return str(extension.get("url", "")).endswith("/fhir/extensions/note-id")


PATIENT = ("for", "subject", "request")
"""The elements that name the patient of a task, a response and a payment."""
TAKEN_BACK = {"QuestionnaireResponse": "entered-in-error", "Task": "cancelled"}
"""The status of a resource that was taken back. Payments have none."""
NOT_IN_FORCE = ("cancelled", "draft", "entered-in-error")
"""The statuses of payments and claims that do not count for a balance."""


def taken_back(resource_type: str, ours: Body, theirs: Body) -> bool:
    """True if a resource was taken back at the target, while the row has another status."""
    status = TAKEN_BACK.get(resource_type)
    return status is not None and theirs.get("status") == status != ours.get("status")


OWN_TIME = {"QuestionnaireResponse": "authored", "Task": "authoredOn"}
"""The element with the record's own time, which the target keeps."""
DATED = {**OWN_TIME, "PaymentNotice": "created"}
"""The element of a body that gets the moment of the first attempt if the source has none."""
CONTENT: dict[str, Callable[[Body], Any]] = {
    "PaymentNotice": _payment,
    "QuestionnaireResponse": _response,
    "Task": _task,
}

"""Compare a resource at the target with the one that a row makes, by the elements that make it that record.

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
    """Compare a body of ours with one that was read; elements of the wrong shape count as different."""
    draw = CONTENT[resource_type]
    try:
        return bool(draw(ours) == draw(theirs))
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError):
        return False


def fingerprints(resource_type: str, body: Body) -> tuple[str | None, str | None]:
    """Return short hashes, equal for equal content: without the record's own time, and with it.

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
    """A date or datetime as an instant, a date being its first; None for anything else."""
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def second(value: Any) -> datetime | None:
    """Return a time cut to the second: some targets keep no more of it."""
    found = moment(value)
    return found.replace(microsecond=0) if found else None


def own_time(resource_type: str, body: Body) -> datetime | None:
    """Return the time that a record has of its own and the target keeps, to the second; None where it has none."""
    return second(body.get(OWN_TIME.get(resource_type, "")))


def _payment(body: Body) -> Any:
    claims = {referred(part["valueReference"]) for part in _copayment(body) if "valueReference" in part}
    return referred(body["request"]), Decimal(str(body["amount"]["value"])).normalize(), sorted(claims)


def _copayment(body: Body) -> Iterator[Body]:
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
    """The id of the patient whom a resource is of; None where it shows none."""
    shown = (body[name] for name in PATIENT if isinstance(body.get(name), dict))
    kind, _, patient = next((referred(each) for each in shown if "reference" in each), "").partition("/")
    return patient if kind == "Patient" else None


def referred(element: Body) -> str:
    """`Type/id`, also of a target that shows references with its address or a version."""
    found = REFERENCE.fullmatch(str(element["reference"]))
    return found[1] if found else str(element["reference"])


def is_note_id(extension: Mapping[str, Any]) -> bool:
    """True of the extension by which a response shows its note."""
    return str(extension.get("url", "")).endswith("/fhir/extensions/note-id")


PATIENT = ("for", "subject", "request")
"""The elements that name the patient of a task, a response and a payment."""
TAKEN_BACK = {"QuestionnaireResponse": "entered-in-error", "Task": "cancelled"}
"""The status of what has been taken back. Payments have none."""


def taken_back(resource_type: str, ours: Body, theirs: Body) -> bool:
    """True if a resource that was read has been taken back, which the row does not say."""
    status = TAKEN_BACK.get(resource_type)
    return status is not None and theirs.get("status") == status != ours.get("status")


OWN_TIME = {"QuestionnaireResponse": "authored", "Task": "authoredOn"}
CONTENT: dict[str, Callable[[Body], Any]] = {
    "PaymentNotice": _payment,
    "QuestionnaireResponse": _response,
    "Task": _task,
}

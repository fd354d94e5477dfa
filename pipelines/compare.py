"""Whether a resource read from the target is the one that a row would make: by what makes it that record, not by dates.

Payments: patient, amount, claim. Responses: patient, questionnaire, answers. Tasks: patient and description.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

Body = dict[str, Any]


def same_content(resource_type: str, ours: Body, theirs: Body) -> bool:
    """Compares a body of ours with one that was read; elements of the wrong shape count as different."""
    draw = CONTENT[resource_type]
    try:
        return bool(draw(ours) == draw(theirs))
    except (TypeError, ValueError, KeyError, AttributeError, InvalidOperation):
        return False


def _payment(body: Body) -> Any:
    claims = {_reference(part["valueReference"]) for part in _copayment(body) if "valueReference" in part}
    return _reference(body["request"]), Decimal(str(body["amount"]["value"])), claims


def _copayment(body: Body) -> Iterator[Body]:
    for extension in body.get("extension", ()):
        if extension.get("url", "").endswith("/copayment-claims"):
            yield from extension.get("extension", ())


def _response(body: Body) -> Any:
    questionnaire = body["questionnaire"].rsplit("/", 1)[-1].split("|")[0]
    return _reference(body["subject"]), questionnaire, sorted(_answers(body))


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
    return _reference(body["for"]) if "for" in body else None, body.get("description")


def _reference(element: Body) -> str:
    return str(element["reference"])


CONTENT: dict[str, Callable[[Body], Any]] = {
    "PaymentNotice": _payment,
    "QuestionnaireResponse": _response,
    "Task": _task,
}

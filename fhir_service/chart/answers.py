"""The content of a response on the page: its questionnaire's items in order with the answers, as `enableWhen` displays
them.

Pure functions: questionnaires and responses come as the interface shows them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Answers = Mapping[str, Sequence[dict[str, Any]]]
"""The answers of a response by linkId, each with its `value...` element."""


def holds(condition: dict[str, Any], answers: Sequence[dict[str, Any]]) -> bool:
    """True if an `enableWhen` condition holds, given the answers to the question that it names."""
    operator = condition["operator"]
    if operator == "exists":
        return bool(answers) is bool(condition.get("answerBoolean", True))
    if operator == "not_exists":
        return not answers
    equal = any(_equal(condition, answer) for answer in answers)
    return equal if operator == "=" else not equal


def _equal(condition: dict[str, Any], answer: dict[str, Any]) -> bool:
    """True if two answers are equal: codings by system and code, strings exactly."""
    if coding := condition.get("answerCoding"):
        given = answer.get("valueCoding")
        return given is not None and all(coding.get(part) == given.get(part) for part in ("system", "code"))
    return "answerString" in condition and answer.get("valueString") == condition["answerString"]


def is_displayed(item: dict[str, Any], answers: Answers) -> bool:
    """True if an item is displayed: if it has no conditions, or if `all` or `any` of them hold."""
    conditions = item.get("enableWhen", ())
    if not conditions:
        return True
    found = [holds(condition, answers.get(condition["question"], ())) for condition in conditions]
    return any(found) if item.get("enableBehavior") == "any" else all(found)


@dataclass(frozen=True, slots=True)
class DisplayedItem:
    """An item as the chart displays it: `kind` is `group`, `display` or `question`; answers are text."""

    kind: str
    text: str
    answers: tuple[str, ...] = ()
    items: tuple["DisplayedItem", ...] = ()


@dataclass(slots=True)
class DisplayedResponse:
    """A questionnaire filled in. `hidden` counts answers to questions that are not displayed."""

    items: tuple[DisplayedItem, ...] = ()
    hidden: int = 0
    _counted: dict[str, Sequence[dict[str, Any]]] = field(default_factory=dict)


def displayed_response(questionnaire: dict[str, Any], response: dict[str, Any]) -> DisplayedResponse:
    """Return the displayed items of a response. An answer to an earlier question that is not displayed meets no
    condition.
    """
    found = DisplayedResponse(_counted=recorded_answers(response.get("item", ())))
    found.items = tuple(_shown(questionnaire.get("item", ()), found))
    return found


def recorded_answers(items: Iterable[dict[str, Any]]) -> dict[str, Sequence[dict[str, Any]]]:
    """Return the answers of a response's items, with those nested under groups and answers."""
    found: dict[str, Sequence[dict[str, Any]]] = {}
    for item in items:
        given = item.get("answer", ())
        if given:
            found[item["linkId"]] = given
        for nested in (item, *given):
            found.update(recorded_answers(nested.get("item", ())))
    return found


def _shown(items: Iterable[dict[str, Any]], display: DisplayedResponse) -> Iterator[DisplayedItem]:
    for item in items:
        if not is_displayed(item, display._counted):
            _leave_out(item, display)
            continue
        answers = tuple(_text(answer, item) for answer in display._counted.get(item["linkId"], ()))
        nested = tuple(_shown(item.get("item", ()), display))
        kind = item["type"] if item["type"] in ("group", "display") else "question"
        if nested or kind != "group":
            yield DisplayedItem(kind, item.get("text") or item["linkId"], answers, nested)


def _leave_out(item: dict[str, Any], display: DisplayedResponse) -> None:
    display.hidden += len(display._counted.pop(item["linkId"], ()))
    for nested in item.get("item", ()):
        _leave_out(nested, display)


def _text(answer: dict[str, Any], question: dict[str, Any]) -> str:
    """Return an answer as text. If the words of a coding differ from its option's, show both."""
    if coding := answer.get("valueCoding"):
        given: str = coding["display"]
        own = _option(coding, question)
        return given if own in (None, given) else f"{given} (option: {own})"
    return str(answer.get("valueString", answer.get("valueDecimal", "")))


def _option(coding: dict[str, Any], question: dict[str, Any]) -> str | None:
    """Return the display of the option with this coding."""
    for option in question.get("answerOption", ()):
        own = option["valueCoding"]
        if (own.get("system"), own.get("code")) == (coding["system"], coding["code"]):
            display: str | None = own.get("display")
            return display
    return None

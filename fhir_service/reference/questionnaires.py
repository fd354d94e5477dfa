"""A loaded Questionnaire: its form at the interface, the flaws that refuse it, and its versions by name."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from fhir_service.interface.resources.common import optional
from fhir_service.interface.site import Site
from fhir_service.reference.reading import Flaw

# Decision Q1: how the types of FHIR are shown; others are refused.
TYPES = {
    "group": "group",
    "display": "display",
    "choice": "choice",
    "open-choice": "choice",
    "text": "text",
    "string": "text",
    "decimal": "decimal",
    "integer": "decimal",
    "quantity": "decimal",
}
QUESTIONS = ("choice", "text", "decimal")
# What a condition may compare with, by operator: the element, and the type of question that it goes with.
COMPARISONS: dict[str, dict[str, str | None]] = {
    "=": {"answerCoding": "choice", "answerString": "text"},
    "!=": {"answerCoding": "choice", "answerString": "text"},
    "exists": {"answerBoolean": None},
    "not_exists": {"answerBoolean": None},
}
_VERSIONED = re.compile(r"(.*\S) \(v([1-9]\d{0,8})\)\Z", re.DOTALL | re.ASCII)
_ROOT = "Questionnaire"


# --- Filling in and showing -----------------------------------------------------------------------


def with_answer_booleans(value: Any) -> Any:
    """Return the record with `answerBoolean` added to `exists` and `not_exists` conditions without it (REF-09)."""
    if isinstance(value, list):
        return [with_answer_booleans(part) for part in value]
    if not isinstance(value, dict):
        return value
    found = {
        name: with_answer_booleans(part) if isinstance(part, dict | list) else part for name, part in value.items()
    }
    operator = found.get("operator")
    if operator in ("exists", "not_exists") and "question" in found and not any(n.startswith("answer") for n in found):
        found["answerBoolean"] = operator == "exists"
    return found


def stored_questionnaire(questionnaire: dict[str, Any], site: Site) -> dict[str, Any]:
    """Return the stored form, with markers, of a questionnaire without flaws."""
    types = {item["linkId"]: item for _, item in _items(questionnaire.get("item", ()), "")}
    return optional(
        {
            "resourceType": _ROOT,
            "id": questionnaire["id"],
            "name": questionnaire["name"],
            "status": questionnaire["status"],
            "description": questionnaire.get("description"),
            "code": [_concept(coding, site) for coding in questionnaire["code"]],
            "item": [_item(item, types, site) for item in questionnaire.get("item", ())],
        }
    )


def _item(item: dict[str, Any], by_link: dict[str, dict[str, Any]], site: Site) -> dict[str, Any]:
    kind = TYPES[item["type"]]
    conditions = [_condition(condition, by_link, site) for condition in item.get("enableWhen", ())]
    return optional(
        {
            "linkId": item["linkId"],
            "code": [_concept(coding, site) for coding in item.get("code", ())],
            "text": item.get("text"),
            "type": kind,
            "repeats": item.get("repeats", False) if kind in QUESTIONS else None,
            "enableWhen": conditions,
            "enableBehavior": item.get("enableBehavior") if len(conditions) > 1 else None,
            "answerOption": [{"valueCoding": _coding(o["valueCoding"], site)} for o in item.get("answerOption", ())],
            "item": [_item(part, by_link, site) for part in item.get("item", ())],
        }
    )


def _condition(condition: dict[str, Any], by_link: dict[str, dict[str, Any]], site: Site) -> dict[str, Any]:
    names = ("question", "operator", "answerString", "answerBoolean")
    found: dict[str, Any] = {name: condition[name] for name in names if name in condition}
    if coding := condition.get("answerCoding"):
        found["answerCoding"] = _coding({"display": _display(coding, by_link[condition["question"]])} | coding, site)
    return found


def _display(coding: dict[str, Any], question: dict[str, Any]) -> str | None:
    """Return the display of the option with this coding."""
    options = [option["valueCoding"] for option in question.get("answerOption", ())]
    same = [o for o in options if (o.get("system"), o.get("code")) == (coding.get("system"), coding.get("code"))]
    return same[0].get("display") if same else None


def _concept(coding: dict[str, Any], site: Site) -> dict[str, Any]:
    return {"system": site.stored_systems[coding["system"]], "code": coding["code"]}


def _coding(coding: dict[str, Any], site: Site) -> dict[str, Any]:
    return _concept(coding, site) | {"display": coding["display"]}


# --- What makes one unfit -------------------------------------------------------------------------


def flaws_of(questionnaire: dict[str, Any], site: Site) -> Iterator[Flaw]:
    """Return why a valid questionnaire is refused (Q1, Q1a, QNR-ITEM-08, QNR-ITEM-17, REF-QNR-02 to -08)."""
    yield from _own(questionnaire)
    items = list(_items(questionnaire.get("item", ()), f"{_ROOT}.item"))
    if missing := list(_missing(items)):
        yield from missing
        return
    yield from _codings(f"{_ROOT}.code", questionnaire.get("code", ()), site)
    for path, item in items:
        yield from _unfit(path, item, site)
    yield from _repeated(items)
    by_link = {item["linkId"]: item for _, item in items}
    for path, item in items:
        yield from _conditions(path, item, by_link, site)


def _own(questionnaire: dict[str, Any]) -> Iterator[Flaw]:
    name, status = questionnaire.get("name"), questionnaire.get("status")
    if not status:
        yield Flaw(f"{_ROOT}.status", "a required element is missing")
    if not name:
        yield Flaw(f"{_ROOT}.name", "a required element is missing")
    elif status == "active" and version(name):
        yield Flaw(f"{_ROOT}.name", "the name of an active questionnaire must not end in a version")
    if not questionnaire.get("code"):
        yield Flaw(f"{_ROOT}.code", "the questionnaire has no code")


def _items(items: Iterable[dict[str, Any]], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all items of all depths, each with its FHIRPath."""
    for index, item in enumerate(items):
        yield f"{path}[{index}]", item
        yield from _items(item.get("item", ()), f"{path}[{index}].item")


def _missing(items: list[tuple[str, dict[str, Any]]]) -> Iterator[Flaw]:
    """Yield required elements that hold nothing but extensions, which FHIR accepts."""
    for path, item in items:
        yield from _lacking(path, item, "linkId", "type")
        for index, condition in enumerate(item.get("enableWhen", ())):
            yield from _lacking(f"{path}.enableWhen[{index}]", condition, "question", "operator")


def _lacking(path: str, element: dict[str, Any], *names: str) -> Iterator[Flaw]:
    return (Flaw(f"{path}.{name}", "a required element is missing") for name in names if not element.get(name))


def _codings(path: str, codings: Iterable[dict[str, Any]], site: Site) -> Iterator[Flaw]:
    for index, coding in enumerate(codings):
        yield from _coding_flaws(f"{path}[{index}]", coding, site, ("system", "code"))


def _coding_flaws(path: str, coding: dict[str, Any], site: Site, needed: tuple[str, ...]) -> Iterator[Flaw]:
    yield from (Flaw(f"{path}.{name}", "a required element is missing") for name in needed if not coding.get(name))
    if coding.get("system") and coding["system"] not in site.systems:
        yield Flaw(f"{path}.system", "the coding system is not supported")


def _unfit(path: str, item: dict[str, Any], site: Site) -> Iterator[Flaw]:
    kind = TYPES.get(item["type"])
    if kind is None:
        yield Flaw(f"{path}.type", "the type of item is not supported")
    if not isinstance(item.get("repeats", False), bool):
        yield Flaw(f"{path}.repeats", "true or false is expected")
    elif kind in ("text", "decimal") and item.get("repeats"):
        yield Flaw(f"{path}.repeats", "only a choice question may repeat")
    if kind == "display" and item.get("item"):
        yield Flaw(f"{path}.item", "a display item has no items")
    yield from _codings(f"{path}.code", item.get("code", ()), site)
    yield from _options(path, item, kind, site)


def _options(path: str, item: dict[str, Any], kind: str | None, site: Site) -> Iterator[Flaw]:
    options = item.get("answerOption", ())
    if kind == "choice" and not options:
        yield Flaw(f"{path}.answerOption", "the choice question has no options")
    elif kind and kind != "choice" and options:
        yield Flaw(f"{path}.answerOption", "only a choice question has options")
    for index, option in enumerate(options):
        at = f"{path}.answerOption[{index}]"
        if "valueCoding" not in option:
            yield Flaw(at, "the option is not a coding")
        else:
            yield from _coding_flaws(f"{at}.valueCoding", option["valueCoding"], site, ("system", "code", "display"))


def _repeated(items: list[tuple[str, dict[str, Any]]]) -> Iterator[Flaw]:
    """Yield each `linkId` and each code of a question that occurs again (REF-QNR-06)."""
    links: set[str] = set()
    codes: set[tuple[str | None, str | None]] = set()
    for path, item in items:
        if item["linkId"] in links:
            yield Flaw(f"{path}.linkId", "the linkId occurs more than once")
        links.add(item["linkId"])
        own = {(coding.get("system"), coding.get("code")) for coding in item.get("code", ())}
        if TYPES.get(item["type"]) in QUESTIONS:
            if own & codes:
                yield Flaw(f"{path}.code", "the code of the question occurs more than once")
            codes |= own


def _conditions(path: str, item: dict[str, Any], by_link: dict[str, dict[str, Any]], site: Site) -> Iterator[Flaw]:
    conditions = item.get("enableWhen", ())
    behavior = item.get("enableBehavior")
    if len(conditions) > 1 and behavior not in ("all", "any"):
        yield Flaw(f"{path}.enableBehavior", "all or any is required where there are several conditions")
    for index, condition in enumerate(conditions):
        at = f"{path}.enableWhen[{index}]"
        question = by_link.get(condition["question"])
        if question is None:
            yield Flaw(f"{at}.question", "names no item of the questionnaire")
        if condition["operator"] not in COMPARISONS:
            yield Flaw(f"{at}.operator", "the operator is not supported")
            continue
        yield from _comparison(at, condition, question or {}, site)


def _comparison(at: str, condition: dict[str, Any], question: dict[str, Any], site: Site) -> Iterator[Flaw]:
    allowed = COMPARISONS[condition["operator"]]
    name = next((name for name in condition if name.startswith("answer")), "")
    if name not in allowed:
        yield Flaw(at, "the operator does not support this kind of value")
        return
    at, kind = f"{at}.{name}", allowed[name]
    if name == "answerBoolean" and not isinstance(condition[name], bool):
        yield Flaw(at, "true or false is expected")
    elif kind and question and TYPES.get(question["type"]) != kind:
        yield Flaw(at, f"the value needs a {kind} question, and the question is of another type")
    elif name == "answerCoding":
        coding = condition[name]
        known = {"display": _display(coding, question)} if _options_are_codings(question) else {}
        yield from _coding_flaws(at, known | coding, site, ("system", "code", "display"))


def _options_are_codings(question: dict[str, Any]) -> bool:
    return all("valueCoding" in option for option in question.get("answerOption", ()))


# --- Versions -------------------------------------------------------------------------------------


def version(name: str) -> int | None:
    """Return the number in ` (v<number>)` after a name."""
    match = _VERSIONED.match(name)
    return int(match[2]) if match else None


def base(name: str) -> str:
    """Return a name without its version."""
    match = _VERSIONED.match(name)
    return match[1] if match else name


def next_version(name: str, taken: Iterable[str]) -> str:
    """Return the name for the next version to retire, given all names in use. Versions count from 1."""
    numbers = [number for other in taken if base(other) == name and (number := version(other))]
    return f"{name} (v{max(numbers, default=0) + 1})"


def same_content(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """True if two stored forms are equal except for status and version."""
    return _content(one) == _content(other)


def _content(stored: dict[str, Any]) -> dict[str, Any]:
    return stored | {"status": None, "name": base(stored["name"])}


def versioned(new: dict[str, Any], stored: dict[str, Any] | None, taken: Iterable[str]) -> dict[str, Any]:
    """Return a loaded questionnaire with its final name. A retired one keeps its version (STATE-QNR-03 and -05)."""
    was_retired = stored is not None and stored["status"] == "retired"
    if (new["status"] == "active" and not was_retired) or version(new["name"]):
        return new | {"status": "retired"} if was_retired else new
    if stored is not None and was_retired and base(stored["name"]) == new["name"]:
        return new | {"status": "retired", "name": stored["name"]}
    return retired(new, taken)


def retired(stored: dict[str, Any], taken: Iterable[str]) -> dict[str, Any]:
    """Return an active questionnaire as retired, under the next version of its name."""
    return stored | {"status": "retired", "name": next_version(stored["name"], taken)}

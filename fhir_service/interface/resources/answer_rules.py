"""The rules that hold answers against their questionnaire, in the order in which an item is checked (decision R4)."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from fhir_service.interface.datatypes import Coding
from fhir_service.interface.outcomes import BUSINESS_RULE
from fhir_service.interface.resources import questionnaire as questionnaires
from fhir_service.interface.resources.response_model import ROOT, Item, QuestionnaireResponse, questionnaire_id
from fhir_service.interface.vocabulary import Found, Rule, World, rule

T = TypeVar("T")


class Answered(NamedTuple):
    """An item of the payload, its FHIRPath, and the item of the questionnaire that it answers."""

    path: str
    item: Item
    question: questionnaires.Item


class Coded(NamedTuple):
    """A coding that answers a choice question, with its FHIRPath."""

    path: str
    coding: Coding
    question: questionnaires.Item


def known_questionnaire(response: QuestionnaireResponse, world: World) -> questionnaires.Questionnaire | None:
    """The questionnaire that a response names, if it is known."""
    found = questionnaire_id(response.questionnaire, world.site)
    return _kept(world, "questionnaire", lambda: world.known.questionnaire(found) if found else None)


def _kept(world: World, name: str, make: Callable[[], T]) -> T:
    """What the rules of one body share, made once."""
    if name not in world.memo:
        world.memo[name] = make()
    found: T = world.memo[name]
    return found


def _answered(response: QuestionnaireResponse, world: World) -> list[Answered]:
    """The items of the payload whose question the questionnaire has."""

    def make() -> list[Answered]:
        known = known_questionnaire(response, world)
        questions = known.questions if known else {}
        return [Answered(at, item, questions[item.linkId]) for at, item in response.placed if item.linkId in questions]

    return _kept(world, "answered", make)


def _coded(response: QuestionnaireResponse, world: World) -> list[Coded]:
    """The codings that answer choice questions."""

    def make() -> list[Coded]:
        return [
            Coded(f"{at}.answer[{index}].valueCoding", answer.valueCoding, question)
            for at, item, question in _answered(response, world)
            if question.kind in ("SING", "MULT")
            for index, answer in enumerate(item.answer or ())
            if answer.valueCoding
        ]

    return _kept(world, "coded", make)


@rule("QR-12", BUSINESS_RULE, needs="reference", given=False)
def questionnaire_is_known(response: QuestionnaireResponse, world: World) -> Found:
    """The questionnaire exists."""
    if known_questionnaire(response, world) is None:
        found = questionnaire_id(response.questionnaire, world.site)
        yield f"{ROOT}.questionnaire", f"Questionnaire/{found} is not known"


@rule("QR-13", BUSINESS_RULE, needs="reference", given=False)
def questionnaire_is_active(response: QuestionnaireResponse, world: World) -> Found:
    """A retired questionnaire takes no new answers."""
    known = known_questionnaire(response, world)
    if known and known.status == "retired":
        yield f"{ROOT}.questionnaire", f"Questionnaire/{known.id} is retired"


@rule("QR-ITEM-05", BUSINESS_RULE, needs="reference", given=False)
def questions_are_known(response: QuestionnaireResponse, world: World) -> Found:
    """`linkId` names an item of the questionnaire."""
    known = known_questionnaire(response, world)
    for at, item in response.placed if known else ():
        if known and item.linkId not in known.questions:
            yield f"{at}.linkId", "the questionnaire has no item with this linkId"


@rule("QR-ITEM-06", BUSINESS_RULE, needs="reference", given=False)
def groups_have_no_answers(response: QuestionnaireResponse, world: World) -> Found:
    """A group is not answered."""
    for at, item, question in _answered(response, world):
        if item.answer and question.type == "group":
            yield f"{at}.answer", "a group takes no answer"


@rule("QR-ITEM-07", BUSINESS_RULE, needs="reference", given=False)
def displays_have_no_answers(response: QuestionnaireResponse, world: World) -> Found:
    """A display item is not answered."""
    for at, item, question in _answered(response, world):
        if question.type == "display" and (item.answer or item.item):
            yield f"{at}.answer", "a display item takes no answer"


@rule("QR-ITEM-13", BUSINESS_RULE, needs="reference", given=False)
def only_groups_hold_items(response: QuestionnaireResponse, world: World) -> Found:
    """Items nested under a question stand under its answer."""
    for at, item, question in _answered(response, world):
        if item.item and question.type not in ("group", "display"):
            yield f"{at}.item", "items nested under a question stand under its answer"


def _value_rule(id: str, kinds: tuple[str, ...], element: str, given: bool = True) -> Rule:
    @rule(id, BUSINESS_RULE, needs="reference", given=given)
    def values_fit_the_question(response: QuestionnaireResponse, world: World) -> Found:
        for at, item, question in _answered(response, world):
            for index, answer in enumerate(item.answer or ()) if question.kind in kinds else ():
                if getattr(answer, element) is None:
                    message = f"Question of type {question.kind} expects a {element} answer"
                    yield f"{at}.answer[{index}]", f"{element} is expected", message

    return values_fit_the_question


def _number_rule(id: str, kinds: tuple[str, ...], given: bool = True) -> Rule:
    @rule(id, BUSINESS_RULE, needs="reference", given=given)
    def one_answer_is_enough(response: QuestionnaireResponse, world: World) -> Found:
        for at, item, question in _answered(response, world):
            if question.kind in kinds and len(item.answer or ()) > 1:
                message = f"Question of type {question.kind} is expecting at most one answer"
                yield f"{at}.answer", "one answer is expected at most", message

    return one_answer_is_enough


@rule("QR-CREATE-02", BUSINESS_RULE, needs="reference", given=True)
def systems_agree(response: QuestionnaireResponse, world: World) -> Found:
    """An answer's system is one that the question's options have."""
    for at, coding, question in _coded(response, world):
        if coding.system not in question.systems:
            names = world.site.systems
            expected = next(iter(question.systems), None) or ""
            expected, given = names.get(expected, expected), names.get(coding.system, coding.system)
            message = f"Question expects answer of code system {expected} but {given} was given"
            yield f"{at}.system", "the question's options have another code system", message


@rule("QR-CREATE-03", BUSINESS_RULE, needs="reference", given=True)
def codes_exist(response: QuestionnaireResponse, world: World) -> Found:
    """An answer's code is one of the question's options."""
    for at, coding, question in _coded(response, world):
        if coding.system in question.systems and (coding.system, coding.code) not in question.option_counts:
            message = f"Question received an invalid response option code: {coding.code}"
            yield f"{at}.code", "the question has no such option", message


@rule("QR-CREATE-01", BUSINESS_RULE, needs="reference", given=True)
def codes_are_unambiguous(response: QuestionnaireResponse, world: World) -> Found:
    """An answer's code belongs to one option only."""
    for at, coding, question in _coded(response, world):
        if question.option_counts.get((coding.system, coding.code), 0) > 1:
            message = (
                f"Question received a response option code: {coding.code} that belongs to more than one option response"
            )
            yield f"{at}.code", "the question has several options with this code", message


@rule("QR-CREATE-11", BUSINESS_RULE, needs="reference", given=False)
def options_are_chosen_once(response: QuestionnaireResponse, world: World) -> Found:
    """A multiple-choice question is not answered by one option twice."""
    seen: set[Any] = set()
    for at, coding, question in _coded(response, world):
        chosen = (question.linkId, coding.system, coding.code)
        if chosen in seen and question.kind == "MULT":
            yield f"{at}.code", "the option is chosen twice"
        seen.add(chosen)


ANSWER_RULES: tuple[Rule, ...] = (
    questionnaire_is_known,
    questionnaire_is_active,
    questions_are_known,
    groups_have_no_answers,
    displays_have_no_answers,
    only_groups_hold_items,
    _value_rule("QR-CREATE-05", ("TXT",), "valueString"),
    _value_rule("QR-CREATE-06", ("SING", "MULT"), "valueCoding"),
    _value_rule("QR-ITEM-21", ("DEC",), "valueDecimal", given=False),
    _number_rule("QR-CREATE-04", ("SING", "TXT")),
    _number_rule("QR-ITEM-22", ("DEC",), given=False),
    systems_agree,
    codes_exist,
    codes_are_unambiguous,
    options_are_chosen_once,
)

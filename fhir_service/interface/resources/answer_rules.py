"""The rules that compare answers with their questionnaire, in the order in which an item is checked (decision R4)."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from fhir_service.interface.datatypes import Coding
from fhir_service.interface.outcomes import BUSINESS_RULE
from fhir_service.interface.resources import questionnaire as questionnaires
from fhir_service.interface.resources.response_model import ROOT, Item, QuestionnaireResponse, questionnaire_id
from fhir_service.interface.vocabulary import Found, Rule, World, rule

Answered = tuple[str, Item, questionnaires.Item]
"""The FHIRPath of an item of the payload, the item, and the item of the questionnaire that it answers."""


class CodedAnswer(NamedTuple):
    """A coding that answers a choice question, and its position."""

    item_path: str
    position: int
    coding: Coding
    question: questionnaires.Item

    @property
    def path(self) -> str:
        return f"{self.item_path}.answer[{self.position}].valueCoding"


class AnswerSheet:
    """A response with its questionnaire. The rules of one body share it.

    unknown: the FHIRPaths of items whose question the questionnaire does not have. answered: all other items, except
    those that simply choose one option: no rule can object to them. by_kind: `answered` by the kind of question, with
    groups and displays under None. doubtful: the codings that match no option of their question, or several.
    """

    def __init__(self, response: QuestionnaireResponse, world: World) -> None:
        self.questionnaire_id = questionnaire_id(response.questionnaire, world.site)
        known = world.known.questionnaire(self.questionnaire_id) if self.questionnaire_id else None
        self.known: questionnaires.Questionnaire | None = known
        find = known.questions.get if known else lambda _: None
        settled = known.settled if known else {}
        self.unknown: list[str] = []
        self.answered: list[Answered] = []
        nothing_new = response.of_choices and all(id(item) in settled for item in response.item or ())
        for at, item in () if nothing_new else response.placed:
            if id(item) in settled:
                continue
            question = find(item.linkId)
            if question is None:
                self.unknown.append(at)
            elif not chooses_an_option(item, question):
                self.answered.append((at, item, question))
        self.by_kind: dict[str | None, list[Answered]] = {}
        for one in self.answered:
            self.by_kind.setdefault(one[2].kind, []).append(one)
        self.doubtful = [
            CodedAnswer(at, index, coding, question)
            for at, item, question in self.of_kinds(("SING", "MULT"))
            for index, answer in enumerate(item.answer or ())
            if (coding := answer.valueCoding) and question.option_counts.get((coding.system, coding.code)) != 1
        ]

    def of_kinds(self, kinds: tuple[str, ...]) -> list[Answered]:
        """Return the answered items of some kinds of question."""
        found = [self.by_kind[kind] for kind in kinds if kind in self.by_kind]
        return found[0] if len(found) == 1 else [one for each in found for one in each]

    def coded(self, kinds: tuple[str, ...]) -> Iterator[CodedAnswer]:
        """Yield the codings that answer choice questions of some kinds."""
        for at, item, question in self.of_kinds(kinds):
            for index, answer in enumerate(item.answer or ()):
                if answer.valueCoding:
                    yield CodedAnswer(at, index, answer.valueCoding, question)


def chooses_an_option(item: Item, question: questionnaires.Item) -> bool:
    """True if an item is nothing but one option of a question that takes one answer."""
    if question.kind != "SING" or item.item or item.answer is None or len(item.answer) != 1:
        return False
    coding = item.answer[0].valueCoding
    return coding is not None and question.option_counts.get((coding.system, coding.code)) == 1


def sheet_of(response: QuestionnaireResponse, world: World) -> AnswerSheet:
    """Return the sheet of a response. It is made once for all rules of a body."""
    found: AnswerSheet | None = world.memo.get("sheet")
    if found is None:
        found = world.memo["sheet"] = AnswerSheet(response, world)
    return found


def is_settled(response: QuestionnaireResponse, world: World) -> bool:
    """True if no rule here can find a problem: each item chooses an option, and the questionnaire is not retired."""
    sheet = sheet_of(response, world)
    return sheet.known is not None and sheet.known.status != "retired" and not sheet.unknown and not sheet.answered


@rule("QR-12", BUSINESS_RULE, needs="reference", given=False)
def questionnaire_is_known(response: QuestionnaireResponse, world: World) -> Found:
    """The questionnaire of a response exists."""
    sheet = sheet_of(response, world)
    if sheet.known is None:
        yield f"{ROOT}.questionnaire", f"Questionnaire/{sheet.questionnaire_id} is not known"


@rule("QR-13", BUSINESS_RULE, needs="reference", given=False)
def questionnaire_is_active(response: QuestionnaireResponse, world: World) -> Found:
    """A retired questionnaire takes no new answers."""
    known = sheet_of(response, world).known
    if known and known.status == "retired":
        yield f"{ROOT}.questionnaire", f"Questionnaire/{known.id} is retired"


@rule("QR-ITEM-05", BUSINESS_RULE, needs="reference", given=False)
def questions_are_known(response: QuestionnaireResponse, world: World) -> Found:
    """A `linkId` names an item of the questionnaire."""
    sheet = sheet_of(response, world)
    for at in sheet.unknown if sheet.known else ():
        yield f"{at}.linkId", "the questionnaire has no item with this linkId"


@rule("QR-ITEM-06", BUSINESS_RULE, needs="reference", given=False)
def groups_have_no_answers(response: QuestionnaireResponse, world: World) -> Found:
    """A group is not answered."""
    for at, item, question in sheet_of(response, world).by_kind.get(None, ()):
        if item.answer and question.type == "group":
            yield f"{at}.answer", "a group takes no answer"


@rule("QR-ITEM-07", BUSINESS_RULE, needs="reference", given=False)
def displays_have_no_answers(response: QuestionnaireResponse, world: World) -> Found:
    """A display item is not answered."""
    for at, item, question in sheet_of(response, world).by_kind.get(None, ()):
        if question.type == "display" and (item.answer or item.item):
            yield f"{at}.answer", "a display item takes no answer"


@rule("QR-ITEM-13", BUSINESS_RULE, needs="reference", given=False)
def only_groups_hold_items(response: QuestionnaireResponse, world: World) -> Found:
    """Items nested under a question stand under its answer."""
    for at, item, question in sheet_of(response, world).answered:
        if item.item and question.type not in ("group", "display"):
            yield f"{at}.item", "items nested under a question must be in its answer"


def _value_rule(id: str, kinds: tuple[str, ...], element: str, given: bool = True) -> Rule:
    @rule(id, BUSINESS_RULE, needs="reference", given=given)
    def values_fit_the_question(response: QuestionnaireResponse, world: World) -> Found:
        """An answer is of the kind that its question asks for: a choice, a text or a number."""
        for at, item, question in sheet_of(response, world).of_kinds(kinds):
            for index, answer in enumerate(item.answer or ()):
                if getattr(answer, element) is None:
                    message = f"Question of type {question.kind} expects a {element} answer"
                    yield f"{at}.answer[{index}]", f"{element} is expected", message

    return values_fit_the_question


def _number_rule(id: str, kinds: tuple[str, ...], given: bool = True) -> Rule:
    @rule(id, BUSINESS_RULE, needs="reference", given=given)
    def one_answer_is_enough(response: QuestionnaireResponse, world: World) -> Found:
        """A question that is no multiple choice has one answer at most."""
        for at, item, question in sheet_of(response, world).of_kinds(kinds):
            if len(item.answer or ()) > 1:
                message = f"Question of type {question.kind} is expecting at most one answer"
                yield f"{at}.answer", "at most one answer is expected", message

    return one_answer_is_enough


@rule("QR-CREATE-02", BUSINESS_RULE, needs="reference", given=True)
def systems_agree(response: QuestionnaireResponse, world: World) -> Found:
    """An answer's system is one that the question's options have."""
    for found in sheet_of(response, world).doubtful:
        coding, question = found.coding, found.question
        if coding.system not in question.systems:
            names = world.site.systems
            expected = next(iter(question.systems), None) or ""
            expected, given = names.get(expected, expected), names.get(coding.system, coding.system)
            message = f"Question expects answer of code system {expected} but {given} was given"
            yield f"{found.path}.system", "the question's options have another code system", message


@rule("QR-CREATE-03", BUSINESS_RULE, needs="reference", given=True)
def codes_exist(response: QuestionnaireResponse, world: World) -> Found:
    """An answer's code is one of the question's options."""
    for found in sheet_of(response, world).doubtful:
        coding, question = found.coding, found.question
        if coding.system in question.systems and (coding.system, coding.code) not in question.option_counts:
            message = f"Question received an invalid response option code: {coding.code}"
            yield f"{found.path}.code", "the question has no such option", message


@rule("QR-CREATE-01", BUSINESS_RULE, needs="reference", given=True)
def codes_are_unambiguous(response: QuestionnaireResponse, world: World) -> Found:
    """An answer's code belongs to one option only."""
    for found in sheet_of(response, world).doubtful:
        coding, question = found.coding, found.question
        if question.option_counts.get((coding.system, coding.code), 0) > 1:
            message = (
                f"Question received a response option code: {coding.code} that belongs to more than one option response"
            )
            yield f"{found.path}.code", "the question has several options with this code", message


@rule("QR-CREATE-11", BUSINESS_RULE, needs="reference", given=False)
def options_are_chosen_once(response: QuestionnaireResponse, world: World) -> Found:
    """A multiple-choice question is not answered by one option twice."""
    seen: set[Any] = set()
    for found in sheet_of(response, world).coded(("MULT",)):
        chosen = (found.question.linkId, found.coding.system, found.coding.code)
        if chosen in seen:
            yield f"{found.path}.code", "the option is chosen twice"
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

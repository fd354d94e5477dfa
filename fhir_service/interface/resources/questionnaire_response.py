"""QuestionnaireResponse: answers to a Questionnaire for a patient, recorded in a chart note."""

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from fhir_service.interface.datatypes import (
    ID_PATTERN,
    AuthorReference,
    Coding,
    Element,
    EncounterReference,
    Id,
    Identifier,
    Meta,
    Number,
    PatientReference,
    Text,
    Time,
    Uri,
    id_of,
    instant_text,
    reference,
)
from fhir_service.interface.outcomes import BUSINESS_RULE, INVALID
from fhir_service.interface.resources import questionnaire as questionnaires
from fhir_service.interface.resources.common import (
    ID,
    IDENTIFIER,
    extension_value,
    extensions_are_listed,
    optional,
    records_exist,
    reference_id,
)
from fhir_service.interface.site import STORED, Site
from fhir_service.interface.vocabulary import Found, Moment, Note, Param, Problem, Resource, Rule, World, rule

AUTOMATION = "Practitioner/automation"
STATUSES = ("completed", "entered-in-error")
_ROOT = "QuestionnaireResponse"
_VALUES = ("valueString", "valueCoding", "valueDecimal")


class Extension(Element):
    url: Uri
    valueId: Id | None = None
    valueString: Text | None = None


class Answer(Element):
    valueString: Text | None = None
    valueCoding: Coding | None = None
    valueDecimal: Number | None = None
    item: Annotated[list["Item"], Field(min_length=1)] | None = None


class Item(Element):
    linkId: Text
    text: Text | None = None
    answer: Annotated[list[Answer], Field(min_length=1)] | None = None
    item: Annotated[list["Item"], Field(min_length=1)] | None = None


class QuestionnaireResponse(Element):
    """The field table of QuestionnaireResponse as a body of create."""

    resourceType: Literal["QuestionnaireResponse"]
    id: Id | None = None
    meta: Meta | None = None
    identifier: Identifier | None = None
    extension: Annotated[list[Extension], Field(min_length=1)] | None = None
    questionnaire: Uri
    status: Text
    subject: PatientReference
    encounter: EncounterReference | None = None
    authored: Time | None = None
    author: AuthorReference | None = None
    item: Annotated[list[Item], Field(min_length=1)] | None = None

    @cached_property
    def placed(self) -> "list[Placed]":
        """Every item of the payload with its FHIRPath, in payload order, nested ones after the item that holds them."""
        return list(_placed(self.item, _ROOT))


class Placed(NamedTuple):
    """An item of the payload with its FHIRPath."""

    path: str
    item: Item


def _placed(items: list[Item] | None, path: str) -> Iterator[Placed]:
    for index, item in enumerate(items or ()):
        at = f"{path}.item[{index}]"
        yield Placed(at, item)
        for number, answer in enumerate(item.answer or ()):
            if answer.item:
                yield from _placed(answer.item, f"{at}.answer[{number}]")
        if item.item:
            yield from _placed(item.item, at)


_ADDRESS = re.compile(rf"/Questionnaire/({ID_PATTERN})\Z")


def questionnaire_id(address: str, site: Site) -> str | None:
    """The id in `{base_url}/Questionnaire/<id>`; None for any other address."""
    if not address.startswith(f"{site.base_url}/Questionnaire/"):
        return None
    match = _ADDRESS.match(address[len(site.base_url) :])
    return match[1] if match else None


def _known(response: QuestionnaireResponse, world: World) -> questionnaires.Questionnaire | None:
    if "questionnaire" not in world.memo:
        found = questionnaire_id(response.questionnaire, world.site)
        world.memo["questionnaire"] = world.known.questionnaire(found) if found else None
    known: questionnaires.Questionnaire | None = world.memo["questionnaire"]
    return known


class Answered(NamedTuple):
    """An item of the payload, its FHIRPath, and the item of the questionnaire that it answers."""

    path: str
    item: Item
    question: questionnaires.Item


def _answered(response: QuestionnaireResponse, world: World) -> list[Answered]:
    """The items of the payload whose question the questionnaire has."""
    if "answered" not in world.memo:
        known = _known(response, world)
        questions = known.questions if known else {}
        found = [Answered(at, item, questions[item.linkId]) for at, item in response.placed if item.linkId in questions]
        world.memo["answered"] = found
    answered: list[Answered] = world.memo["answered"]
    return answered


# --- The shape, beyond what the model says --------------------------------------------------------


@rule("QR-11", INVALID, given=False)
def questionnaire_is_an_address_of_ours(response: QuestionnaireResponse, site: Site) -> Found:
    """`questionnaire` is `{base_url}/Questionnaire/<id>`."""
    if questionnaire_id(response.questionnaire, site) is None:
        yield f"{_ROOT}.questionnaire", "not an address of the form {base_url}/Questionnaire/<id>"


@rule("QR-ITEM-12", INVALID, given=True)
def items_hold_something(response: QuestionnaireResponse, _: Site) -> Found:
    """An item has answers or nested items."""
    for at, item in response.placed:
        if not item.answer and not item.item:
            yield f"{at}.answer", "a required element is missing"


@rule("QR-ITEM-23", INVALID, given=False)
def answers_hold_one_value(response: QuestionnaireResponse, _: Site) -> Found:
    """An answer carries one value element, or none and nested items."""
    for at, item in response.placed:
        for index, answer in enumerate(item.answer or ()):
            values = [name for name in _VALUES if getattr(answer, name) is not None]
            if len(values) > 1:
                yield f"{at}.answer[{index}].{values[1]}", "an answer holds one value"
            elif not values and not answer.item:
                yield f"{at}.answer[{index}]", "an empty object is not a value"


# --- What the payload may say ---------------------------------------------------------------------


@rule("QR-15", BUSINESS_RULE, given=True)
def status_is_completed(response: QuestionnaireResponse, _: Site) -> Found:
    """A create is `completed`."""
    if response.status != "completed":
        yield f"{_ROOT}.status", "the status is not supported"


@rule("QR-ITEM-03", BUSINESS_RULE, given=True)
def link_ids_occur_once(response: QuestionnaireResponse, _: Site) -> Found:
    """A `linkId` occurs once in the whole payload."""
    seen = set()
    for at, item in response.placed:
        if item.linkId in seen:
            yield f"{at}.linkId", "the linkId occurs more than once"
        seen.add(item.linkId)


# --- The questionnaire ----------------------------------------------------------------------------


@rule("QR-12", BUSINESS_RULE, needs="reference", given=False)
def questionnaire_is_known(response: QuestionnaireResponse, world: World) -> Found:
    """The questionnaire exists."""
    if _known(response, world) is None:
        found = questionnaire_id(response.questionnaire, world.site)
        yield f"{_ROOT}.questionnaire", f"Questionnaire/{found} is not known"


@rule("QR-13", BUSINESS_RULE, needs="reference", given=False)
def questionnaire_is_active(response: QuestionnaireResponse, world: World) -> Found:
    """A retired questionnaire takes no new answers."""
    known = _known(response, world)
    if known and known.status == "retired":
        yield f"{_ROOT}.questionnaire", f"Questionnaire/{known.id} is retired"


ItemRule = Callable[[str, Item, questionnaires.Item], Found]


def item_rule(id: str, given: bool = True) -> Callable[[ItemRule], Rule]:
    """Makes a rule about one item and the question it answers; items of unknown questions are passed over."""

    def make(function: ItemRule) -> Rule:
        def over_all_items(response: QuestionnaireResponse, world: World) -> Found:
            for at, item, question in _answered(response, world):
                yield from function(at, item, question)

        over_all_items.__doc__ = function.__doc__
        return rule(id, BUSINESS_RULE, needs="reference", given=given)(over_all_items)

    return make


@rule("QR-ITEM-05", BUSINESS_RULE, needs="reference", given=False)
def questions_are_known(response: QuestionnaireResponse, world: World) -> Found:
    """`linkId` names an item of the questionnaire."""
    known = _known(response, world)
    for at, item in response.placed if known else ():
        if known and item.linkId not in known.questions:
            yield f"{at}.linkId", "the questionnaire has no item with this linkId"


@item_rule("QR-ITEM-06", given=False)
def groups_have_no_answers(at: str, item: Item, question: questionnaires.Item) -> Found:
    """A group is not answered."""
    if item.answer and question.type == "group":
        yield f"{at}.answer", "a group takes no answer"


@item_rule("QR-ITEM-07", given=False)
def displays_have_no_answers(at: str, item: Item, question: questionnaires.Item) -> Found:
    """A display item is not answered."""
    if question.type == "display" and (item.answer or item.item):
        yield f"{at}.answer", "a display item takes no answer"


@item_rule("QR-ITEM-13", given=False)
def only_groups_hold_items(at: str, item: Item, question: questionnaires.Item) -> Found:
    """Items nested under a question stand under its answer."""
    if item.item and question.type not in ("group", "display"):
        yield f"{at}.item", "items nested under a question stand under its answer"


def _value_rule(id: str, kinds: tuple[str, ...], element: str, given: bool = True) -> Rule:
    @item_rule(id, given)
    def values_fit_the_question(at: str, item: Item, question: questionnaires.Item) -> Found:
        if question.kind not in kinds:
            return
        for index, answer in enumerate(item.answer or ()):
            if getattr(answer, element) is None:
                message = f"Question of type {question.kind} expects a {element} answer"
                yield f"{at}.answer[{index}]", f"{element} is expected", message

    return values_fit_the_question


def _number_rule(id: str, kinds: tuple[str, ...], given: bool = True) -> Rule:
    @item_rule(id, given)
    def one_answer_is_enough(at: str, item: Item, question: questionnaires.Item) -> Found:
        if question.kind in kinds and len(item.answer or ()) > 1:
            message = f"Question of type {question.kind} is expecting at most one answer"
            yield f"{at}.answer", "one answer is expected at most", message

    return one_answer_is_enough


def _coded(at: str, item: Item, question: questionnaires.Item) -> Iterator[tuple[str, Coding]]:
    """The codings that answer a choice question, with their FHIRPath."""
    if question.kind in ("SING", "MULT"):
        for index, answer in enumerate(item.answer or ()):
            if answer.valueCoding:
                yield f"{at}.answer[{index}].valueCoding", answer.valueCoding


@rule("QR-CREATE-02", BUSINESS_RULE, needs="reference", given=True)
def systems_agree(response: QuestionnaireResponse, world: World) -> Found:
    """An answer's system is one that the question's options have."""
    for at, item, question in _answered(response, world):
        for path, coding in _coded(at, item, question):
            if coding.system not in question.systems:
                names = world.site.systems
                expected = next(iter(question.systems), None) or ""
                expected, given = names.get(expected, expected), names.get(coding.system, coding.system)
                message = f"Question expects answer of code system {expected} but {given} was given"
                yield f"{path}.system", "the question's options have another code system", message


@item_rule("QR-CREATE-03")
def codes_exist(at: str, item: Item, question: questionnaires.Item) -> Found:
    """An answer's code is one of the question's options."""
    for path, coding in _coded(at, item, question):
        if coding.system in question.systems and not question.option_counts.get((coding.system, coding.code)):
            message = f"Question received an invalid response option code: {coding.code}"
            yield f"{path}.code", "the question has no such option", message


@item_rule("QR-CREATE-01")
def codes_are_unambiguous(at: str, item: Item, question: questionnaires.Item) -> Found:
    """An answer's code belongs to one option only."""
    for path, coding in _coded(at, item, question):
        if question.option_counts.get((coding.system, coding.code), 0) > 1:
            message = (
                f"Question received a response option code: {coding.code} that belongs to more than one option response"
            )
            yield f"{path}.code", "the question has several options with this code", message


@item_rule("QR-CREATE-11", given=False)
def options_are_chosen_once(at: str, item: Item, question: questionnaires.Item) -> Found:
    """A multiple-choice question is not answered by one option twice."""
    seen = set()
    for path, coding in _coded(at, item, question) if question.kind == "MULT" else ():
        if (coding.system, coding.code) in seen:
            yield f"{path}.code", "the option is chosen twice"
        seen.add((coding.system, coding.code))


def _order(problem: Problem) -> tuple[int, ...]:
    """Where the item of a problem stands in the payload: what is not about an item comes first."""
    item, found, _ = problem.expression.rpartition(".item[")
    if not found:
        return ()
    path = problem.expression[: len(item) + len(found) + problem.expression[len(item) + len(found) :].index("]") + 1]
    return tuple(int(number) for number in re.findall(r"\[(\d+)\]", path))


# --- The chart ------------------------------------------------------------------------------------


def _records(response: QuestionnaireResponse) -> Iterator[tuple[str, str]]:
    yield f"{_ROOT}.subject", response.subject.reference
    if response.encounter:
        yield f"{_ROOT}.encounter", response.encounter.reference
    if response.author and response.author.reference != AUTOMATION:
        yield f"{_ROOT}.author", response.author.reference


def note_id_of(response: QuestionnaireResponse, site: Site) -> str | None:
    """The note identifier that a body names."""
    found: str | None = extension_value(response, site.note_id, "valueId")
    return found


def _note(response: QuestionnaireResponse, state: Any, site: Site) -> Note | None:
    """The existing note to which a response goes, the encounter's first."""
    if response.encounter:
        note: Note | None = state.note_of(id_of(response.encounter.reference))
        return note
    named = note_id_of(response, site)
    return state.note(named) if named else None


@rule("QR-NOTE-07", BUSINESS_RULE, needs="state", given=False)
def note_is_known(response: QuestionnaireResponse, world: World) -> Found:
    """A note-id names a note."""
    named = note_id_of(response, world.site)
    if named and world.known.note(named) is None:
        yield f"{_ROOT}.extension", f"note {named} is not known"


@rule("QR-22", BUSINESS_RULE, needs="state", given=False)
def encounter_is_the_patients(response: QuestionnaireResponse, world: World) -> Found:
    """The encounter belongs to the subject."""
    encounter = response.encounter.reference if response.encounter else None
    if not encounter or not world.known.exists(encounter):
        return
    if world.known.patient_of(encounter) != id_of(response.subject.reference):
        yield f"{_ROOT}.encounter", f"{encounter} belongs to another patient"


@rule("QR-NOTE-04", BUSINESS_RULE, needs="state", given=True)
def encounter_and_note_agree(response: QuestionnaireResponse, world: World) -> Found:
    """Encounter and note-id, when both are sent, name the same note."""
    named = note_id_of(response, world.site)
    note = _note(response, world.known, world.site)
    if response.encounter and named and note and note.id != named:
        yield f"{_ROOT}.extension", f"{response.encounter.reference} belongs to another note than {named}"


@rule("QR-NOTE-08", BUSINESS_RULE, needs="state", given=False)
def note_is_the_patients(response: QuestionnaireResponse, world: World) -> Found:
    """The note belongs to the subject."""
    named = note_id_of(response, world.site)
    note = world.known.note(named) if named else None
    if note and note.patient != id_of(response.subject.reference):
        yield f"{_ROOT}.extension", f"note {named} belongs to another patient"


@rule("QR-NOTE-09", BUSINESS_RULE, needs="state", given=False)
def note_is_open(response: QuestionnaireResponse, world: World) -> Found:
    """A cancelled or deleted note takes no more answers."""
    note = _note(response, world.known, world.site)
    if note and note.state != "open":
        yield _ROOT + (".encounter" if response.encounter else ".extension"), f"note {note.id} is {note.state}"


# --- Storing --------------------------------------------------------------------------------------


def prepare(response: QuestionnaireResponse, moment: Moment) -> dict[str, Any]:
    """A new response: in its note, a new data-import one when none is named; the automation user as default author."""
    note = _note(response, moment.state, moment.site)
    known = _known(response, World(moment.site, moment.state, {}))
    texts = {link: item.text for link, item in known.questions.items()} if known else {}
    encounter = response.encounter.reference if response.encounter else None
    if encounter is None and note and note.encounter:
        encounter = f"Encounter/{note.encounter}"
    identifier = response.identifier
    return optional(
        {
            "resourceType": _ROOT,
            "id": moment.id,
            "identifier": {"system": identifier.system, "value": identifier.value} if identifier else None,
            "extension": [
                {"url": STORED.note_id, "valueId": note.id if note else moment.new_id()},
                {
                    "url": STORED.questionnaire_permalink,
                    "valueString": f"{STORED.base_url}/chart/responses/{moment.id}",
                },
            ],
            "questionnaire": STORED.url("Questionnaire", questionnaire_id(response.questionnaire, moment.site) or ""),
            "status": "completed",
            "subject": reference(response.subject.reference),
            "encounter": reference(encounter) if encounter else None,
            "authored": response.authored or instant_text(moment.now),
            "author": reference(response.author.reference if response.author else AUTOMATION),
            "item": _items(response.item, texts, moment.site),
        }
    )


def _items(items: list[Item] | None, texts: dict[str, str | None], site: Site) -> list[dict[str, Any]]:
    return [
        optional(
            {
                "linkId": item.linkId,
                "text": texts.get(item.linkId),
                "answer": [_answer(answer, texts, site) for answer in item.answer or ()],
                "item": _items(item.item, texts, site) if item.item else None,
            }
        )
        for item in items or ()
    ]


def _answer(answer: Answer, texts: dict[str, str | None], site: Site) -> dict[str, Any]:
    coding = answer.valueCoding
    return optional(
        {
            "valueString": answer.valueString,
            "valueDecimal": answer.valueDecimal,
            "valueCoding": coding
            and {
                "system": site.stored_systems.get(coding.system, coding.system),
                "code": coding.code,
                "display": coding.display,
            },
            "item": _items(answer.item, texts, site) if answer.item else None,
        }
    )


def merge(stored: dict[str, Any], _update: Any, _moment: Moment) -> dict[str, Any]:
    """The one move there is: to `entered-in-error`; no other element changes."""
    return stored | {"status": "entered-in-error"}


def _questionnaire(stored: dict[str, Any]) -> str:
    address: str = stored["questionnaire"]
    return address.rpartition("/")[2]


QUESTIONNAIRE_RESPONSE = Resource(
    _ROOT,
    model=QuestionnaireResponse,
    interactions=("create", "read", "update", "search"),
    params=(
        ID,
        IDENTIFIER,
        Param("authored", "date", lambda stored: stored["authored"]),
        Param("patient", "reference", reference_id("subject"), target="Patient"),
        Param("questionnaire", "uri", _questionnaire, target="Questionnaire"),
        Param("questionnaire.code", "codes", lambda _: [], through="questionnaire-code"),
        Param("questionnaire.item.code", "codes", lambda _: [], through="code"),
    ),
    sorts={"_id": "id", "authored": "authored"},
    rules=(
        extensions_are_listed(_ROOT, lambda s: {s.note_id: "valueId", s.questionnaire_permalink: "valueString"}),
        questionnaire_is_an_address_of_ours,
        items_hold_something,
        answers_hold_one_value,
        status_is_completed,
        link_ids_occur_once,
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
        records_exist("QR-27", _records),
        encounter_is_the_patients,
        note_is_known,
        encounter_and_note_agree,
        note_is_the_patients,
        note_is_open,
    ),
    prepare=prepare,
    merge=merge,
    kept={"note": (str, lambda stored: stored["extension"][0]["valueId"])},
    named=lambda response, _: (target for _, target in _records(response)),
    order=_order,
)

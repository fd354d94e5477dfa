"""QuestionnaireResponse: answers to a Questionnaire for a patient, recorded in a chart note."""

import re
from collections.abc import Iterator
from typing import Any

from fhir_service.interface.datatypes import id_of
from fhir_service.interface.fast import forms
from fhir_service.interface.fast.forms import Address, DrawnValues, Reference, Text, Value, When
from fhir_service.interface.outcomes import BUSINESS_RULE, INVALID
from fhir_service.interface.resources.answer_rules import ANSWER_RULES, chooses_an_option, is_settled
from fhir_service.interface.resources.common import (
    ID,
    extension_value,
    extensions_are_listed,
    records_exist,
    reference_id,
)
from fhir_service.interface.resources.questionnaire import Questionnaire
from fhir_service.interface.resources.response_model import ROOT, Answer, Item, QuestionnaireResponse, questionnaire_id
from fhir_service.interface.resources.shared_items import settle
from fhir_service.interface.site import STORED, Site
from fhir_service.interface.vocabulary import Found, Moment, Note, Param, Problem, Resource, World, condition, rule

AUTOMATION = "Practitioner/automation"
STATUSES = ("completed", "entered-in-error")
_VALUES = ("valueString", "valueCoding", "valueDecimal")

# --- The shape, beyond what the model says --------------------------------------------------------


@rule("QR-11", INVALID, given=False)
def questionnaire_is_an_address_of_ours(response: QuestionnaireResponse, site: Site) -> Found:
    """A response names its questionnaire as `{base_url}/Questionnaire/<id>`."""
    if questionnaire_id(response.questionnaire, site) is None:
        yield f"{ROOT}.questionnaire", "not an address of the form {base_url}/Questionnaire/<id>"


@rule("QR-ITEM-12", INVALID, given=True)
def items_hold_something(response: QuestionnaireResponse, _: Site) -> Found:
    """An item has answers or nested items."""
    for at, item in () if response.of_choices else response.placed:
        if not item.answer and not item.item:
            yield f"{at}.answer", "a required element is missing"


@rule("QR-ITEM-23", INVALID, given=False)
def answers_hold_one_value(response: QuestionnaireResponse, _: Site) -> Found:
    """An answer carries one value element, or none and nested items."""
    for at, item in () if response.of_choices else response.placed:
        for index, answer in enumerate(item.answer or ()):
            if answer.valueCoding and answer.valueString is None and answer.valueDecimal is None:
                continue
            values = [name for name in _VALUES if getattr(answer, name) is not None]
            if len(values) > 1:
                yield f"{at}.answer[{index}].{values[1]}", "an answer must have exactly one value"
            elif not values and not answer.item:
                yield f"{at}.answer[{index}]", "an empty object is not allowed"


# --- What the payload may say ---------------------------------------------------------------------


@condition("QR-15", BUSINESS_RULE, f"{ROOT}.status", "the status is not supported")
def status_is_completed(response: QuestionnaireResponse, _: Site) -> bool:
    """A new response has the status `completed`."""
    return response.status == "completed"


@rule("QR-ITEM-03", BUSINESS_RULE, given=True)
def link_ids_occur_once(response: QuestionnaireResponse, _: Site) -> Found:
    """A `linkId` occurs once in the whole payload."""
    if response.of_choices and len({item.linkId for item in response.item or ()}) == len(response.item or ()):
        return
    seen = set()
    for at, item in response.placed:
        if item.linkId in seen:
            yield f"{at}.linkId", "the linkId occurs more than once"
        seen.add(item.linkId)


def _order(problem: Problem) -> tuple[int, ...]:
    """Return the place of a problem's item in the payload; problems that are about no item come first."""
    item, found, _ = problem.expression.rpartition(".item[")
    if not found:
        return ()
    path = problem.expression[: len(item) + len(found) + problem.expression[len(item) + len(found) :].index("]") + 1]
    return tuple(int(number) for number in re.findall(r"\[(\d+)\]", path))


# --- The chart ------------------------------------------------------------------------------------


def _records(response: QuestionnaireResponse) -> Iterator[tuple[str, str]]:
    yield f"{ROOT}.subject", response.subject.reference
    if response.encounter:
        yield f"{ROOT}.encounter", response.encounter.reference
    if response.author and response.author.reference != AUTOMATION:
        yield f"{ROOT}.author", response.author.reference


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


@rule("QR-NOTE-07", BUSINESS_RULE, needs="state", given=False, of="extension")
def note_is_known(response: QuestionnaireResponse, world: World) -> Found:
    """A note-id names a note that exists."""
    named = note_id_of(response, world.site)
    if named and world.known.note(named) is None:
        yield f"{ROOT}.extension", f"note {named} is not known"


@rule("QR-22", BUSINESS_RULE, needs="state", given=False, of="encounter")
def encounter_is_the_patients(response: QuestionnaireResponse, world: World) -> Found:
    """The encounter of a response belongs to its subject."""
    encounter = response.encounter.reference if response.encounter else None
    if not encounter or not world.known.exists(encounter):
        return
    if world.known.patient_of(encounter) != id_of(response.subject.reference):
        yield f"{ROOT}.encounter", f"{encounter} belongs to another patient"


@rule("QR-NOTE-04", BUSINESS_RULE, needs="state", given=True, of="extension")
def encounter_and_note_agree(response: QuestionnaireResponse, world: World) -> Found:
    """Encounter and note-id, when both are sent, name the same note."""
    named = note_id_of(response, world.site)
    note = _note(response, world.known, world.site)
    if response.encounter and named and note and note.id != named:
        yield f"{ROOT}.extension", f"{response.encounter.reference} belongs to another note than {named}"


@rule("QR-NOTE-08", BUSINESS_RULE, needs="state", given=False, of="extension")
def note_is_the_patients(response: QuestionnaireResponse, world: World) -> Found:
    """The note of a response belongs to its subject."""
    named = note_id_of(response, world.site)
    note = world.known.note(named) if named else None
    if note and note.patient != id_of(response.subject.reference):
        yield f"{ROOT}.extension", f"note {named} belongs to another patient"


@rule("QR-NOTE-09", BUSINESS_RULE, needs="state", given=False)
def note_is_open(response: QuestionnaireResponse, world: World) -> Found:
    """A cancelled or deleted note takes no more answers."""
    note = _note(response, world.known, world.site)
    if note and note.state != "open":
        yield ROOT + (".encounter" if response.encounter else ".extension"), f"note {note.id} is {note.state}"


# --- Storing --------------------------------------------------------------------------------------


def _note_id(response: QuestionnaireResponse, moment: Moment) -> str:
    """The note that a response goes to: a new data-import one when none is named."""
    note = _note(response, moment.state, moment.site)
    return note.id if note else moment.new_id()


def _address(response: QuestionnaireResponse, moment: Moment) -> str:
    return STORED.url("Questionnaire", questionnaire_id(response.questionnaire, moment.site) or "")


def _encounter(response: QuestionnaireResponse, moment: Moment) -> str | None:
    if response.encounter:
        return response.encounter.reference
    note = _note(response, moment.state, moment.site)
    return f"Encounter/{note.encounter}" if note and note.encounter else None


def _author(response: QuestionnaireResponse, _: Moment) -> str:
    return response.author.reference if response.author else AUTOMATION


def _answers(response: QuestionnaireResponse, moment: Moment) -> list[Any] | None:
    known = moment.state.questionnaire(questionnaire_id(response.questionnaire, moment.site) or "")
    return _items(response.item, known, moment.site.stored_systems) or None


FORM = {
    "resourceType": ROOT,
    "id": forms.ID,
    "identifier": When("identifier", {"system": Text("identifier.system"), "value": Text("identifier.value")}),
    "extension": [
        {"url": STORED.note_id, "valueId": Text(_note_id)},
        {"url": STORED.questionnaire_permalink, "valueString": Address(f"{STORED.base_url}/chart/responses/")},
    ],
    "questionnaire": Text(_address),
    "status": "completed",
    "subject": Reference("subject"),
    "encounter": Reference(_encounter),
    "authored": Text("authored", or_now=True),
    "author": Reference(_author),
    "item": Value(_answers),
}
"""A new response: in its note, and with the automation user where it names no author."""


def _items(items: list[Item] | None, known: Questionnaire | None, systems: dict[str, str]) -> list[Any]:
    """Items as they are stored, each with the text of its question. Most of a response is made here: no detours."""
    settled, questions = (known.settled, known.questions) if known else ({}, {})
    shown: list[Any] = []
    for item in items or ():
        if kept := settled.get(id(item)):
            shown.append(kept[1])
            continue
        question = questions.get(item.linkId)
        one: dict[str, Any] = {"linkId": item.linkId}
        if question and question.text is not None:
            one["text"] = question.text
        if item.answer:
            one["answer"] = [_answer(answer, known, systems) for answer in item.answer]
        if item.item:
            one["item"] = _items(item.item, known, systems)
        if known and question and chooses_an_option(item, question):
            settle(known, item, one)
        shown.append(one)
    return shown


def _answer(answer: Answer, known: Questionnaire | None, systems: dict[str, str]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if answer.valueString is not None:
        shown["valueString"] = answer.valueString
    if answer.valueDecimal is not None:
        shown["valueDecimal"] = answer.valueDecimal
    if coding := answer.valueCoding:
        system = systems.get(coding.system, coding.system)
        shown["valueCoding"] = {"system": system, "code": coding.code, "display": coding.display}
    if answer.item:
        shown["item"] = _items(answer.item, known, systems)
    return shown


def merge(stored: dict[str, Any], _update: Any, _moment: Moment) -> dict[str, Any]:
    """The one move there is: to `entered-in-error`; no other element changes."""
    return stored | {"status": "entered-in-error"}


def _last_part(address: str) -> str:
    return address.rpartition("/")[2]


QUESTIONNAIRE_RESPONSE = Resource(
    ROOT,
    model=QuestionnaireResponse,
    interactions=("create", "read", "update", "search"),
    params=(
        ID,
        Param("identifier", "codes", DrawnValues("identifier", many=True, members=("system", "value"))),
        Param("authored", "date", DrawnValues("authored", required=True)),
        Param("patient", "reference", reference_id("subject"), target="Patient"),
        Param(
            "questionnaire",
            "uri",
            DrawnValues("questionnaire", convert=_last_part, required=True),
            target="Questionnaire",
        ),
        Param("questionnaire.code", "codes", lambda _: [], through="questionnaire-code"),
        Param("questionnaire.item.code", "codes", lambda _: [], through="code"),
    ),
    sorts={"_id": "id", "authored": "authored"},
    rules=(
        extensions_are_listed(ROOT, lambda s: {s.note_id: "valueId", s.questionnaire_permalink: "valueString"}),
        questionnaire_is_an_address_of_ours,
        items_hold_something,
        answers_hold_one_value,
        status_is_completed,
        link_ids_occur_once,
        *ANSWER_RULES,
        records_exist("QR-27", _records),
        encounter_is_the_patients,
        note_is_known,
        encounter_and_note_agree,
        note_is_the_patients,
        note_is_open,
    ),
    stored=FORM,
    merge=merge,
    kept={"note": (str, DrawnValues("extension[]", "valueId", required=True))},
    order=_order,
    settled=is_settled,
)

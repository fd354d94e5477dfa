"""Questionnaires as they are loaded: what is shown of them, and why one is refused."""

from typing import Any

import pytest
from fhir.resources.R4B.questionnaire import Questionnaire

from fhir_service.interface.json_text import dump_json, parse_json
from fhir_service.interface.site import Site
from fhir_service.reference.examining import examine, ready
from fhir_service.reference.reading import Record

SITE = Site("https://chart.example.org", "acme", "north")
LOINC = {"system": "http://loinc.org", "code": "1"}
INTERNAL = "http://schemas.north.acme.com/fhir/systems/internal"
YES = {"system": "http://loinc.org", "code": "LA33-6", "display": "Yes"}


def choice(link: str = "c", **elements: Any) -> dict[str, Any]:
    return {"linkId": link, "type": "choice", "answerOption": [{"valueCoding": YES}]} | elements


def text(link: str = "t", **elements: Any) -> dict[str, Any]:
    return {"linkId": link, "type": "text"} | elements


def when(question: str, operator: str, **value: Any) -> dict[str, Any]:
    return {"question": question, "operator": operator} | value


def loaded(*items: dict[str, Any], **elements: Any) -> tuple[dict[str, Any] | None, list[tuple[str, str]]]:
    """Return the shown form of a questionnaire with these items, and its flaws."""
    body: dict[str, Any] = {
        "resourceType": "Questionnaire",
        "id": "q",
        "name": "n",
        "status": "active",
        "code": [LOINC],
    }
    body |= {"item": list(items)} | elements
    record = Record("f", 1, parse_json(dump_json({name: value for name, value in body.items() if value is not None})))
    made = ready(record, SITE)
    examine(made, SITE)
    if made.shown is None:
        return None, [(flaw.expression, flaw.text) for flaw in record.flaws]
    shown = parse_json(SITE.fill(dump_json(made.shown)))
    Questionnaire.model_validate(shown)
    return shown, []


def item(*items: dict[str, Any]) -> dict[str, Any]:
    shown, flaws = loaded(*items)
    assert flaws == []
    assert shown is not None
    found: dict[str, Any] = shown["item"][-1]
    return found


def test_a_questionnaire_shows_only_elements_of_the_interface() -> None:
    """QNR-07, QNR-08, QNR-10, QNR-ITEM-02, QNR-ITEM-18"""
    options = [{"valueCoding": YES, "extension": [{"url": "u", "valueDecimal": 1}], "initialSelected": True}]
    options += [{"valueCoding": {"system": INTERNAL, "code": "N", "display": "No", "userSelected": True}}]
    question = choice(code=[LOINC | {"display": "D", "version": "2"}], text="T", required=True, answerOption=options)
    shown, _ = loaded(
        question, code=[LOINC, {"system": "http://acme.com", "code": "v"}], description="# *md*\n", publisher="P"
    )
    assert shown == {
        "resourceType": "Questionnaire",
        "id": "q",
        "name": "n",
        "status": "active",
        "description": "# *md*\n",
        "code": [LOINC, {"system": "http://acme.com", "code": "v"}],
        "item": [
            {
                "linkId": "c",
                "code": [LOINC],
                "text": "T",
                "type": "choice",
                "repeats": False,
                "answerOption": [
                    {"valueCoding": YES},
                    {"valueCoding": {"system": INTERNAL, "code": "N", "display": "No"}},
                ],
            }
        ],
    }


@pytest.mark.parametrize(
    ("loaded_as", "shown_as"),
    [("string", "text"), ("text", "text"), ("integer", "decimal"), ("quantity", "decimal"), ("decimal", "decimal")],
)
def test_types_become_those_of_the_interface(loaded_as: str, shown_as: str) -> None:
    """REF-QNR-01, QNR-ITEM-08"""
    assert item({"linkId": "x", "type": loaded_as}) == {"linkId": "x", "type": shown_as, "repeats": False}


def test_open_choice_becomes_choice() -> None:
    """REF-QNR-01, QNR-ITEM-07"""
    assert item(choice(type="open-choice", repeats=True)) == {
        "linkId": "c",
        "type": "choice",
        "repeats": True,
        "answerOption": [{"valueCoding": YES}],
    }


def test_groups_and_displays_show_no_repeats() -> None:
    """QNR-ITEM-05, QNR-ITEM-19"""
    group = {"linkId": "g", "type": "group", "repeats": True, "item": [{"linkId": "d", "type": "display", "text": "D"}]}
    assert item(group) == {
        "linkId": "g",
        "type": "group",
        "item": [{"linkId": "d", "type": "display", "text": "D"}],
    }


@pytest.mark.parametrize(("operator", "value"), [("exists", True), ("not_exists", False)])
def test_an_existence_condition_gets_its_boolean(operator: str, value: bool) -> None:
    """REF-09, QNR-ITEM-16: `enableBehavior` beside a single condition is left out."""
    shown = item(choice(), text(enableWhen=[when("c", operator)], enableBehavior="all"))
    assert shown["enableWhen"] == [{"question": "c", "operator": operator, "answerBoolean": value}]
    assert "enableBehavior" not in shown


def test_conditions_are_shown_with_their_behavior() -> None:
    """QNR-ITEM-09, QNR-ITEM-12, QNR-ITEM-13, QNR-ITEM-15: a display that was left out is the option's."""
    coding = {"system": "http://loinc.org", "code": "LA33-6"}
    conditions = [when("c", "=", answerCoding=coding), when("t", "!=", answerString="x")]
    shown = item(choice(), text(), text("u", enableWhen=conditions, enableBehavior="any"))
    assert shown["enableWhen"] == [
        {"question": "c", "operator": "=", "answerCoding": YES},
        {"question": "t", "operator": "!=", "answerString": "x"},
    ]
    assert shown["enableBehavior"] == "any"


def test_a_repeated_option_code_is_loaded() -> None:
    """REF-QNR-06"""
    assert len(item(choice(answerOption=[{"valueCoding": YES}] * 2))["answerOption"]) == 2


def test_a_question_code_may_be_that_of_a_group() -> None:
    """QNR-RULE-03 speaks of questions."""
    assert loaded({"linkId": "g", "type": "group", "code": [LOINC], "item": [text(code=[LOINC])]})[1] == []


Q = "Questionnaire"
TWO = [when("c", "exists"), when("c", "not_exists")]


@pytest.mark.parametrize(
    ("items", "elements", "expression", "reason"),
    [
        ([], {"status": "draft"}, f"{Q}.status", "the status is not supported"),
        ([], {"status": "unknown"}, f"{Q}.status", "the status is not supported"),
        ([], {"name": None}, f"{Q}.name", "a required element is missing"),
        ([], {"name": "n (v2)"}, f"{Q}.name", "the name of an active questionnaire must not end in a version"),
        ([], {"code": None}, f"{Q}.code", "the questionnaire has no code"),
        ([], {"code": []}, f"{Q}.code", "the questionnaire has no code"),
        ([], {"code": [{"code": "x"}]}, f"{Q}.code[0].system", "a required element is missing"),
        ([], {"code": [{"system": "urn:x", "code": "x"}]}, f"{Q}.code[0].system", "the coding system is not supported"),
        ([text(type="date")], {}, f"{Q}.item[0].type", "the type of item is not supported"),
        ([text(repeats=True)], {}, f"{Q}.item[0].repeats", "only a choice question may repeat"),
        ([choice(repeats="true")], {}, f"{Q}.item[0].repeats", "true or false is expected"),
        ([choice(answerOption=[])], {}, f"{Q}.item[0].answerOption", "the choice question has no options"),
        ([choice(type="text")], {}, f"{Q}.item[0].answerOption", "only a choice question has options"),
        (
            [choice(answerOption=[{"valueString": "x"}])],
            {},
            f"{Q}.item[0].answerOption[0]",
            "the option is not a coding",
        ),
        (
            [choice(answerOption=[{"valueCoding": YES | {"system": "http://example.com"}}])],
            {},
            f"{Q}.item[0].answerOption[0].valueCoding.system",
            "the coding system is not supported",
        ),
        (
            [choice(answerOption=[{"valueCoding": LOINC}])],
            {},
            f"{Q}.item[0].answerOption[0].valueCoding.display",
            "a required element is missing",
        ),
        (
            [{"linkId": "d", "type": "display", "item": [text()]}],
            {},
            f"{Q}.item[0].item",
            "a display item has no items",
        ),
        ([text(), text()], {}, f"{Q}.item[1].linkId", "the linkId occurs more than once"),
        (
            [text(code=[LOINC]), {"linkId": "g", "type": "group", "item": [text("u", code=[LOINC])]}],
            {},
            f"{Q}.item[1].item[0].code",
            "the code of the question occurs more than once",
        ),
        (
            [choice(), text(enableWhen=TWO)],
            {},
            f"{Q}.item[1].enableBehavior",
            "all or any is required where there are several conditions",
        ),
        (
            [text(enableWhen=[when("x", "exists")])],
            {},
            f"{Q}.item[0].enableWhen[0].question",
            "names no item of the questionnaire",
        ),
        (
            [text(), text("u", enableWhen=[when("t", ">", answerString="x")])],
            {},
            f"{Q}.item[1].enableWhen[0].operator",
            "the operator is not supported",
        ),
        (
            [text(), text("u", enableWhen=[when("t", "=", answerBoolean=True)])],
            {},
            f"{Q}.item[1].enableWhen[0]",
            "the operator does not support this kind of value",
        ),
        (
            [text(), text("u", enableWhen=[when("t", "=", answerDecimal=1)])],
            {},
            f"{Q}.item[1].enableWhen[0]",
            "the operator does not support this kind of value",
        ),
        (
            [text(), text("u", enableWhen=[when("t", "=", answerCoding=YES)])],
            {},
            f"{Q}.item[1].enableWhen[0].answerCoding",
            "the value needs a choice question, and the question is of another type",
        ),
        (
            [choice(), text(enableWhen=[when("c", "=", answerCoding=LOINC)])],
            {},
            f"{Q}.item[1].enableWhen[0].answerCoding.display",
            "a required element is missing",
        ),
        ([{"linkId": "x"}], {}, f"{Q}.item[0].type", "a required element is missing"),
        ([text(bogus=1)], {}, f"{Q}.item[0].bogus", "FHIR R4 has no such element here"),
        ([{"linkId": "x", "_type": {"id": "i"}}], {}, f"{Q}.item[0].type", "a required element is missing"),
    ],
)
def test_an_unfit_questionnaire_is_refused_with_the_reason(
    items: list[dict[str, Any]], elements: dict[str, Any], expression: str, reason: str
) -> None:
    """QNR-09, QNR-ITEM-01, QNR-ITEM-08, QNR-ITEM-10, QNR-ITEM-17, QNR-RULE-01, REF-QNR-02 to REF-QNR-08:
    REF-QNR-02, REF-QNR-03, REF-QNR-04, REF-QNR-05, REF-QNR-06, REF-QNR-08."""
    assert loaded(*items, **elements) == (None, [(expression, reason)])


def test_every_reason_is_given_at_once() -> None:
    flaws = loaded(text(type="date"), choice(answerOption=[]), status="draft", code=None)[1]
    assert [expression for expression, _ in flaws] == [
        "Questionnaire.status",
        "Questionnaire.code",
        "Questionnaire.item[0].type",
        "Questionnaire.item[1].answerOption",
    ]

"""Which answers the chart displays, and in which words."""

from typing import Any

import pytest

from fhir_service.chart.answers import displayed_response, holds, is_displayed
from fhir_service.chart.pages import moment, money
from fhir_service.chart.session import goal
from tests.service.chart.world import INTERNAL, VENDOR

YES, NO = ({"system": VENDOR, "code": code, "display": "as sent"} for code in "YN")
SAID_YES = [{"valueCoding": YES}]


@pytest.mark.parametrize(
    ("condition", "answers", "expected"),
    [
        ({"operator": "=", "answerCoding": YES}, SAID_YES, True),
        ({"operator": "=", "answerCoding": YES | {"display": "Yes"}}, SAID_YES, True),
        ({"operator": "=", "answerCoding": YES | {"system": INTERNAL}}, SAID_YES, False),
        ({"operator": "=", "answerCoding": NO}, SAID_YES, False),
        ({"operator": "=", "answerCoding": NO}, [*SAID_YES, {"valueCoding": NO}], True),
        ({"operator": "=", "answerCoding": YES}, [], False),
        ({"operator": "=", "answerCoding": YES}, [{"valueString": "Y"}], False),
        ({"operator": "=", "answerString": "a"}, [{"valueString": "a"}], True),
        ({"operator": "=", "answerString": "a"}, [{"valueString": "A"}], False),
        ({"operator": "!=", "answerCoding": NO}, SAID_YES, True),
        ({"operator": "!=", "answerCoding": YES}, SAID_YES, False),
        ({"operator": "!=", "answerCoding": YES}, [{"valueCoding": NO}, *SAID_YES], False),
        ({"operator": "!=", "answerCoding": YES}, [], True),
        ({"operator": "!=", "answerString": "a"}, [{"valueString": "b"}], True),
        ({"operator": "exists", "answerBoolean": True}, SAID_YES, True),
        ({"operator": "exists", "answerBoolean": True}, [], False),
        ({"operator": "exists", "answerBoolean": False}, [], True),
        ({"operator": "exists", "answerBoolean": False}, SAID_YES, False),
        ({"operator": "exists"}, SAID_YES, True),
        ({"operator": "not_exists", "answerBoolean": False}, [], True),
        ({"operator": "not_exists", "answerBoolean": False}, SAID_YES, False),
    ],
)
def test_a_condition_of_a_question_holds_as_the_case_says(condition: dict, answers: list, expected: bool) -> None:
    """CHART-12."""
    assert holds({"question": "q"} | condition, answers) is expected


@pytest.mark.parametrize(
    ("behavior", "answered", "expected"),
    [
        ("all", "ab", True),
        ("all", "a", False),
        ("any", "b", True),
        ("any", "", False),
        (None, "ab", True),
        (None, "a", False),
    ],
)
def test_several_conditions_are_joined_by_all_or_any(behavior: str | None, answered: str, expected: bool) -> None:
    """CHART-12."""
    conditions = [{"question": q, "operator": "exists", "answerBoolean": True} for q in "ab"]
    item = {"linkId": "c", "enableWhen": conditions} | ({"enableBehavior": behavior} if behavior else {})
    assert is_displayed(item, {q: [{"valueString": "x"}] for q in answered}) is expected


def test_an_item_without_conditions_is_displayed() -> None:
    assert is_displayed({"linkId": "a"}, {})


def shows(question: str, operator: str = "exists", **value: Any) -> dict[str, Any]:
    return {"enableWhen": [{"question": question, "operator": operator} | (value or {"answerBoolean": True})]}


FORM = {
    "item": [
        {"linkId": "a", "type": "text", "text": "A"},
        {"linkId": "g", "type": "group", "text": "G", "item": [{"linkId": "b", "type": "text", "text": "B"}]}
        | shows("a"),
        {"linkId": "c", "type": "text", "text": "C"} | shows("b"),
        {"linkId": "d", "type": "display", "text": "D"},
        {"linkId": "e", "type": "group", "text": "E", "item": [{"linkId": "f", "type": "text"} | shows("nothing")]},
    ]
}


def filled(**answers: str) -> dict[str, Any]:
    return {"item": [{"linkId": link, "answer": [{"valueString": text}]} for link, text in answers.items()]}


def outline(display: Any) -> list[Any]:
    return [(item.text, item.answers, outline(item)) for item in display.items]


def test_answers_are_shown_in_the_order_of_the_questionnaire_without_empty_groups() -> None:
    found = displayed_response(FORM, filled(c="3", b="2", a="1"))
    assert outline(found) == [
        ("A", ("1",), []),
        ("G", (), [("B", ("2",), [])]),
        ("C", ("3",), []),
        ("D", (), []),
    ]
    assert found.hidden == 0


def test_an_answer_that_is_not_displayed_is_counted_and_fulfils_no_condition() -> None:
    """CHART-12: B lies in a group whose condition does not hold, so C is not displayed either."""
    found = displayed_response(FORM, filled(b="2", c="3"))
    assert outline(found) == [("A", (), []), ("D", (), [])]
    assert found.hidden == 2


def test_a_coding_sent_under_other_words_than_its_option_shows_both() -> None:
    question = {"linkId": "a", "type": "choice", "answerOption": [{"valueCoding": YES | {"display": "Yes"}}]}
    item = {"linkId": "a", "answer": [{"valueCoding": YES | {"display": "No!"}}, {"valueCoding": NO}]}
    (shown,) = displayed_response({"item": [question]}, {"item": [item]}).items
    assert shown.answers == ("No! (option: Yes)", "as sent")


def test_values_are_shown_as_a_person_reads_them() -> None:
    assert [money(cents) for cents in (0, 5, -1, 123_456_789)] == ["$0.00", "$0.05", "\u2212$0.01", "$1,234,567.89"]
    assert moment("2024-03-05T14:30:59.123456+00:00") == "05 Mar 2024 14:30"
    assert [moment(text) for text in ("2024", "2024-03", "2024-03-05")] == ["2024", "2024-03", "05 Mar 2024"]
    assert moment("0999-01-02") == "0999-01-02"


@pytest.mark.parametrize(
    "text",
    ["//evil.example", "https://evil.example/", "/tasks/../../x", "/tasks/a b", "/sign-out", "tasks", "/tasks/a\n"],
)
def test_a_sign_in_leads_nowhere_but_to_pages_of_the_chart(text: str) -> None:
    assert goal(text) == ""
    assert goal("/tasks/a-1") == "/tasks/a-1"

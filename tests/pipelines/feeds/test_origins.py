"""The column of a feed that an element of a body came from: what a reason of the target names beside its FHIRPath."""

import json
from pathlib import Path

import pytest

from pipelines.feeds.files.catalog import Feed, load_feeds
from pipelines.feeds.mapping.origins import Origins

EXAMPLES = Path(__file__).parents[3] / "docs/examples"
RESPONSE = json.dumps({"item": [{"linkId": "a"}, {"linkId": "b"}]})


def feed(name: str) -> Feed:
    found = load_feeds([EXAMPLES]).named(name)
    assert found
    return found


@pytest.mark.parametrize(
    ("name", "expression", "column"),
    [
        ("payments", "PaymentNotice.request", "patient_id"),
        ("payments", "PaymentNotice.amount.value", "amount"),
        ("payments", "PaymentNotice.extension[0].extension[0].valueReference.reference", "claim_id"),
        ("payments", "PaymentNotice.status", None),
        ("payments", "", None),
        ("card_terminal", "PaymentNotice.amount", "Amount"),
        ("tasks", "Task.note[0].authorReference", "comment_author_id"),
        ("answers", "QuestionnaireResponse.item[1].answer[0].valueCoding.code", "answer_code"),
    ],
)
def test_an_element_is_of_the_column_that_the_feed_maps_to_it(name: str, expression: str, column: str | None) -> None:
    """CLI-CMD-04"""
    found = load_feeds().named(name) or feed(name)
    assert Origins(found.file, found.kind).in_body(expression, RESPONSE) == column


def test_an_answer_is_of_the_column_of_its_question() -> None:
    found = feed("mood-form")
    question, column = next((q, v.column) for q, v in found.file.questions.items() if v.column)
    body = json.dumps({"item": [{"linkId": "another"}, {"linkId": question}]})
    origins = Origins(found.file, found.kind)
    assert origins.in_body("QuestionnaireResponse.item[1].answer[0]", body) == column
    assert origins.in_body("QuestionnaireResponse.item[0].answer[0]", body) is None

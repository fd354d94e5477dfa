"""Answers with one column per question: a row becomes a QuestionnaireResponse.

The question decides the type of its answer: an option of a choice, a text, or a number.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from pipelines.feeds.kinds.answers import (
    ANSWERS,
    COLUMNS,
    ELEMENTS,
    ITEM,
    ROOT,
    built,
    built_of_resource,
    coding,
    head,
    link_id,
    named_questionnaire,
)
from pipelines.feeds.terms.columns import (
    BuilderContext,
    BuiltRecord,
    Column,
    RecordFault,
    RecordKind,
    ValueFault,
    Values,
    number,
)
from pipelines.feeds.terms.numbers import NumberFormat
from pipelines.feeds.terms.texts import composed_text

BY_ROW = ("question", "answer_code", "answer_text", "answer_number")
OF_A_RESPONSE = tuple(column for column in COLUMNS if column.name not in BY_ROW)
NO_ANSWER = ValueFault("FEED-ANS-10", "the row has no answer: all columns of questions are empty")
NO_NUMBER = ValueFault("FEED-ANS-09", "the question needs a number, and this is not one")
NO_DISPLAY = ValueFault("FEED-ANS-07", "no option of the question has this display text")
SEVERAL_DISPLAYS = ValueFault(
    "FEED-ANS-07", "several options of the question have this display text; use the code instead"
)


UNKNOWN = RecordFault(
    ValueFault(
        "FEED-ANS-03", "no active questionnaire has this id, name or code, so options cannot be found by display text"
    ),
    ELEMENTS["questionnaire"],
    "questionnaire",
)


def build(key: str | None, rows: Sequence[Values], around: BuilderContext) -> BuiltRecord:
    """Return the QuestionnaireResponse of a row. Values that could not be mapped are left out."""
    (row,) = rows
    if "resource" in row:
        return built_of_resource(key, rows, around)
    faults: list[RecordFault] = []
    known, address = named_questionnaire(row.get("questionnaire"), around, faults)
    body = head(row, address, around)
    items: dict[str, dict[str, Any]] = {}
    places: list[str] = []
    answers = row.get("answers") or ()
    if known is None and any(by == "display" for _, by, _ in answers):
        faults, answers = faults or ([] if row.get("faulty") else [UNKNOWN]), ()
    for name, by, text in answers:
        link = link_id(name, known, faults)
        found = _answer(text, by, known.questions.get(link) if known else None, around.numbers)
        if isinstance(found, ValueFault):
            faults.append(RecordFault(found, ITEM, f"questions.{name}"))
            continue
        if link not in items:
            items[link] = {"linkId": link, "answer": []}
            places.append(f"questions.{name}")
        items[link]["answer"].append(found)
    if items:
        body["item"] = list(items.values())
    elif not faults and not row.get("faulty"):
        faults.append(RecordFault(NO_ANSWER, ITEM, "answers"))
    return built(key, row, body, faults, places)


def _answer(text: str, by: str, question: Any | None, numbers: NumberFormat) -> dict[str, Any] | ValueFault:
    """Return the answer that a cell gives to a question; for an unknown question a code, so that a rule reports it."""
    kind = question.kind if question else None
    if kind == "TXT":
        return {"valueString": text}
    if kind == "DEC":
        found = number(text, numbers)
        return {"valueDecimal": Decimal(found)} if isinstance(found, str) else NO_NUMBER
    options = question.options if question else ()
    return _displayed(text, options) if by == "display" else {"valueCoding": coding(text.strip(), options)}


def _displayed(text: str, options: Sequence[Any]) -> dict[str, Any] | ValueFault:
    """Return the option with this display, ignoring case; a fault unless there is exactly one."""
    wanted = composed_text(" ".join(text.split())).casefold()
    found = [
        option for option in options if composed_text(" ".join((option.display or "").split())).casefold() == wanted
    ]
    if len(found) != 1:
        return SEVERAL_DISPLAYS if found else NO_DISPLAY
    return {"valueCoding": {"system": found[0].system, "code": found[0].code, "display": found[0].display}}


WIDE_ANSWERS = RecordKind(
    ANSWERS.name,
    ROOT,
    ANSWERS.key,
    (*OF_A_RESPONSE, Column("answers", "answers", "FEED-ANS-06", ITEM)),
    build,
    member=ITEM,
    whole=ANSWERS.whole,
)

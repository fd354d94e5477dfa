"""Answers: the rows of a response become a QuestionnaireResponse, with codes filled in from its Questionnaire."""

from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from pipelines.feeds.terms.columns import (
    BuilderContext,
    BuiltRecord,
    Column,
    RecordFault,
    RecordKind,
    ValueFault,
    Values,
    id_of,
    refer,
)
from pipelines.feeds.terms.times import micros, resource_micros

ROOT = "QuestionnaireResponse"
ITEM = f"{ROOT}.item"
COLUMNS = (
    Column("response_id", "key", "FEED-ANS-01", f"{ROOT}.identifier", required=True),
    Column("patient_id", ("Patient",), "FEED-ANS-02", f"{ROOT}.subject", required=True, stand_in="Patient/x"),
    Column("questionnaire", "code", "FEED-ANS-03", f"{ROOT}.questionnaire", required=True, stand_in="x"),
    Column("authored", "time", "FEED-ANS-04", f"{ROOT}.authored"),
    Column("author", ("Practitioner", "Patient"), "FEED-ANS-04", f"{ROOT}.author", bare=False),
    Column("encounter_id", ("Encounter",), "FEED-ANS-05", f"{ROOT}.encounter"),
    Column("note_id", "code", "FEED-ANS-05", f"{ROOT}.extension"),
    Column("question", "code", "FEED-ANS-06", ITEM, required=True, tail=".linkId"),
    Column("answer_code", "code", "FEED-ANS-07", ITEM, tail=".valueCoding"),
    Column("answer_text", "text", "FEED-ANS-08", ITEM, tail=".valueString"),
    Column("answer_number", "number", "FEED-ANS-09", ITEM, tail=".valueDecimal"),
)
COMMON = ("patient_id", "questionnaire", "authored", "author", "encounter_id", "note_id")
ANSWERS_OF_A_ROW = ("answer_code", "answer_text", "answer_number")
ELEMENTS = {column.name: column.element for column in COLUMNS}


def build(key: str | None, rows: Sequence[Values], around: BuilderContext) -> BuiltRecord:
    """Return the QuestionnaireResponse of the rows that share a key. Values that could not be mapped are left out."""
    if any("resource" in row for row in rows):
        return built_of_resource(key, rows, around)
    first = rows[0]
    faults = list(_disagreements(rows))
    known, address = named_questionnaire(first.get("questionnaire"), around, faults)
    body = head(first, address, around)
    items = _items(rows, known, faults)
    if items:
        body["item"] = [item for item, _ in items]
    return built(key, first, body, faults)._replace(rows=tuple(each for _, each in items))


def put_together(
    key: str | None, first: Values, items: Sequence[dict[str, Any]], around: BuilderContext
) -> BuiltRecord:
    """Return the QuestionnaireResponse of rows with one of these items each, which otherwise agree with the first."""
    faults: list[RecordFault] = []
    _, address = named_questionnaire(first.get("questionnaire"), around, faults)
    return built(key, first, head(first, address, around) | {"item": [*items]}, faults)


def built(
    key: str | None, row: Values, body: dict[str, Any], faults: Sequence[RecordFault], places: Sequence[str] = ()
) -> BuiltRecord:
    """Return a response with its lane: the encounter, else the note, else the patient."""
    patient, encounter, note = row.get("patient_id"), row.get("encounter_id"), row.get("note_id")
    lane = encounter or (note and f"note/{note}") or patient or f"response/{key}"
    at = micros(row.get("authored"))
    return BuiltRecord(body, patient and patient[8:], lane, at, faults=tuple(faults), places=tuple(places))


def head(row: Values, address: str | None, around: BuilderContext) -> dict[str, Any]:
    """Return the body without the answers."""
    body: dict[str, Any] = {"resourceType": ROOT, "status": "completed"}
    if note := row.get("note_id"):
        body["extension"] = [{"url": around.site.note_id, "valueId": note}]
    if address:
        body["questionnaire"] = address
    for element, name in (("subject", "patient_id"), ("encounter", "encounter_id"), ("author", "author")):
        if target := row.get(name):
            body[element] = refer(target)
    if authored := row.get("authored"):
        body["authored"] = authored
    return body


def _disagreements(rows: Sequence[Values]) -> list[RecordFault]:
    """Return a fault for each shared column in which the rows of a response differ (FEED-ANS-10)."""
    shared = [[*map(row.get, COMMON)] for row in rows]
    if shared.count(shared[0]) == len(rows):
        return []
    differing = [name for name, *found in zip(COMMON, *shared, strict=True) if found.count(found[0]) < len(rows)]
    message = "the rows of this response have different values in this column"
    return [RecordFault(ValueFault("FEED-ANS-10", message), ELEMENTS[name], name) for name in differing]


# --- Questionnaire and question -------------------------------------------------------------------


def named_questionnaire(
    text: str | None, around: BuilderContext, faults: list[RecordFault]
) -> tuple[Any | None, str | None]:
    """Return the questionnaire that a cell names, and its address.

    An unknown id keeps its address, so that a rule of the interface reports it.
    """
    if text is None:
        return None, None
    try:
        known = around.questionnaires.find(text)
    except LookupError:
        faults.append(
            _fault(
                "FEED-ANS-03",
                "several active questionnaires have this name or code; use the id instead",
                "questionnaire",
            )
        )
        return None, None
    if known is None and not _looks_like_an_id(text):
        faults.append(_fault("FEED-ANS-03", "no active questionnaire has this name or code", "questionnaire"))
        return None, None
    return known, around.site.url("Questionnaire", known.id if known else text)


def _looks_like_an_id(text: str) -> bool:
    return len(text) <= 64 and text.replace("-", "").replace(".", "").isalnum() and text.isascii()


def _fault(rule: str, message: str, column: str, row: int | None = None) -> RecordFault:
    return RecordFault(ValueFault(rule, message), ELEMENTS[column], column, row)


@lru_cache(maxsize=256)
def _links_by_code(known: "SameQuestionnaire") -> dict[str, list[str]]:
    """Return the linkIds of a questionnaire's items by `code` and `system|code`."""
    found: dict[str, list[str]] = {}
    for link, item in known.questionnaire.questions.items():
        for coding in item.code:
            for text in (coding.code, f"{coding.system}|{coding.code}"):
                if text and link not in found.setdefault(text, []):
                    found[text].append(link)
    return found


class SameQuestionnaire:
    """A questionnaire as the key of a cache, compared by identity, not by content."""

    def __init__(self, questionnaire: Any) -> None:
        self.questionnaire = questionnaire

    def __hash__(self) -> int:
        return id(self.questionnaire)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameQuestionnaire) and other.questionnaire is self.questionnaire


def link_id(text: str, known: Any | None, faults: list[RecordFault], row: int | None = None) -> str:
    """Return the linkId that a cell names: the cell's text, or the question with the code in it.

    An unknown text is returned as it is, so that a rule of the interface reports it.
    """
    if known is None or text in known.questions:
        return text
    links = _links_by_code(SameQuestionnaire(known)).get(text, [])
    if len(links) > 1:
        faults.append(
            _fault(
                "FEED-ANS-06",
                "several questions of the questionnaire have this code; use the linkId instead",
                "question",
                row,
            )
        )
    return links[0] if links else text


# --- Answers --------------------------------------------------------------------------------------


def _items(
    rows: Sequence[Values], known: Any | None, faults: list[RecordFault]
) -> list[tuple[dict[str, Any], Sequence[int]]]:
    """Return one item per question, in the order of the rows, with the row of each of its answers.

    Several rows of a question are several answers.
    """
    items: dict[str, tuple[dict[str, Any], list[int]]] = {}
    for number, row in enumerate(rows):
        given = [name for name in ANSWERS_OF_A_ROW if row.get(name) is not None]
        if len(given) > 1 or (not given and not row.get("faulty")):
            some = "several of answer_code, answer_text and answer_number are" if given else "no answer column is"
            faults.append(_fault("FEED-ANS-10", f"{some} filled in a row of this response", "answer_code", number))
        elif row.get("question") is not None and given:
            link = link_id(row["question"], known, faults, number)
            item, answered = items.setdefault(link, ({"linkId": link, "answer": []}, []))
            item["answer"].append(_answer(given[0], row[given[0]], link, known))
            answered.append(number)
    return list(items.values())


def _answer(name: str, text: str, link: str, known: Any | None) -> dict[str, Any]:
    if name == "answer_text":
        return {"valueString": text}
    if name == "answer_number":
        return {"valueDecimal": Decimal(text)}
    question = known.questions.get(link) if known else None
    return {"valueCoding": coding(text, question.options if question else ())}


def coding(text: str, options: Sequence[Any]) -> dict[str, Any]:
    """Return the option that a cell names by `code` or `system|code`.

    An unknown code is kept, so that a rule of the interface reports it.
    """
    system, bar, code = text.rpartition("|")
    for option in options:
        if option.code == text or (bar and option.code == code and option.system == system):
            return {"system": option.system, "code": option.code, "display": option.display or option.code}
    first = options[0].system if options else "http://loinc.org"
    return {"system": system or first, "code": code or text, "display": code or text}


# --- Whole resources ------------------------------------------------------------------------------


def whole(resource: dict[str, Any]) -> Values:
    """Return the resource with its questionnaire's id alone: the address at the source is not part of the answers."""
    address = resource.get("questionnaire")
    if not isinstance(address, str) or "Questionnaire/" not in address:
        return {"resource": resource}
    name = address.rpartition("Questionnaire/")[2].partition("|")[0]
    return {"resource": resource | {"questionnaire": name}}


def built_of_resource(key: str | None, rows: Sequence[Values], around: BuilderContext) -> BuiltRecord:
    """Return a QuestionnaireResponse that came as a resource, with the target's address of the questionnaire."""
    faults: list[RecordFault] = []
    body = dict(next(row["resource"] for row in rows if "resource" in row))
    if len(rows) > 1:
        faults.append(
            _fault("LEDGER-13", "this key is in the file more than once, with different content", "response_id")
        )
    if isinstance(body.get("questionnaire"), str):
        _, body["questionnaire"] = named_questionnaire(body["questionnaire"], around, faults)
    if body.get("questionnaire", "") is None:
        del body["questionnaire"]
    patient, encounter = id_of(body.get("subject")), id_of(body.get("encounter"))
    lane = f"Encounter/{encounter}" if encounter else f"Patient/{patient}" if patient else f"response/{key}"
    return BuiltRecord(body, patient, lane, resource_micros(body.get("authored")), faults=tuple(faults))


ANSWERS = RecordKind(
    "answers", ROOT, "response_id", COLUMNS, build, grouped=True, member=ITEM, whole=whole, put_together=put_together
)

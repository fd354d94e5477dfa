"""Responses that were not imported by us, and the questionnaire that they answer."""

from typing import Any

LOINC = "http://loinc.org"
ORDINAL = "http://hl7.org/fhir/StructureDefinition/ordinalValue"


def question(link: str, kind: str = "choice", **values: float) -> dict[str, Any]:
    def option(code: str, value: float) -> dict[str, Any]:
        extension = [{"url": ORDINAL, "valueDecimal": value}]
        return {"valueCoding": {"system": LOINC, "code": code, "extension": extension}}

    return {"linkId": link, "type": kind, "answerOption": [option(*each) for each in values.items()]}


FORM = {
    "resourceType": "Questionnaire",
    "id": "q1",
    "url": "http://forms.example/mood",
    "version": "2",
    "name": "Mood",
    "status": "active",
    "item": [question("low", no=0, yes=2), question("tired", no=0, yes=1), question("story", "text")],
}


def items(**answers: str) -> list[dict[str, Any]]:
    said = {link: {"valueCoding": {"system": LOINC, "code": given}} for link, given in answers.items()}
    return [{"linkId": link, "answer": [each]} for link, each in said.items()]


def response(name: str, *item: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "resourceType": "QuestionnaireResponse",
        "id": name,
        "status": "completed",
        "questionnaire": "http://forms.example/mood|2",
        "subject": {"reference": "Patient/p7"},
        "authored": "2026-02-03T10:00:00Z",
        "item": list(item),
        **fields,
    }


STORY = {"linkId": "story", "answer": [{"valueString": "SECRET"}, {"valueDate": "1931-07-09"}]}

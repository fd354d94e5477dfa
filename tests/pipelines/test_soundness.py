"""The quick look at a body says what the models and the rules say, whatever was seen before."""

from random import Random
from typing import Any

import pytest

from fhir_service.interface.datatypes import parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import check
from pipelines.session.questionnaires import Snapshot
from pipelines.validation.soundness import SoundByItem, Soundness

LOINC = "http://loinc.org"
SITE = Site()
RESPONSE = RESOURCES["QuestionnaireResponse"]


def questionnaire(name: str, codes: tuple[str, ...]) -> dict[str, Any]:
    options = [{"valueCoding": {"system": LOINC, "code": code, "display": code}} for code in codes]
    choice = {"type": "choice", "answerOption": options, "code": [{"system": LOINC, "code": "c"}]}
    return {
        "resourceType": "Questionnaire",
        "id": name,
        "name": name,
        "status": "active",
        "item": [
            {"linkId": "one", "text": "One", "repeats": False} | choice,
            {"linkId": "some", "text": "Some", "repeats": True} | choice,
            {"linkId": "text", "text": "Text", "type": "text"},
            {"linkId": "group", "text": "Group", "type": "group", "item": [{"linkId": "in", "text": "In"} | choice]},
        ],
    }


def coded(*codes: str, system: str = LOINC) -> list[dict[str, Any]]:
    return [{"valueCoding": {"system": system, "code": code, "display": code}} for code in codes]


def item(link: str, answer: Any = None, **more: Any) -> dict[str, Any]:
    return {"linkId": link} | ({} if answer is None else {"answer": answer}) | more


ITEMS: tuple[Any, ...] = (
    *(item("one", coded(code)) for code in ("a", "b", "z")),
    item("one", coded("a", "b")),
    item("one", coded("a", system="http://other.org")),
    *(item("some", coded(*codes)) for codes in (("a",), ("a", "b"), ("a", "a"))),
    *(item("text", [{"valueString": text}]) for text in ("fine", "", "\x01", '"item"')),
    item("text", coded("a")),
    item("text", [{"valueString": "fine", "valueCoding": coded("a")[0]["valueCoding"]}]),
    item("group", item=[item("one", coded("a"))]),
    item("group", item=[item("in", coded("a"))]),
    item("in", coded("a")),
    item("nowhere", coded("a")),
    item("one"),
    item("one", [{"item": [item("some", coded("a"))]}]),
    {"answer": coded("a")},
    "no item",
    {"linkId": ["one"], "answer": coded("a")},
)
HEADS: tuple[dict[str, Any], ...] = (
    {"questionnaire": SITE.url("Questionnaire", "ab")},
    {"questionnaire": SITE.url("Questionnaire", "bz")},
    {"questionnaire": SITE.url("Questionnaire", "unknown")},
    {"questionnaire": SITE.url("Questionnaire", "ab"), "status": "in-progress"},
    {"questionnaire": SITE.url("Questionnaire", "ab"), "subject": {"reference": "Group/g"}},
)


@pytest.fixture
def known() -> Snapshot:
    bodies = (questionnaire("ab", ("a", "b")), questionnaire("bz", ("b", "z")))
    return Snapshot.of(RESOURCES["Questionnaire"].model.model_validate(body) for body in bodies)


def test_a_response_is_as_sound_by_its_items_as_it_is_as_a_whole(known: Snapshot) -> None:
    """QR-ITEM-03, QR-CREATE-03: responses of chosen items, sound and not, one after another to several forms."""
    chance = Random(4)
    by_item, whole = SoundByItem(RESPONSE, SITE, known), Soundness(RESPONSE, SITE, known)
    sound = 0
    for _ in range(3_000):
        items = chance.sample(ITEMS, chance.choice((0, 1, 1, 2, 2, 3)))
        head = chance.choice((*HEADS[:2] * 4, *HEADS[2:]))
        body = {"resourceType": RESPONSE.name, "status": "completed", "subject": {"reference": "Patient/p"}} | head
        body |= {"item": items} if items else {}
        text = by_item.text(body)
        assert text == whole.text(body)
        if text is not None:
            assert parse_json(text) == body
            assert not check(RESPONSE, body, SITE, known).problems
            sound += 1
    assert sound > 300


def test_what_was_seen_is_forgotten_now_and_then(known: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """QR-ITEM-03: texts are items that are never seen again; they are not held for as long as a file lasts."""
    monkeypatch.setattr(SoundByItem, "MOST", 10)
    by_item = SoundByItem(RESPONSE, SITE, known)
    head = {"resourceType": RESPONSE.name, "status": "completed", "subject": {"reference": "Patient/p"}} | HEADS[0]
    for number in range(50):
        assert by_item.text(head | {"item": [item("text", [{"valueString": f"text {number}"}])]})
        assert len(by_item._seen) <= 11

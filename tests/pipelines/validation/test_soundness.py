"""The quick look at a body says what the models and the rules say, whatever was seen before."""

from collections import Counter
from datetime import UTC
from random import Random
from typing import Any

import orjson
import pytest

from fhir_service.interface.checking import check
from fhir_service.interface.json_text import parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from pipelines.feeds.kinds.answers import ANSWERS
from pipelines.feeds.kinds.payments import PAYMENTS
from pipelines.feeds.kinds.tasks import TASKS
from pipelines.feeds.mapping.mapping import converter
from pipelines.feeds.terms.columns import BuilderContext, Column, RecordKind, ValueFault, labels
from pipelines.feeds.terms.times import Conventions
from pipelines.session.questionnaires import Snapshot
from pipelines.validation.content import dump
from pipelines.validation.soundness import SoundByParts, SoundCells, Soundness, are_plain

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
    by_item, whole = SoundByParts(RESPONSE, SITE, known), Soundness(RESPONSE, SITE, known)
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


def test_the_number_of_remembered_items_is_bounded(known: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """QR-ITEM-03: texts are items that are never seen again; they are not held for as long as a file lasts."""
    monkeypatch.setattr(SoundByParts, "MOST", 10)
    by_item = SoundByParts(RESPONSE, SITE, known)
    head = {"resourceType": RESPONSE.name, "status": "completed", "subject": {"reference": "Patient/p"}} | HEADS[0]
    for number in range(50):
        assert by_item.text(head | {"item": [item("text", [{"valueString": f"text {number}"}])]})
        assert len(by_item._seen) <= 11


def test_long_items_and_texts_are_not_remembered(known: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """QR-ITEM-03: what is kept is bounded by its size, not by its number alone."""
    by_item = SoundByParts(RESPONSE, SITE, known)
    head = {"resourceType": RESPONSE.name, "status": "completed", "subject": {"reference": "Patient/p"}} | HEADS[0]
    assert by_item.text(head | {"item": [item("text", [{"valueString": "x" * 2_000}])]})
    assert not by_item._seen
    read = list[str]()
    monkeypatch.setattr("pipelines.feeds.mapping.mapping.times_of", lambda _: read.append)
    convert = converter(next(column for column in TASKS.columns if column.shape == "time"), Conventions(UTC))
    for text in ("short", "x" * 200) * 2:
        convert(text)
    assert Counter(map(len, read)) == {5: 1, 200: 2}


TEXTS = {
    "key": ("k1", "k 2", "7"),
    "code": ("requested", "completed", "cancelled", "open", "a\x85b", "REQUESTED"),
    "text": (
        "fine",
        'She said "yes"',
        "at -0 ,",
        'ends in a quote"',
        "\x01",
        "a\x7fb",
        "a\u0085b",
        "tab\tnew\nline",
        "",
    ),
    "labels": ("urgent", "one;two", "one;one", "a\x0cb", ";"),
    "time": ("2026-03-01", "0001-01-01", "9999-12-31T23:59:59.999999Z", "2026-03-01 10:00", "1900-02-29", "2026-W01-1"),
    "number": ("1", "2.50", "-0", "1e400", "no"),
    "amount": ("5.00", "12.5", "0.00", "-0", "-3.00", "9999999.99", "10000000.00", "1.005", "0.0000001", "007.00"),
}
OF_COLUMNS = {
    "status": TEXTS["code"],
    "questionnaire": ("ab", "bz", "unknown", "a b"),
    "question": ("one", "text", "some", "nowhere"),
    "answer_code": ("a", "b", "z"),
}
IDS = ("p1", "Patient/p1", "Claim/c1", "Practitioner/d.1-x", "Group/g1", "no id", "Patient/", "x" * 65)


def cell(column: Column, chance: Random) -> Any:
    """A value as the mapping makes it of a text, or nothing."""
    if chance.random() < (0.02 if column.required else 0.6):
        return None
    if column.shape == "comments" and chance.random() < 0.5:
        return None
    if column.shape == "comments":
        return [("fine", "Practitioner/d1", None), ("fine", chance.choice((None, "Practitioner/d2")), "2026-03-01")]
    if isinstance(column.shape, tuple):
        texts: tuple[str, ...] = (f"{column.shape[0]}/i1", "i-2.0", *IDS)
    else:
        texts = OF_COLUMNS.get(column.name) or TEXTS[column.shape]
    text = chance.choice(texts[:2] if chance.random() < 0.9 else texts)
    found = labels(text) if column.shape == "labels" else converter(column, Conventions(UTC))(text)
    return None if isinstance(found, ValueFault) or found == [] else found


@pytest.mark.parametrize("kind", [TASKS, PAYMENTS, ANSWERS], ids=lambda kind: kind.name)
def test_a_record_is_as_sound_by_its_cells_as_it_is_as_a_whole(kind: RecordKind, known: Snapshot) -> None:
    """TASK-08, PAY-25, QR-11: records of generated cells, sound and not, in any order. The law of the quick way."""
    chance, resource, quick = Random(7), RESOURCES[kind.resource], Counter[tuple[bool, bool]]()
    whole, columns = Soundness(resource, SITE, known), kind.columns[1:]
    judged = [column for column in columns if kind is not ANSWERS or column.element != kind.member]
    by_cell = SoundByParts(resource, SITE, known, judged)
    around = BuilderContext(SITE, known)
    for number in range(3_000):
        record = dump([cell(column, chance) for column in columns])
        values = dict(zip([column.name for column in columns], orjson.loads(record), strict=True))
        body = kind.build(f"k{number}", (values,), around).body
        cells = [values[column.name] for column in judged] if are_plain([record]) else None
        is_known = cells is not None and by_cell._sound.have(cells)
        text = by_cell.text(body, cells)
        assert text == whole.text(body), record
        assert text is None or not check(resource, body, SITE, known).problems, record
        quick[is_known, text is not None] += 1
    assert min(quick[True, True], quick[False, False]) > 300
    assert quick[False, True] > 5
    assert kind is ANSWERS or not quick[True, False]


def test_cells_that_were_seen_are_forgotten_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """PAY-25: amounts that are never seen again are not held for as long as a file lasts."""
    monkeypatch.setattr(SoundCells, "MOST", 10)
    sound = SoundCells(PAYMENTS.columns[1:])
    for cents in range(10, 60):
        sound.note(["Patient/p", f"1.{cents}", "2026-03-01", None])
        assert sound.have(["Patient/other", f"1.{cents}", "2026-03-02", None])
    assert sum(map(len, sound._seen)) <= 10

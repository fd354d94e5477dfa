"""Forms: the function of a form writes the JSON that the form describes, with the values that it draws."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fhir_service.interface.datatypes import id_of
from fhir_service.interface.fast.forms import (
    ID,
    Address,
    Column,
    DrawnValues,
    Each,
    Number,
    Reference,
    Side,
    Text,
    Value,
    When,
    maker,
)
from fhir_service.interface.json_text import parse_json
from fhir_service.interface.vocabulary import Moment

FORM = {
    "resourceType": "Thing",
    "id": ID,
    "{fixed}": {"it's": ["a\\b", 1, None]},
    "name": Text("name"),
    "part": [Value(lambda body, _: body.extra, of="extra"), {"url": Address('http://x/"/')}],
    "owner": Reference("owner"),
    "period": When("period", {"start": Text("period.start"), "end": Text("period.end")}),
    "amount": Number("amount"),
    "note": Each("notes", {"text": Text("text"), "at": Text("at"), "by": Reference("by")}),
    "tag": Each("tags", {"name": Text("")}, distinct="name"),
    "at": Text("at", or_now=True),
}
COLUMNS = [
    Column(DrawnValues("name")),
    Column(DrawnValues("owner", "reference", convert=id_of)),
    Column(DrawnValues("period", "end"), is_date=True),
    Column(DrawnValues("note[]", "text")),
    Column(DrawnValues("amount", convert=str)),
]
SIDES = [
    Side(DrawnValues("tag[]", "name", many=True), exact=True),
    Side(DrawnValues("note[]", many=True, members=("text", "at")), digest=len),
    Side(DrawnValues("period", many=True, members=("start", "end"))),
]
NOW = datetime(2026, 5, 1, tzinfo=UTC)

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
dates = st.dates().map(str)
references = st.sampled_from(["Group/g1", "Practitioner/dr.2", 'A"/b"{}\\']).map(
    lambda one: SimpleNamespace(reference=one)
)
bodies = st.builds(
    SimpleNamespace,
    name=st.none() | texts,
    extra=st.none() | st.dictionaries(texts, texts, max_size=2),
    owner=st.none() | references,
    period=st.none() | st.builds(SimpleNamespace, start=dates, end=dates),
    amount=st.none() | st.decimals(allow_nan=False, allow_infinity=False, places=2),
    notes=st.none() | st.lists(st.builds(SimpleNamespace, text=texts, at=dates, by=references), min_size=1, max_size=3),
    tags=st.none() | st.lists(st.builds(SimpleNamespace, name=st.sampled_from('a"\\')), min_size=1, max_size=4),
    at=st.none() | dates,
)


def shown(one: SimpleNamespace) -> dict[str, str]:
    return {"reference": one.reference, "type": one.reference.partition("/")[0]}


def by_hand(body: SimpleNamespace) -> dict[str, Any]:
    """The resource that the form says."""
    fixed = {"resourceType": "Thing", "id": "t1", "{fixed}": {"it's": ["a\\b", 1, None]}}
    parts = [] if body.extra is None else [body.extra]
    found = {
        "name": body.name,
        "part": [*parts, {"url": 'http://x/"/t1'}],
        "owner": body.owner and shown(body.owner),
        "period": body.period and {"start": body.period.start, "end": body.period.end},
        "amount": body.amount,
        "note": body.notes and [{"text": note.text, "at": note.at, "by": shown(note.by)} for note in body.notes],
        "tag": body.tags and [{"name": name} for name in dict.fromkeys(tag.name for tag in body.tags)],
        "at": body.at or "2026-05-01T00:00:00+00:00",
    }
    return fixed | {name: value for name, value in found.items() if value is not None}


@given(bodies)
def test_a_form_writes_the_body_that_it_describes_and_the_columns_drawn_from_it(body: SimpleNamespace) -> None:
    state: Any = None
    row, sides = maker(FORM, COLUMNS, SIDES)(body, "t1", 7, "importer", Moment(NOW, state, state, str))
    *columns, text = row[5:]
    assert row[:5] == (7, "t1", 1, NOW, "importer")
    stored = parse_json(text)
    assert stored == by_hand(body)
    assert list(stored) == [name for name in FORM if name in stored]
    name, owner, end, note, amount = (column.draw(stored) for column in COLUMNS)
    assert (*columns[:2], *columns[4:]) == (name, owner, note, amount)
    assert (columns[2] is None) == (end is None)
    tags, notes, periods = (side.draw(stored) for side in SIDES)
    assert sides == (
        [(7, None, tag) for tag in dict.fromkeys(tags)],
        [(7, text, at, len(at)) for text, at in notes],
        [(7, start, end) for start, end in periods],
    )


def test_a_missing_required_element_is_reported() -> None:
    draw = DrawnValues("period", "end", required=True)
    assert draw({"period": {"end": "2026-01-01"}}) == "2026-01-01"
    with pytest.raises(KeyError, match="end"):
        draw({"period": {}})


@pytest.mark.parametrize(
    ("draw", "stored"),
    [
        (DrawnValues("amount", "value"), {"amount": [{"value": 7}]}),
        (DrawnValues("owner", "reference", convert=id_of), {"owner": {"reference": ["Group/g1"]}}),
        (DrawnValues("note[]", "text"), {"note": {"text": "x"}}),
        (DrawnValues("note[]", "text"), {"note": ["x"]}),
    ],
)
def test_drawing_a_column_from_a_body_of_another_shape_is_an_error(draw: DrawnValues, stored: dict[str, Any]) -> None:
    """CLI-SVC-10"""
    with pytest.raises((TypeError, AttributeError)):
        draw(stored)

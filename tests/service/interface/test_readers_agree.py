"""A law over generated bodies: the quick readers take nothing that the models refuse, and read what they take alike.

They stand before the models in three places: a single create, a batch of creates, and the check of an import's rows.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from fhir_service.interactions import plain
from fhir_service.interface.checking import check, parse
from fhir_service.interface.json_text import Malformed, dump_json, parse_json
from fhir_service.interface.outcomes import FhirError
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Moment
from fhir_service.store.tables import MAKERS, index_row, side_rows
from fhir_service.store.view import StoredNote
from pipelines.session.questionnaires import Snapshot
from pipelines.validation.soundness import SoundByItem, Soundness
from tests.conftest import Running, counted_ids
from tests.service.interface.test_quick import BODIES

SITE = Site()
ROUNDS = 500
seeded = pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 16))])

_OPTION = {"system": "http://loinc.org", "code": "LA1", "display": "Größe"}
_CODED = {"code": [{"system": "http://loinc.org", "code": "c"}]}
FORM = {
    "resourceType": "Questionnaire",
    "id": "q1",
    "name": "q1",
    "status": "active",
    "item": [
        {"linkId": "1", "text": "One", "type": "choice", "answerOption": [{"valueCoding": _OPTION}]} | _CODED,
        {"linkId": "2", "text": "Two", "type": "text"},
        {"linkId": "3", "text": "Three", "type": "group", "item": [{"linkId": "4", "text": "Four", "type": "decimal"}]},
    ],
}
KNOWN = Snapshot.of([RESOURCES["Questionnaire"].model.model_validate(FORM)])
# Bodies in which the rules find nothing either.
ANSWERED = {
    "item": [
        {"linkId": "1", "answer": [{"valueCoding": _OPTION}]},
        {"linkId": "2", "answer": [{"valueString": "fine"}]},
        {"linkId": "3", "item": [{"linkId": "4", "answer": [{"valueDecimal": 7.5}]}]},
    ]
}
SOUND = BODIES | {"QuestionnaireResponse": BODIES["QuestionnaireResponse"] | ANSWERED}

# --- Texts of bodies: members may come twice, and each sign may be written in another way ---------


NOTHINGS = ("null", '""', "[]", "{}")


@dataclass
class Members:
    """An object of a body: its members in order, of which several may have one key."""

    pairs: list[tuple[str, Any]]


@dataclass
class Written:
    """A value as this text."""

    text: str


def opened(value: Any) -> Any:
    if isinstance(value, dict):
        return Members([(name, opened(part)) for name, part in value.items()])
    return [opened(part) for part in value] if isinstance(value, list) else value


@dataclass
class Spoiler:
    """Draws texts that are nearly those of a sound body."""

    random: Random
    odd: tuple[str, ...] = (
        *("true", "[null]", "[{}]", '"x"', '[""]', '"\\u0007"', '"\x7f"', '"a\\nb"'),
        *("0", "-0", "-0.0", "-0e0", "5.00", "5e0", "1E+3", "-1", "0.001", "12345678.90", "1e999", '"5.00"', '"NaN"'),
        *('"2026-02-30"', '"2026-02-28"', '"2026-01-01T10:00:00Z"', '"Patient/p1"', '"Patient/p2\\n"', '"Claim/c2"'),
        *('{"reference":"Patient/p2"}', '[{"url":"claim"}]', '{"url":"x"}', '[{"linkId":"9","item":[{"linkId":"8"}]}]'),
        *('{"system":"urn:x","value":"1"}', '"\\ud800"', '"\\"', "01", "NaN"),
    )
    names: tuple[str, ...] = field(
        default_factory=lambda: ("resourceType", "id", "meta", "status", "display", "valueDecimal", "identifier", "any")
    )

    def text(self, body: dict[str, Any]) -> str:
        """The text of a body after some changes, of which some make good for what others take away."""
        tree = opened(body)
        for _ in range(self.random.choice((0, 1, 1, 2, 2, 3, 4))):
            self.change(self.random.choice((tree, self.random.choice([*_members_of(tree)]))))
        return self.written(tree)

    def change(self, members: Members) -> None:
        """Leaves a member out, repeats one, replaces a value or adds one."""
        change = self.random.choice((self.without, self.without_type, self.repeated, self.replaced, self.added))
        change(members.pairs)

    def without(self, pairs: list[tuple[str, Any]]) -> None:
        if pairs:
            pairs.pop(self.random.randrange(len(pairs)))

    def without_type(self, pairs: list[tuple[str, Any]]) -> None:
        pairs[:] = [pair for pair in pairs if pair[0] != "resourceType"]

    def repeated(self, pairs: list[tuple[str, Any]]) -> None:
        if pairs:
            name, value = self.random.choice(pairs)
            pairs.insert(self.random.randint(0, len(pairs)), (name, self.random.choice((value, self.value()))))

    def replaced(self, pairs: list[tuple[str, Any]]) -> None:
        if pairs:
            at = self.random.randrange(len(pairs))
            name, value = pairs[at]
            number = isinstance(value, int | float)
            pairs[at] = (name, Written(f'"{value}"') if number and self.random.random() < 0.5 else self.value())

    def added(self, pairs: list[tuple[str, Any]]) -> None:
        pairs.insert(self.random.randint(0, len(pairs)), (self.random.choice(self.names), self.value()))

    def value(self) -> Written:
        return Written(self.random.choice((self.random.choice(self.odd), self.random.choice(NOTHINGS))))

    def written(self, value: Any) -> str:
        blank = self.random.choice(("", "", "", " ", "\n\t"))
        if isinstance(value, Written):
            return value.text
        if isinstance(value, Members):
            inner = (f"{blank}{self.string(name)}:{blank}{self.written(part)}" for name, part in value.pairs)
            return "{" + ",".join(inner) + blank + "}"
        if isinstance(value, list):
            return f"[{blank}{','.join(map(self.written, value))}]"
        return self.string(value) if isinstance(value, str) else json.dumps(value)

    def string(self, text: str) -> str:
        """A string of JSON, now and then with an escape that need not be."""
        if text and self.random.random() < 0.03:
            at = self.random.randrange(len(text))
            return f"{json.dumps(text[:at])[:-1]}\\u{ord(text[at]):04x}{json.dumps(text[at + 1 :])[1:]}"
        return json.dumps(text, ensure_ascii=self.random.random() < 0.5)


def _members_of(value: Any) -> Iterator[Members]:
    if isinstance(value, Members):
        yield value
        for _, part in value.pairs:
            yield from _members_of(part)
    if isinstance(value, list):
        for part in value:
            yield from _members_of(part)


# --- What models and readers make of a text -------------------------------------------------------


class World:
    """A state that knows a name for every record, one note for every encounter, and one questionnaire."""

    def display(self, reference: str) -> str:
        return f'"{reference}" {{of}} \\'

    def note(self, note_id: str) -> StoredNote:
        return StoredNote(note_id, "p1", "e9", "open")

    def note_of(self, encounter_id: str) -> StoredNote:
        return StoredNote("n1", "p1", encounter_id, "open")

    def questionnaire(self, questionnaire_id: str) -> Any:
        return KNOWN.questionnaire(questionnaire_id)


def prepared(name: str, body: Any) -> bytes:
    """The text that is stored of a body, whose columns are made with it as they are drawn from it."""
    world: Any = World()
    moment = Moment(datetime(2026, 1, 1, tzinfo=UTC), world, SITE, counted_ids())
    (*head, text), sides = MAKERS[name](body, "new", 7, "importer", moment)
    stored = parse_json(text)
    assert head == [7, "new", 1, moment.now, "importer", *index_row(RESOURCES[name], stored)]
    assert list(sides) == side_rows(RESOURCES[name], 7, stored)
    made: bytes = text.encode()
    assert made == dump_json(stored)
    return made


def by_models(name: str, text: str) -> bytes | None:
    """What is stored of a text by the models alone; None where they refuse it."""
    try:
        return prepared(name, parse(RESOURCES[name], parse_json(text.encode("utf-8", "replace")), SITE, True))
    except (Malformed, FhirError):
        return None


def of_single(name: str, text: str) -> bytes | None:
    """What the reader of single creates takes."""
    found = plain.create(RESOURCES[name], text.encode("utf-8", "replace"), SITE)
    return None if found is None else prepared(name, found)


def of_batch(name: str, text: str) -> bytes | None:
    """What the reader of batches takes, beside a neighbour that is sound."""
    kept = json.dumps({"resource": BODIES["Task"], "request": {"method": "POST", "url": "Task"}})
    entry = f'{{"resource":{text},"request":{{"method":"POST","url":"{name}"}}}}'
    raw = f'{{"resourceType":"Bundle","type":"batch","entry":[{kept},{entry}]}}'
    found = plain.bundle(raw.encode("utf-8", "replace"), SITE)
    return None if found is None else prepared(name, found.entry[1].resource)


def of_long_batch(name: str, text: str) -> bytes | None:
    """What the reader of batches takes that are so long that they are read in parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "LONG", 0)
        patch.setattr(plain, "PART", 1)
        return of_batch(name, text)


@seeded
@pytest.mark.parametrize("reader", [of_single, of_batch, of_long_batch])
@pytest.mark.parametrize("name", BODIES)
def test_a_quick_reader_stores_what_the_models_store_or_leaves_it_to_them(
    name: str, reader: Callable[[str, str], bytes | None], seed: int
) -> None:
    """COMMON-33, COMMON-35, COMMON-42, COMMON-43: both ways, so that a sound body in plain words is read quickly."""
    spoiler, taken, sound = Spoiler(Random(f"{name} {seed}")), 0, 0
    for _ in range(ROUNDS):
        text = spoiler.text(BODIES[name])
        expected, found = by_models(name, text), reader(name, text)
        assert found is None or found == expected, text
        taken, sound = taken + (found is not None), sound + (expected is not None)
    assert ROUNDS / 8 < taken <= sound < ROUNDS
    assert taken > 0.7 * sound


@seeded
@pytest.mark.parametrize("kind", [Soundness, SoundByItem])
@pytest.mark.parametrize("name", BODIES)
def test_the_import_finds_sound_what_the_models_find_sound(name: str, kind: type[Soundness], seed: int) -> None:
    """COMMON-35, COMMON-42, COMMON-43: rows may be whole resources, with whatever their file says."""
    if kind is SoundByItem and name != "QuestionnaireResponse":
        pytest.skip("only responses have items")
    resource, spoiler, taken = RESOURCES[name], Spoiler(Random(f"{name} {seed}")), 0
    quick = kind(resource, SITE, KNOWN)
    for _ in range(ROUNDS):
        text = spoiler.text(SOUND[name])
        try:
            body = parse_json(text.encode("utf-8", "replace"))
        except Malformed:
            continue
        found = quick.text(body)
        assert found is None or parse_json(found) == body, text
        assert found is None or not check(resource, body, SITE, KNOWN).problems, text
        taken += found is not None
    assert taken > ROUNDS / 8


# --- Over HTTP ------------------------------------------------------------------------------------

PAYMENT = '"status":"active","created":"2026-01-01","payment":{},"recipient":{}'
OWED, NAMED = '"amount":{"value":1.00}', '"request":{"reference":"Patient/p1"}'
TYPED = '"resourceType":"PaymentNotice"'


@pytest.mark.parametrize(
    "text",
    [
        f"{{{PAYMENT},{OWED},{NAMED}}}",
        f'{{{PAYMENT},{OWED},"request":{{"reference":"Patient/p1","reference":"Patient/p2"}}}}',
        f'{{{PAYMENT},"amount":{{"value":"1.00"}},{NAMED}}}',
        f'{{{PAYMENT},{OWED},{NAMED},"id":null}}',
        f'{{{TYPED},{PAYMENT},{OWED},"request":{{"reference":"Patient/p1","reference":"Patient/p2"}}}}',
        f'{{{TYPED},{PAYMENT},"amount":{{"value":"1.00"}},{NAMED}}}',
        f'{{{TYPED},{PAYMENT},{OWED},{NAMED},"id":null}}',
    ],
)
def test_what_the_models_refuse_is_refused_alone_in_a_batch_and_by_validate(service: Running, text: str) -> None:
    """COMMON-33, COMMON-35, COMMON-42, COMMON-43."""
    headers = {"content-type": "application/json"}
    alone = service.client.post("/PaymentNotice", content=text, headers=headers)
    entry = f'{{"resource":{text},"request":{{"method":"POST","url":"PaymentNotice"}}}}'
    bundle = f'{{"resourceType":"Bundle","type":"batch","entry":[{entry}]}}'
    batch = service.client.post("/", content=bundle, headers=headers)
    in_batch = batch.json()["entry"][0]["response"]["status"] if batch.is_success else str(batch.status_code)
    validated = service.client.post("/PaymentNotice/$validate", content=text, headers=headers)
    said = [issue["severity"] for issue in validated.json()["issue"]]
    assert (alone.status_code, in_batch, set(said)) == (400, "400", {"error"})


def test_an_update_is_read_by_the_models(service: Running) -> None:
    """COMMON-33, COMMON-43, TASK-UPDATE-15: without its type, with a repeated key and with null it is refused."""
    headers = {"content-type": "application/json"}
    task = {"resourceType": "Task", "status": "requested", "intent": "unknown", "description": "Call"}
    text = json.dumps(task | {"requester": {"reference": "Practitioner/dr1"}})
    path = service.client.post("/Task", content=text, headers=headers).headers["location"]
    spoiled = [
        text.replace('"resourceType": "Task", ', ""),
        text.replace('"status"', '"status": "completed", "status"'),
        text.replace('"status"', '"owner": null, "status"'),
        text.replace('"resourceType": "Task", ', '"owner": null, "owner": null, '),
    ]
    answers = [service.client.put(path, content=one, headers=headers) for one in (*spoiled, text)]
    assert [answer.status_code for answer in answers] == [400, 400, 400, 400, 200]

"""A law over generated bodies: the quick readers take nothing that the models refuse, and read what they take alike.

They stand before the models in three places: a single create, a batch of creates, and the check of an import's rows.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from fhir_service.interactions import plain
from fhir_service.interface.checking import check, parse
from fhir_service.interface.json_text import Malformed, dump_json, parse_json
from fhir_service.interface.outcomes import FhirError
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.vocabulary import Moment
from fhir_service.store.tables import MAKERS, index_row, side_rows
from fhir_service.store.view import StoredNote
from pipelines.validation.soundness import SoundByParts, Soundness
from tests.conftest import Running, counted_ids
from tests.service.interface.test_quick import BODIES
from tests.support.readers import KNOWN, SITE, SOUND, Spoiler

ROUNDS = 500
seeded = pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 16))])


# --- Texts of bodies: members may come twice, and each sign may be written in another way ---------


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
    """Return the stored form of a text by the models alone; None if they refuse it."""
    try:
        return prepared(name, parse(RESOURCES[name], parse_json(text.encode("utf-8", "replace")), SITE, True))
    except (Malformed, FhirError):
        return None


def of_single(name: str, text: str) -> bytes | None:
    """Return the result of the reader of single creates."""
    found = plain.create(RESOURCES[name], text.encode("utf-8", "replace"), SITE)
    return None if found is None else prepared(name, found)


def of_batch(name: str, text: str) -> bytes | None:
    """Return the result of the reader of batches, with a sound entry beside it."""
    kept = json.dumps({"resource": BODIES["Task"], "request": {"method": "POST", "url": "Task"}})
    entry = f'{{"resource":{text},"request":{{"method":"POST","url":"{name}"}}}}'
    raw = f'{{"resourceType":"Bundle","type":"batch","entry":[{kept},{entry}]}}'
    found = plain.bundle(raw.encode("utf-8", "replace"), SITE)
    return None if found is None else prepared(name, found.entry[1].resource)


def of_long_batch(name: str, text: str) -> bytes | None:
    """Return the result of the reader of batches for a batch that is read in parts."""
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
@pytest.mark.parametrize("kind", [Soundness, SoundByParts])
@pytest.mark.parametrize("name", BODIES)
def test_the_import_finds_sound_what_the_models_find_sound(name: str, kind: type[Soundness], seed: int) -> None:
    """COMMON-35, COMMON-42, COMMON-43: rows may be whole resources, with whatever their file says."""
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
def test_a_body_that_the_models_refuse_is_refused_by_create_batch_and_validate(service: Running, text: str) -> None:
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

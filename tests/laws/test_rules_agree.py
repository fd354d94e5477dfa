"""A law over generated bodies: the quick question, whether any rule finds something, is answered as the rules do."""

import json
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from fhir_service.interactions import plain
from fhir_service.interface.checking import is_sound, parse, rule_problems
from fhir_service.interface.json_text import Malformed, parse_json
from fhir_service.interface.outcomes import FhirError
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.vocabulary import World
from tests.support.readers import KNOWN, SITE, SOUND, Spoiler


@dataclass
class Chart:
    """A chart drawn from dice: each answer is the usual one, or another; the same whenever it is asked for again."""

    dice: Random

    def __post_init__(self) -> None:
        self._said: dict[tuple[str, str], Any] = {}

    def _drawn(self, asked: str, of: str, usual: Any, other: Any) -> Any:
        if (asked, of) not in self._said:
            self._said[asked, of] = usual if self.dice.random() < 0.9 else other
        return self._said[asked, of]

    def questionnaire(self, questionnaire_id: str) -> Any:
        return self._drawn("questionnaire", questionnaire_id, KNOWN.questionnaire(questionnaire_id), None)

    def exists(self, reference: str) -> bool:
        return bool(self._drawn("exists", reference, True, False))

    def patient_of(self, reference: str) -> str | None:
        found: str | None = self._drawn("patient", reference, "p1", "p2")
        return found

    def display(self, reference: str) -> str | None:
        return reference

    def note_of(self, encounter_id: str) -> Any:
        return self._drawn("note of", encounter_id, self.note("n1"), None)

    def note(self, note_id: str) -> Any:
        return self._drawn("note", note_id, _Note(note_id, self.dice.choice(["p1", "p1", "p2"])), None)

    def balance(self, patient_id: str) -> int:
        return int(self._drawn("balance", patient_id, 10**6, 5))


@dataclass
class _Note:
    id: str
    patient: str
    encounter: str | None = None
    state: str = "open"


def changed(dice: Random, body: dict[str, Any]) -> dict[str, Any]:
    """A body of the right shape, of which the rules may find something."""
    more: dict[str, list[dict[str, Any]]] = {
        "Task": [{"status": "draft"}, {"intent": "order"}, {"input": [{"type": {"text": "x"}, "valueString": "y"}]}],
        "PaymentNotice": [
            {"status": "draft"},
            *({"amount": {"value": value}, "extension": []} for value in (-1, 0, 1.005, 99999999, 4)),
        ],
        "QuestionnaireResponse": [
            {"status": "draft"},
            {"encounter": {"reference": "Encounter/e1"}},
            {"item": [*body.get("item", ()), {"linkId": "9", "answer": [{"valueString": "x"}]}]},
            {"item": [{"linkId": "2", "answer": [{"valueDecimal": 1}]}] * 2},
        ],
    }
    name = body["resourceType"]
    made = body | dice.choice([{}, *more[name]])
    return {name: part for name, part in made.items() if part != []}


@pytest.mark.parametrize("changes", [500, pytest.param(1_500, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", SOUND)
def test_a_body_is_sound_just_where_no_rule_finds_anything(name: str, changes: int) -> None:
    """By the models and by the structs, whatever the chart says."""
    dice, resource, counts = Random(name), RESOURCES[name], {True: 0, False: 0}
    spoiler = Spoiler(dice)
    for _ in range(changes):
        text = spoiler.text(changed(dice, SOUND[name]))
        raw = text.encode("utf-8", "replace")
        try:
            bodies = [parse(resource, parse_json(raw), SITE, additions=True)]
        except (Malformed, FhirError):
            continue
        if (read := plain.create(resource, raw, SITE)) is not None:
            bodies.append(read)
        chart = Chart(dice)
        for body in bodies:
            found = list(rule_problems(resource, body, SITE, chart))
            assert is_sound(resource, body, World(SITE, chart, {}), resource.named(body)) is not bool(found), (
                json.dumps(text)
            )
            counts[not found] += 1
    assert min(counts.values()) > changes / 15

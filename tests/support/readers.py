"""Bodies for the fast readers, and ways to spoil them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from pipelines.session.questionnaires import Snapshot
from tests.service.interface.test_quick import BODIES

SITE = Site()
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
# Bodies that satisfy the rules, too.
ANSWERED = {
    "item": [
        {"linkId": "1", "answer": [{"valueCoding": _OPTION}]},
        {"linkId": "2", "answer": [{"valueString": "fine"}]},
        {"linkId": "3", "item": [{"linkId": "4", "answer": [{"valueDecimal": 7.5}]}]},
    ]
}
SOUND = BODIES | {"QuestionnaireResponse": BODIES["QuestionnaireResponse"] | ANSWERED}
NOTHINGS = ("null", '""', "[]", "{}")


@dataclass
class Members:
    """An object of a body: its members in order. A key may occur several times."""

    pairs: list[tuple[str, Any]]


@dataclass
class Written:
    """A value that is written as this text."""

    text: str


def opened(value: Any) -> Any:
    if isinstance(value, dict):
        return Members([(name, opened(part)) for name, part in value.items()])
    return [opened(part) for part in value] if isinstance(value, list) else value


@dataclass
class Spoiler:
    """Draw texts that differ little from that of a sound body."""

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
        """Return the text of a body after a few changes, which may cancel each other."""
        tree = opened(body)
        for _ in range(self.random.choice((0, 1, 1, 2, 2, 3, 4))):
            self.change(self.random.choice((tree, self.random.choice([*_members_of(tree)]))))
        return self.written(tree)

    def change(self, members: Members) -> None:
        """Leave a member out, repeat one, replace a value, or add one."""
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
        """Return a JSON string, now and then with an unnecessary escape."""
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

"""Requests drawn from one seed: sound bodies, bodies spoiled in their text, bundles, odd conditions, queries and bytes.

`Campaign` draws a request after the answer to the one before it, and keeps what is known of each task's versions.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any
from urllib.parse import quote

import httpx

from fhir_service.interface.registry import RESOURCES
from tests.support.fuzz import CREATED, Fuzzer
from tests.support.fuzz_answers import Sent
from tests.support.fuzz_words import ODD_HEADERS
from tests.support.readers import Spoiler

BASE = "http://chart.example"
SYSTEM = "urn:law"
VALUES = (
    *"abcdef",
    "A",
    "a,b",
    "a|b",
    "a b",
    "a+b",
    "a&b=c",
    "100%",
    "a\\b",
    "é",
    "e\u0301",
    "漢字",
    "a$",
    "%61",
    "a#b",
    "?",
)
"""Values of identifiers that only conditional creates carry, so that no two records may have one."""
ODD = (
    *(
        '"x"',
        '""',
        "null",
        "true",
        "[]",
        "{}",
        "[null]",
        "[{}]",
        '[[["x"]]]',
        '"\\u0022"',
        '"\\u0000"',
        '"\\ud83d\\ude00"',
    ),
    *(
        "0",
        "-0",
        "-0.0",
        "1",
        "-1",
        "5.00",
        "5e0",
        "1E+3",
        "0.001",
        "1e400",
        "1e-400",
        "1E-99999999999999999999",
        "9" * 40,
    ),
    *("1e19", "0.1e1", "12.340", "1.", ".5", "+1", "01", "NaN", "Infinity", "1_0", '"5.00"', "9999999.99", "10000000"),
    *(
        '"2026-02-30"',
        '"2026-02-28"',
        '"0001-01-01T00:00:00+14:00"',
        '"2026-01-01T24:00:00Z"',
        '"2026-01-01T10:00:60Z"',
    ),
    *(
        '"2026-01-01T10:00:00.1234567Z"',
        '"9999-12-31"',
        '"２０２６-01-01"',
        '"Patient/p1"',
        '"Patient/p2\\n"',
        '"Patient/"',
    ),
    *(
        '{"reference":"Patient/p2"}',
        '{"reference":"Patient/nobody"}',
        '[{"url":"claim"}]',
        '{"system":"urn:x","value":"1"}',
    ),
    *(
        '[{"system":"urn:x","value":"1"}]',
        '[{"linkId":"mood","item":[{"linkId":"remarks"}]}]',
        '"\\ud800"',
        '"\\uDC00x"',
    ),
    *(
        '"' + "ä" * 40_000 + '"',
        "[" * 60 + "1" + "]" * 60,
        '{"a":' * 120 + "1" + "}" * 120,
        '"\u2028"',
        '"\ufeffx"',
        '"\x85"',
    ),
    *(
        '"\\/"',
        '"Pat\\u0069ent/p1"',
        '"  "',
        '"\t"',
        '"\\b"',
        '"\U0001f469\u200d⚕️"',
        '"a\u0300"',
        "{,}",
        '{"a":1,"a":1}',
    ),
)
NAMES = ("resourceType", "id", "meta", "status", "display", "type", "valueDecimal", "valueString", "identifier", "item")
TYPE = (b"content-type", b"application/json")
Check = Callable[[httpx.Response], str | None]


@dataclass(frozen=True)
class Step:
    """A request, the time of the service's clock, and the expected answer."""

    sent: Sent
    clock: timedelta
    check: Check = lambda _: None


@dataclass
class Campaign:
    """Draws steps. `versions` holds the version in force of each task; an update may break none of them."""

    seed: int
    versions: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fuzzer = Fuzzer(self.seed, BASE)
        self.random: Random = self.fuzzer.random
        self.spoiler = Spoiler(self.random, ODD, (*NAMES, "item", "for", "é", ""))
        self._waiting: list[Step] = []

    def step(self) -> Step:
        """The next step."""
        if self._waiting:
            return self._waiting.pop()
        makers = [self.create, self.conditional, self.everywhere, self.update, self.bundle, self.asking, self.junk]
        (make,) = self.random.choices(makers, [14, 12, 14, 16, 18, 16, 10])
        return make()

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def at(self, sent: Sent, check: Check = lambda _: None) -> Step:
        """A step at some time of an hour before and after: the clock is set back as often as on."""
        return Step(sent, timedelta(microseconds=self.random.randint(-3_600_000_000, 3_600_000_000)), check)

    # --- Bodies ---

    def body(self, name: str) -> dict[str, Any]:
        """A body that is taken, for whichever patient."""
        body = self.fuzzer.body(RESOURCES[name])
        if name == "PaymentNotice" and "extension" not in body:
            body["request"] = {"reference": f"Patient/{self.random.choice(['p1', 'p2', 'p5', 'p7'])}"}
            body["amount"] = {"value": self.random.choice([0.01, 0.5, 1, 2.25, 33.1, 150.25, 500])}
        body.pop("identifier", None)
        return body

    def text(self, body: dict[str, Any], spoiled: float = 0.5) -> str:
        """The text of a body, often spoiled."""
        if self.chance(spoiled):
            return self.spoiler.text(body)
        return json.dumps(body, ensure_ascii=self.chance(0.5), indent=self.random.choice([None, None, 1]))

    def kind(self) -> str:
        return self.random.choice(CREATED).name

    def identified(self, name: str, value: str) -> dict[str, Any]:
        """A body with an identifier that is another's for each kind."""
        identifier = {"system": SYSTEM, "value": value}
        return self.body(name) | {"identifier": identifier if name == "QuestionnaireResponse" else [identifier]}

    def condition(self, value: str) -> str:
        """The query for an identifier, in one of the ways to write it."""
        literal = "".join(f"\\{letter}" if letter in "\\,|$" else letter for letter in value)
        system = self.random.choice([SYSTEM, quote(SYSTEM, safe="")])
        safe = self.random.choice(["", ":|", "abcdef"])
        bar = self.random.choice(["|", "%7C", "%7c"])
        text = f"{self.random.choice(['', '', '?'])}identifier={system}{bar}{quote(literal, safe=safe)}"
        return text.replace("%20", self.random.choice(["%20", "+"]))

    # --- Requests ---

    def create(self) -> Step:
        name = self.kind()
        return self.at(self.posted(f"/{name}", self.text(self.body(name))))

    def posted(self, target: str, text: str, *headers: tuple[bytes, bytes]) -> Sent:
        return Sent("POST", target, text.encode("utf-8", "replace"), (TYPE, *headers))

    def conditional(self) -> Step:
        name, value = self.kind(), self.random.choice(VALUES)
        condition = self.condition(value)
        if self.chance(0.1):
            condition = self.random.choice(
                [condition + "&", condition + ",x", condition.replace("=", "%3D"), value, ""]
            )
        text = self.text(self.identified(name, value), 0.25)
        return self.at(self.posted(f"/{name}", text, (b"if-none-exist", condition.encode())))

    def everywhere(self) -> Step:
        """One text to a create, to `$validate`, in a batch, and in a batch that is read entry by entry."""
        name = self.kind()
        text = self.text(self.body(name), 0.9)
        entry = f'{{"resource":{text},"request":{{"method":"POST","url":"{name}"}}}}'
        other = '{"request":{"method":"GET","url":"Task?_count=0"}}'
        statuses: list[str] = []

        def alone(response: httpx.Response) -> None:
            statuses.append(_refusal(response))

        def in_bundle(response: httpx.Response) -> str | None:
            found = _refusal(response)
            if response.status_code == 200:
                answer = response.json()["entry"][0]["response"]
                found = _shape(answer["status"], answer.get("outcome"))
            return None if found == statuses[0] else f"alone {statuses[0]}, in a bundle {found}"

        def validated(response: httpx.Response) -> str | None:
            found = _refusal(response)
            if response.status_code == 200:
                issue = response.json()["issue"][0]
                found = _shape("400" if issue["code"] == "invalid" else issue["code"], {"issue": [issue]})
            return None if found == statuses[0] else f"alone {statuses[0]}, by $validate {found}"

        bundles = [
            f'{{"resourceType":"Bundle","type":"batch","entry":[{some}]}}' for some in (entry, f"{entry},{other}")
        ]
        self._waiting = [self.at(self.posted("/", bundle), in_bundle) for bundle in bundles]
        self._waiting.append(self.at(self.posted(f"/{name}/$validate", text), validated))
        return self.at(self.posted(f"/{name}", text), alone)

    def update(self) -> Step:
        known = self.fuzzer.made["Task"]
        if not known or self.chance(0.15):
            return self.withdrawal()
        resource_id = self.random.choice(known[-20:])
        sound = self.chance(0.7)
        text = self.text(self.body("Task"), 0.0 if sound else 1.0)
        tag, stale = self.tag(resource_id)
        headers = (TYPE, *([(b"if-match", tag.encode())] if tag is not None else []))
        sent = Sent("PUT", f"/Task/{resource_id}", text.encode("utf-8", "replace"), headers)
        return self.at(sent, lambda answer: self.updated(resource_id, str(answer.status_code), sound, stale))

    def withdrawal(self) -> Step:
        resource_id = self.fuzzer.id_of("QuestionnaireResponse")
        text = self.text({"id": resource_id, "status": "entered-in-error"}, 0.3)
        target = f"/QuestionnaireResponse/{quote(resource_id)}"
        return self.at(Sent("PUT", target, text.encode("utf-8", "replace")))

    def tag(self, resource_id: str) -> tuple[str | None, bool | None]:
        """An `If-Match`, and whether it was overtaken (None where that cannot be said)."""
        now = self.versions[resource_id]
        old = self.random.choice([0, now - 1, now - 2, now + 1])
        return self.random.choice(
            [
                (None, False),
                ("*", False),
                (f'W/"{now}"', False),
                (f'W/"{old}", W/"{now}"', False),
                (f'W/"{old}"', True),
                (f'W/"{old}",W/"{now + 2}"', True),
                (f'W/"0{now}"', True),
                ("", True),
                (self.random.choice([f'"{now}"', str(now), f'w/"{now}"', "W/*", '"*"', ",,"]), None),
            ]
        )

    def updated(self, resource_id: str, status: str, sound: bool, stale: bool | None) -> str | None:
        """Takes note of an update's status; says what is wrong with it."""
        self.versions[resource_id] += status == "200"
        if stale and status != "412" and (sound or status == "200"):
            return f"an update with a tag that was overtaken is {status}"
        return "an update with the tag in force is 412" if stale is False and status == "412" else None

    def bundle(self) -> Step:
        drawn = [self.entry() for _ in range(self.random.choice([1, 2, 3, 8]))]
        plain = self.chance(0.4)
        chosen = [one for one in drawn if not plain or '"method": "POST"' in one[0]] or drawn

        def check(response: httpx.Response) -> str | None:
            if response.status_code != 200:
                return None
            answers = [one["response"] for one in response.json()["entry"]]
            found = [look(answer) for (_, look), answer in zip(chosen, answers, strict=True)]
            return next(filter(None, found), None)

        text = ",".join(text for text, _ in chosen)
        return self.at(self.posted("/", f'{{"resourceType":"Bundle","type":"batch","entry":[{text}]}}'), check)

    def entry(self) -> tuple[str, Callable[[dict[str, Any]], str | None]]:
        """The text of an entry, and what looks at its answer."""
        (make,) = self.random.choices(
            [self.created_in_bundle, self.updated_in_bundle, self.fetched_in_bundle], [6, 3, 1]
        )
        return make()

    def created_in_bundle(self) -> tuple[str, Callable[[dict[str, Any]], str | None]]:
        name, value = self.kind(), self.random.choice(VALUES)
        request: dict[str, Any] = {"method": "POST", "url": name}
        body = self.body(name)
        if self.chance(0.6):
            body, request["ifNoneExist"] = self.identified(name, value), self.condition(value)
        # What cannot be read at all would keep the neighbours from being looked at.
        text = self.text(body, 0.15)
        return f'{{"resource":{text},"request":{json.dumps(request)}}}', self.learned

    def learned(self, answer: dict[str, Any]) -> None:
        self.learn(answer.get("location", "") if answer["status"] == "201" else "")

    def updated_in_bundle(self) -> tuple[str, Callable[[dict[str, Any]], str | None]]:
        known = self.fuzzer.made["Task"]
        if not known:
            return self.created_in_bundle()
        resource_id = self.random.choice(known[-5:])
        version = max(1, self.versions[resource_id] + self.random.choice([0, 0, 0, 1, -1]))
        request = {"method": "PUT", "url": f"Task/{resource_id}", "ifMatch": f'W/"{version}"'}
        text = self.text(self.body("Task"), 0.0)

        def check(answer: dict[str, Any]) -> str | None:
            return self.updated(resource_id, answer["status"], True, version != self.versions[resource_id])

        return f'{{"resource":{text},"request":{json.dumps(request)}}}', check

    def fetched_in_bundle(self) -> tuple[str, Callable[[dict[str, Any]], str | None]]:
        name = self.random.choice(list(RESOURCES))
        sent = self.fuzzer.search() if self.chance(0.7) else self.fuzzer.read()
        url = self.random.choice([sent.target.lstrip("/"), name, f"{name}/%00", "Task/\ud800", "Task?x=\ud800", ""])
        return json.dumps({"request": {"method": "GET", "url": url}}), lambda _: None

    def asking(self) -> Step:
        sent = self.random.choice([self.fuzzer.search, self.fuzzer.read])()
        return self.at(sent if self.chance(0.8) else self.fuzzer.with_odd_headers(sent))

    def junk(self) -> Step:
        """Return a value that no client sends."""
        name = self.kind()
        target = self.random.choice(
            [f"/{name}", "/", f"/{name}/$validate", f"/{name}/x", f"/{name}/_search", "/auth/token"]
        )
        raw = self.text(self.body(name)).encode("utf-8", "replace")
        content = self.random.choice([self.fuzzer.torn(raw), self.random.randbytes(40), self.form(), raw])
        method = self.random.choice(["POST", "POST", "PUT", "PATCH", "DELETE", "GET"])
        kind = self.random.choice([TYPE, (b"content-type", b"application/x-www-form-urlencoded")])
        odd = self.random.choice(
            [*ODD_HEADERS, (b"x-correlation-id", b"\xe9" * 9), (b"authorization", b"Basic \xff==")]
        )
        headers = (kind, odd) if self.chance(0.4) and odd[0] != kind[0] else (kind,)
        return self.at(Sent(method, target, content, headers))

    def form(self) -> bytes:
        names = ["grant_type", "client_id", "client_secret", "scope", "_count", "%ff", "\x00", "identifier"]
        values = ["client_credentials", "é", "%00", "%ff", "system/*.rs", "x" * 3000, "", "+", "1;2", "urn:law|a"]
        pairs = (f"{self.random.choice(names)}={self.random.choice(values)}" for _ in range(self.random.randrange(5)))
        return "&".join(pairs).encode()

    # --- Answers ---

    def learn(self, location: str) -> None:
        """Remembers the id of what was made."""
        kind, _, resource_id = location.removeprefix(f"{BASE}/").partition("/")
        if kind in self.fuzzer.made and resource_id not in self.fuzzer.made[kind]:
            self.fuzzer.made[kind].append(resource_id)
            self.versions.setdefault(resource_id, 1)


def _refusal(response: httpx.Response) -> str:
    return _shape(str(response.status_code), response.json())


def _shape(status: str, outcome: Any) -> str:
    """The status of a body of the wrong shape, and its outcome; nothing of any other: rules may see another store."""
    if status != "400":
        return ""
    issue = outcome["issue"][0]
    # `$validate` puts the words for a shape into the same places, with all further problems behind.
    said = re.sub(r" \(line \d+, column \d+\)", "", issue.get("diagnostics", ""))
    return f"400 {issue['code']} {issue.get('expression')} {said}"

"""Random requests from the service's declarations: bodies from models, queries from parameters; some are then spoiled.

`Fuzzer` draws everything from one seed. `fuzz_answers` says what is wrong with an answer, whatever the request was.
"""

import json
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote

import httpx
from pydantic import BaseModel

from fhir_service.interface import datatypes
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.resources import task
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Param, Resource
from tests.support.fuzz_answers import Sent
from tests.support.fuzz_words import (
    CODES,
    ENCOUNTERS,
    KNOWN,
    MOODS,
    ODD_HEADERS,
    ODD_NUMBERS,
    ODD_TEXTS,
    ODD_TIMES,
    RICH,
    SYMPTOMS,
    WORDS,
)

Json = dict[str, Any]
CREATED = tuple(resource for resource in RESOURCES.values() if "create" in resource.interactions)


@dataclass
class Fuzzer:
    """Draw requests, and remember the ids of created resources."""

    seed: int
    base_url: str
    made: dict[str, list[str]] = field(default_factory=lambda: {resource.name: [] for resource in CREATED})

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.site = Site(self.base_url, "example", "demo")

    def learn(self, response: httpx.Response) -> None:
        """Remember the id in a `location`."""
        kind, _, resource_id = response.headers.get("location", "").removeprefix(f"{self.base_url}/").partition("/")
        if kind in self.made and resource_id:
            self.made[kind].append(resource_id)

    def request(self) -> Sent:
        """Return the next request."""
        makers: list[Callable[[], Sent]] = [self.create, self.update, self.read, self.search, self.batch, self.other]
        (make,) = self.random.choices(makers, [30, 12, 10, 30, 8, 10])
        sent = make()
        if self.random.random() < 0.12:
            sent = self.with_odd_headers(sent)
        return sent

    # --- interactions

    def create(self) -> Sent:
        resource = self.random.choice(CREATED)
        path = f"/{resource.name}/$validate" if self.random.random() < 0.1 else f"/{resource.name}"
        return Sent("POST", path, self.text(self.body(resource)))

    def update(self) -> Sent:
        resource = RESOURCES[self.random.choice(["Task", "Task", "QuestionnaireResponse"])]
        resource_id = self.id_of(resource.name)
        body = self.body(resource)
        if resource.name == "QuestionnaireResponse":
            body = {"id": resource_id, "status": "entered-in-error"}
        return Sent("PUT", f"/{resource.name}/{quote(resource_id)}", self.text(body))

    def read(self) -> Sent:
        kind = self.random.choice(list(RESOURCES))
        tail = self.random.choice(["", "", "", "/_history", "/_history?_count=2", "/files/presentedForm/0"])
        method = self.random.choice(["GET", "GET", "GET", "HEAD"])
        return Sent(method, f"/{kind}/{quote(self.id_of(kind), safe='')}{tail}", headers=())

    def search(self) -> Sent:
        resource = self.random.choice(list(RESOURCES.values()))
        query = "&".join(self.parameter(resource) for _ in range(self.random.choice([0, 1, 1, 1, 2, 3])))
        if self.random.random() < 0.15:
            form = ((b"content-type", b"application/x-www-form-urlencoded"),)
            return Sent("POST", f"/{resource.name}/_search", query.encode("ascii", "replace"), form)
        return Sent(self.random.choice(["GET", "GET", "GET", "HEAD"]), f"/{resource.name}?{query}", headers=())

    def batch(self) -> Sent:
        entries = []
        for _ in range(self.random.randrange(6)):
            resource = self.random.choice(CREATED)
            request: Json = {"method": "POST", "url": resource.name}
            if self.chance(0.3):
                request["ifNoneExist"] = f"identifier=urn:fuzz|{self.random.randrange(50)}"
            entry = {"resource": self.carrying(resource, request), "request": request}
            entries.append(self.spoiled(entry) if self.chance(0.3) else entry)
        return Sent("POST", "/", self.text({"resourceType": "Bundle", "type": "batch", "entry": entries}))

    def carrying(self, resource: Resource, request: Json) -> Json:
        """Return a body, mostly with the identifier of its condition."""
        body = self.body(resource)
        if "ifNoneExist" in request and self.chance(0.9):
            system, _, value = request["ifNoneExist"].removeprefix("identifier=").partition("|")
            identifier = {"system": system, "value": value}
            body["identifier"] = identifier if resource.name == "QuestionnaireResponse" else [identifier]
        return body

    def other(self) -> Sent:
        method = self.random.choice(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "BREW"])
        kind = self.random.choice([*RESOURCES, "Patient", "task", "", "metadata", "_history"])
        target = self.random.choice(
            [
                f"/{kind}",
                f"/{kind}/",
                f"//{kind}",
                f"/{kind}/%00",
                f"/{kind}/%ff/x",
                f"/{kind}/_history?_since=x",
                "/%2e%2e/",
            ]
        )
        return Sent(method, target, self.text({}) if method in ("POST", "PUT", "PATCH") else None)

    def with_odd_headers(self, sent: Sent) -> Sent:
        name, value = self.random.choice(ODD_HEADERS)
        kept = tuple(pair for pair in sent.headers if pair[0] != name)
        return Sent(sent.method, sent.target, sent.content, (*kept, (name, value)))

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def id_of(self, kind: str) -> str:
        """Return an id, mostly that of an existing resource."""
        ids: Sequence[str] = self.made.get(kind) or KNOWN.get(kind, [])
        return (
            self.random.choice(ids)
            if ids and self.chance(0.85)
            else self.random.choice(["x", "a b", "é", "x" * 65, "."])
        )

    # --- bodies

    def body(self, resource: Resource) -> Json:
        """Return a body that mostly satisfies the resource's model and rules."""
        body: Json = self.instance(resource.model)
        body.pop("id", None)
        _FITTED[resource.name](self, body)
        return body

    def text(self, body: Json) -> bytes:
        """Return the JSON text of a body. Every third one is spoiled, in a value or in the text."""
        spoil = self.random.random()
        if spoil < 0.35:
            body = self.spoiled(body)
        raw = json.dumps(body, ensure_ascii=self.chance(0.5)).encode("utf-8", "surrogatepass")
        for number in ODD_NUMBERS:
            raw = raw.replace(f'"@{number}@"'.encode(), number.encode())
        return self.torn(raw) if spoil > 0.93 else raw

    def instance(self, hint: Any) -> Any:
        """Return a value of a declared type."""
        origin, arguments = get_origin(hint), get_args(hint)
        if hint in _VALUES:
            return _VALUES[hint](self)
        if origin in (Union, types.UnionType):
            return self.instance(self.random.choice([one for one in arguments if one is not type(None)]))
        if origin is list:
            return [self.instance(arguments[0]) for _ in range(self.random.choice([1, 1, 2]))]
        if hasattr(hint, "__metadata__"):
            return self.instance(arguments[0])
        if isinstance(hint, type) and issubclass(hint, BaseModel):
            return self.element(hint)
        words: Any = {Literal: arguments, dict: [{"any": "x"}]}.get(origin, WORDS)
        return self.random.choice(words)

    def element(self, model: type[BaseModel]) -> Json:
        """Return an element with all required members, and some of the others."""
        if model is datatypes.Meta:
            return {"versionId": "1"}
        hints, found = get_type_hints(model, include_extras=True), {}
        for name, info in model.model_fields.items():
            if info.is_required() or self.chance(0.4):
                found[info.alias or name] = self.instance(hints[name]) if name != "item" else []
        if "reference" in found:
            kinds = [kind for kind in KNOWN if kind in str(model.model_fields["reference"])] or ["Encounter"]
            kind = self.random.choice(kinds)
            found["reference"] = f"{kind}/{self.random.choice(KNOWN.get(kind, ['e1']))}"
            found.pop("type", None)
        return {name: value for name, value in found.items() if value != [] and (value != {} or name != "meta")}

    # --- spoiling

    def spoiled(self, body: Json) -> Json:
        """Return a copy with one value that contradicts the declarations."""
        copy: Json = json.loads(json.dumps(body))
        parent: Any = copy
        while isinstance(parent, dict | list) and parent:
            key: Any = self.random.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
            if isinstance(parent[key], dict | list) and parent[key] and self.chance(0.7):
                parent = parent[key]
                continue
            self.spoil(parent, key)
            break
        return copy

    def spoil(self, parent: Any, key: Any) -> None:
        old = parent[key]
        new: list[Any] = [None, [], {}, [old], {"value": old}, True, 0, -1, f"@{self.random.choice(ODD_NUMBERS)}@"]
        new += [self.random.choice(ODD_TEXTS), self.random.choice(ODD_TIMES), self.nested(), "Patient/nobody", "Task/x"]
        kind = self.random.random()
        if kind < 0.2:
            del parent[key]
        elif kind < 0.3 and isinstance(parent, dict):
            parent[self.random.choice(["extra", "_status", "", "é", "id", "identifier", "contained"])] = old
        else:
            parent[key] = self.random.choice(new)

    def nested(self) -> Any:
        value: Any = "x"
        for _ in range(self.random.choice([5, 90, 150, 400])):
            value = [value] if self.chance(0.5) else {"item": value}
        return value

    def torn(self, raw: bytes) -> bytes:
        """Return a damaged JSON text."""
        at = self.random.randrange(len(raw))
        choices = [
            raw[:at],
            raw[:at] + bytes([self.random.randrange(256)]) + raw[at + 1 :],
            raw + raw,
            b"\xef\xbb\xbf" + raw,
            raw.decode("utf-8", "replace").encode("utf-16"),
            raw.replace(b":", b":" + b"[" * 5000, 1),
            b'{"resourceType":"Task",' + raw[1:],
            b"",
            b" " * 2_000_000 + raw,
        ]
        return self.random.choice(choices)

    # --- queries

    def parameter(self, resource: Resource) -> str:
        """Return one encoded parameter of a query; a few are senseless."""
        if self.chance(0.3):
            name, value = self.control(resource)
        else:
            param = self.random.choice(resource.params)
            name, value = param.name, self.value_of(param)
        if self.chance(0.06):
            name += self.random.choice([":exact", ":missing", "é", "[]", ".x"])
        if self.chance(0.12):
            value = self.random.choice([*ODD_TEXTS[:-3], *ODD_TIMES, ",", "|", "\\", "\\,", "a,,b", "null", "-1", "ge"])
        if self.chance(0.03):
            return self.random.choice(["%", "%zz", "&&", "=", "a=%ff", "_count=1=2", ";", "%00=1", "_id"])
        return f"{quote(name)}={quote(value.encode('utf-8', 'replace'), safe=self.random.choice(['', '/:|,']))}"

    def control(self, resource: Resource) -> tuple[str, str]:
        sorts = [*resource.sorts, *(f"-{name}" for name in resource.sorts)] or ["_id"]
        return self.random.choice(
            [
                ("_sort", self.random.choice(sorts)),
                ("_count", self.random.choice(["0", "1", "5", "1000", "99999999999999999999", "-1", "x"])),
                ("_offset", self.random.choice(["0", "3", "100000", "999999999999999999", "-1"])),
            ]
        )

    def value_of(self, param: Param) -> str:
        """Return a value that a parameter of this kind accepts."""
        return _QUERIES[param.kind](self, param)

    def time(self) -> str:
        text = f"20{self.random.randrange(10, 30)}-0{self.random.randrange(1, 10)}-1{self.random.randrange(10)}"
        return text + self.random.choice(["", "T10:00:00Z", "T23:59:59.999+14:00", "T00:00:00-03:30"])


# --- Values of types, of parameters, and what makes a body fit --------------------------------------

_VALUES: dict[Any, Callable[[Fuzzer], Any]] = {
    datatypes.Text: lambda fuzzer: fuzzer.random.choice(WORDS),
    datatypes.Uri: lambda _: "urn:fuzz",
    datatypes.Id: lambda _: "x",
    datatypes.Time: lambda fuzzer: fuzzer.time(),
    datatypes.Number: lambda fuzzer: fuzzer.random.randrange(1, 100_000) / 100,
    datatypes.Identifier: lambda fuzzer: {"system": "urn:fuzz", "value": str(fuzzer.random.randrange(50))},
}

_QUERIES: dict[str, Callable[[Fuzzer, Param], str]] = {
    "id": lambda fuzzer, _: fuzzer.id_of(fuzzer.random.choice(list(RESOURCES))),
    "token": lambda fuzzer, param: ",".join(fuzzer.random.sample(param.allowed, 1 + fuzzer.random.randrange(2))),
    "codes": lambda fuzzer, _: fuzzer.random.choice(
        [form.format(*fuzzer.random.choice(CODES)) for form in ("{0}|{1}", "{1}", "{0}|", "|{1}", "{1},x")]
    ),
    "reference": lambda fuzzer, param: (
        fuzzer.random.choice(["", f"{param.target}/"]) + fuzzer.random.choice(KNOWN[param.target])
    ),
    "date": lambda fuzzer, _: (
        fuzzer.random.choice(["", "eq", "ne", "gt", "lt", "ge", "le"])
        + fuzzer.random.choice([fuzzer.time(), "2024", "2024-03"])
    ),
    "contains": lambda fuzzer, _: fuzzer.random.choice(WORDS)[:3],
    "starts": lambda fuzzer, _: fuzzer.random.choice(["int", "SCO", "x%"]),
    "exact": lambda fuzzer, _: fuzzer.random.choice(WORDS),
    "uri": lambda fuzzer, param: f"{fuzzer.base_url}/{param.target}/{fuzzer.random.choice(KNOWN[param.target])}",
}


def _fit_task(fuzzer: Fuzzer, body: Json) -> None:
    body["status"], body["intent"] = fuzzer.random.choice(task.STATUSES), "unknown"
    body.pop("extension", None)
    for entry in body.get("input", ()):
        entry["type"] = {"text": "label"}
    if fuzzer.chance(0.3):
        group = {"reference": f"Group/{fuzzer.random.choice(KNOWN['Group'])}"}
        body["extension"] = [{"url": fuzzer.site.task_group, "valueReference": group}]


def _fit_payment(fuzzer: Fuzzer, body: Json) -> None:
    body["status"], body["request"] = "active", {"reference": f"Patient/{RICH}"}
    body["payment"] = body["recipient"] = {}
    body["amount"]["value"] = round(body["amount"]["value"], 2)
    body.pop("extension", None)
    if fuzzer.chance(0.3):
        claim = {"url": "claim", "valueReference": {"reference": "Claim/c3"}}
        body["extension"] = [{"url": fuzzer.site.copayment, "extension": [claim]}]


def _fit_response(fuzzer: Fuzzer, body: Json) -> None:
    body["questionnaire"], body["status"] = f"{fuzzer.base_url}/Questionnaire/q-intake", "completed"
    for name in ("extension", "encounter"):
        body.pop(name, None)
    if fuzzer.chance(0.3):
        patient, encounter, note = fuzzer.random.choice(ENCOUNTERS)
        body["subject"] = {"reference": f"Patient/{patient}"}
        if fuzzer.chance(0.7):
            body["encounter"] = {"reference": f"Encounter/{encounter}"}
        if fuzzer.chance(0.5):
            body["extension"] = [{"url": fuzzer.site.note_id, "valueId": note}]
    body["item"] = fuzzer.random.sample(_items(fuzzer), fuzzer.random.randrange(1, 5))


def _items(fuzzer: Fuzzer) -> list[Json]:
    code, display = fuzzer.random.choice(MOODS)
    symptoms = fuzzer.random.sample(SYMPTOMS, fuzzer.random.randrange(1, 4))
    codings = [{"system": "http://snomed.info/sct", "code": code, "display": display} for code, display in symptoms]
    answers = {
        "mood": [{"valueCoding": {"system": "http://loinc.org", "code": code, "display": display}}],
        "symptoms": [{"valueCoding": coding} for coding in codings],
        "remarks": [{"valueString": fuzzer.random.choice(WORDS)}],
        "weight": [{"valueDecimal": fuzzer.random.randrange(1, 2000) / 10}],
    }
    return [{"linkId": link, "answer": answer} for link, answer in answers.items()]


_FITTED: dict[str, Callable[[Fuzzer, Json], None]] = {
    "Task": _fit_task,
    "PaymentNotice": _fit_payment,
    "QuestionnaireResponse": _fit_response,
}

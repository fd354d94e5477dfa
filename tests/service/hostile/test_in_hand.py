"""Bodies that are under way at once: beyond what a process has room for they are refused, and nothing is stored."""

import gc
import http.client
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from fhir_service import body_memory
from fhir_service.interface.checking import parse
from fhir_service.interface.json_text import parse_json
from fhir_service.interface.registry import RESOURCES
from tests.conftest import BOTH, Running
from tests.service.hostile.sent import TEXT
from tests.support.bodies import TASK
from tests.support.readers import SITE, SOUND
from tests.support.standing import until

STORES = BOTH
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
BUNDLE = json.dumps({"resourceType": "Bundle", "type": "batch"})
SENT = {
    "create": ("POST", "/Task", JSON, TEXT, 201),
    "create at the face": ("POST", "/fhir/Task", JSON, TEXT, 201),
    "update": ("PUT", "/Task/none", JSON, TEXT, 404),
    "validation": ("POST", "/Task/$validate", JSON, TEXT, 200),
    "bundle": ("POST", "/", JSON, BUNDLE, 200),
    "search": ("POST", "/Task/_search", FORM, "_count=0&description=", 400),
}
DENSE = {
    "numbers": b"[" + b",".join([b"1"] * 50_000) + b"]",
    "empty lists": b"[" + b",".join([b"[]"] * 50_000) + b"]",
    "lists in lists": b"[" + b",".join([b"[" * 90 + b"]" * 90] * 500) + b"]",
    "objects": b"[" + b",".join([b'{"a":1}'] * 20_000) + b"]",
}


@pytest.fixture(name="room")
def room_for_3000(service: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[body_memory.InHand]:
    """The room of a service that has little. All of it is given back in the end."""
    room = service.service.in_hand
    monkeypatch.setattr(body_memory, "FREE", 0)
    monkeypatch.setattr(body_memory, "VALUE", 0)
    monkeypatch.setattr(room, "left", 3_000)
    yield room
    until(lambda: room.left == 3_000, "the room to be given back", pause=0.01)


@pytest.mark.parametrize("name", SENT)
def test_bodies_beyond_what_a_process_has_room_for_are_refused_until_others_are_answered(
    service: Running, room: body_memory.InHand, name: str
) -> None:
    """LIMIT-14: otherwise each of any number of connections could have a body of up to 64 MiB in memory."""
    method, path, kind, text, status = SENT[name]
    head = {"content-type": kind, "authorization": service.client.headers["authorization"]}
    raw = text.encode()

    def sent(size: int) -> int:
        answer = service.client.request(method, path, content=raw.ljust(size), headers=head)
        if answer.status_code == 503:
            assert answer.headers["retry-after"] == "5"
            assert answer.json()["issue"][0]["diagnostics"] == "too many large requests are under way: try again later"
        return answer.status_code

    with closing(http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=30)) as slow:
        slow.putrequest(method, path)
        for header, value in {**head, "content-length": "2500"}.items():
            slow.putheader(header, value)
        slow.endheaders(raw.ljust(2_499))
        until(lambda: room.left == 501, "the part of the body that was sent", pause=0.01)
        assert sent(900) == 503
        slow.send(b" ")
        assert slow.getresponse().status == status
    assert sent(900) == status
    assert sent(3_001) == 503


def test_a_usual_body_is_taken_beside_any_others(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.service.in_hand, "left", 0)
    assert service.client.post("/Task", json=TASK).status_code == 201
    assert service.client.post("/Task", json=TASK | {"description": "x" * body_memory.FREE}).status_code == 503


def test_a_body_counts_by_its_values(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """LIMIT-14: eighty bodies of 1 MiB, full of numbers, took five gigabytes."""
    monkeypatch.setattr(service.service.in_hand, "left", 200_000)
    for values, status in ((1_000, 201), (5_000, 503)):
        assert service.client.post("/Task", json=TASK | {"meta": {"x": [1] * values}}).status_code == status


@pytest.mark.parametrize("name", DENSE)
def test_a_parsed_body_takes_less_than_twice_its_estimated_weight(name: str) -> None:
    assert _taken(lambda: parse_json(DENSE[name])) < 2 * body_memory.weight(DENSE[name])


def test_a_model_of_a_body_takes_no_more_than_a_multiple_of_its_estimated_weight() -> None:
    """Of items as small as they come."""
    item = {"linkId": "1", "answer": [{"valueDecimal": 1}]}
    raw = json.dumps(SOUND["QuestionnaireResponse"] | {"item": [item] * 5_000}, separators=(",", ":")).encode()
    resource = RESOURCES["QuestionnaireResponse"]
    assert _taken(lambda: parse(resource, parse_json(raw), SITE, additions=True)) < 3 * body_memory.weight(raw)


def test_no_body_counts_for_more_than_the_largest() -> None:
    """The largest body is accepted if no other is under way. Otherwise it would be refused for ever."""
    room = body_memory.InHand(100_000)
    for _ in range(body_memory.LARGEST_BODIES):
        body_memory.BodyShare(room).hold(10**9)
    assert room.left == 0


def _taken(made: Callable[[], object]) -> int:
    """Return the bytes that a value has in memory."""
    gc.collect()
    tracemalloc.start()
    kept = made()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept is not None
    return size

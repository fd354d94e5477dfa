"""What is changed at a target side by side: one at a time of each note and encounter, none once it cannot be used."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from pipelines.client.client import FhirClient
from pipelines.client.pace import Patience
from pipelines.client.replies import NotSent, Reply, Unknown
from pipelines.loading.changes import Changes
from pipelines.loading.identity import Identity
from pipelines.loading.ownership import Made, Owner
from pipelines.loading.task_content import has, said

NOTE = "http://schemas.example.com/fhir/extensions/note-id"
HOLD_SECONDS = 0.02
Body = Mapping[str, Any]


def response(encounter: str | None = None, note: str | None = None, patient: str = "p") -> Body:
    return {
        "resourceType": "QuestionnaireResponse",
        "status": "completed",
        "subject": {"reference": f"Patient/{patient}"},
        **({"encounter": {"reference": f"Encounter/{encounter}"}} if encounter else {}),
        **({"extension": [{"url": NOTE, "valueId": note}]} if note else {}),
    }


class Target:
    """In a client's place. doubled: how many writes began while another of the same name was under way."""

    def __init__(self, bodies: Mapping[str, Body], names: Mapping[str, str] | None = None) -> None:
        self.bodies, self.names = bodies, names or {}
        self.patience = Patience(3, sleep=lambda _: None)
        self.lock, self.at_work, self.doubled = threading.Lock(), Counter[str](), 0
        self.reads = self.writes = 0
        self.failure: Exception | None = None
        self.meet: Callable[[], object] = lambda: threading.Event().wait(HOLD_SECONDS)

    def read_as_of(self, _: str, resource_id: str) -> tuple[Body, None]:
        with self.lock:
            self.reads += 1
        if isinstance(self.failure, NotSent):
            raise self.failure
        return self.bodies[resource_id], None

    def update(self, _: str, resource_id: str, __: bytes, ___: str | None) -> Reply:
        name = self.names.get(resource_id, resource_id)
        with self.lock:
            self.writes += 1
            self.doubled += self.at_work[name]
            self.at_work[name] += 1
        self.meet()
        with self.lock:
            self.at_work[name] -= 1
        if self.failure:
            raise self.failure
        return Reply(200)


def take_back_all(target: Target, at_once: int) -> list[Any]:
    changes = Changes(cast(FhirClient, target), lambda: None, Owner(Identity("s", "QuestionnaireResponse"), False))
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda each: changes.take_back(Made(each, "", ())), target.bodies))


@pytest.mark.parametrize(
    "body",
    [response("e1"), response("e1", "n1"), response(note="n1"), response()],
    ids="encounter both note new".split(),
)
def test_no_two_responses_of_one_note_or_encounter_are_taken_back_at_once(body: Body) -> None:
    """QR-CREATE-16, LIMIT-04: a PUT names the encounter as well."""
    target = Target({str(number): body for number in range(6)}, dict.fromkeys(map(str, range(6)), "the same"))
    posted = take_back_all(target, 6)
    assert {each.result.state for each in posted} == {"undone"}
    assert (target.writes, target.doubled) == (6, 0)


def test_those_of_different_encounters_are_taken_back_at_once() -> None:
    """QR-CREATE-07: nobody waits for another's encounter."""
    target = Target({str(number): response(f"e{number}", f"n{number}") for number in range(4)})
    target.meet = threading.Barrier(4, timeout=60).wait
    assert {each.result.state for each in take_back_all(target, 4)} == {"undone"}


@pytest.mark.parametrize("failure", [NotSent("no connection"), Unknown("HTTP 500")], ids=["away", "in trouble"])
def test_once_the_target_cannot_be_used_nothing_more_is_asked_of_it(failure: Exception) -> None:
    target = Target({str(number): response(f"e{number}") for number in range(50)})
    target.failure = failure
    posted = take_back_all(target, 1)
    assert target.reads <= target.patience.attempts
    assert all("the target could not be used" in (each.unusable or "") for each in posted)
    states = Counter(each.result.state for each in posted)
    assert states == ({"planned": 50} if isinstance(failure, NotSent) else {"in_doubt": 1, "planned": 49})


@pytest.mark.parametrize("at", ["2026-01-01T10:00:00+02:00", "2026-01-01T08:00:00Z", "2026-01-01T08:00:00.25+00:00"])
def test_what_a_task_has_of_an_update_it_also_says(at):
    """CLI-CMD-17: whatever offset a time is written with."""
    ours = {"status": "requested", "for": {"reference": "Patient/p1"}, "authoredOn": at}
    there = ours | {"authoredOn": "2026-01-01T08:00:00+00:00", "description": "call"}
    assert has(there, ours)
    assert set((said(ours) or "").split()) < set((said(there) or "").split())

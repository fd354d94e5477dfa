"""Parallel changes at a target: one at a time for each note and encounter, and none once the target is unusable."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any, cast

import pytest

from pipelines.client.client import FhirClient
from pipelines.client.pace import RetryPauses
from pipelines.client.replies import NotDone, NotSent, Reply, RequestRefused, TooLarge, UnknownOutcome
from pipelines.ledger.lease import LeaseLost
from pipelines.loading.changes import Changes
from pipelines.loading.ownership import KnownResource, Owner
from pipelines.loading.row import Identity, PostResult, RowResult
from pipelines.loading.task_content import element_hashes, has

NOTE = "http://schemas.example.com/fhir/extensions/note-id"
HOLD_SECONDS = 0.02
Body = dict[str, Any]


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
        self.patience = RetryPauses(3, sleep=lambda _: None)
        self.lock, self.at_work, self.doubled = threading.Lock(), Counter[str](), 0
        self.reads = self.writes = self.bundles = 0
        self.of_bundles = list[Exception | None]()
        self.failure: Exception | None = None
        self.answers, self.sent, self.answered = list[Exception | None](), list[Body](), dict[str, str]()
        self.meet: Callable[[], object] = lambda: threading.Event().wait(HOLD_SECONDS)

    def read_as_of(self, _: str, resource_id: str) -> tuple[Body, None] | None:
        with self.lock:
            self.reads += 1
        if isinstance(self.failure, NotSent):
            raise self.failure
        body = self.bodies[resource_id]
        return (body, None) if body else None

    def update(self, _: str, resource_id: str, __: bytes, ___: str | None) -> Reply:
        name = self.names.get(resource_id, resource_id)
        with self.lock:
            self.writes += 1
            self.doubled += self.at_work[name]
            self.at_work[name] += 1
        self.meet()
        with self.lock:
            self.at_work[name] -= 1
        if failure := self.answers.pop(0) if self.answers else self.failure:
            raise failure
        return Reply(200)

    def exchange(self, entries: Sequence[Body], _: str) -> list[Body]:
        """One entry after another, as `bodies` and `answered` have them."""
        self.bundles += 1
        if failure := self.of_bundles.pop(0) if self.of_bundles else None:
            raise failure
        self.sent += entries
        names = [each["request"]["url"].rpartition("/")[2] for each in entries]
        if entries[0]["request"]["method"] == "GET":
            return [self.bodies[name] for name in names]
        return [{"response": {"status": self.answered.get(name, "200 OK")}} for name in names]


def changes_of(target: Target, confirm: Callable[[], None] = lambda: None) -> Changes:
    return Changes(cast(FhirClient, target), confirm, Owner(Identity("s", "QuestionnaireResponse"), False))


def take_back_all(target: Target, at_once: int) -> list[Any]:
    changes = changes_of(target)
    with ThreadPoolExecutor(at_once) as pool:
        return changes.take_back([KnownResource(each, "", ()) for each in target.bodies], None, pool)


def together(changes: Changes, made: Sequence[KnownResource]) -> set[str]:
    """Take back with two bundles; return the ids of what surely was taken back."""
    done = changes._together([(each, changes._taken_back) for each in made], "batch")
    return {made.resource_id for made, surely in done.items() if surely}


@pytest.mark.parametrize(
    "bodies",
    [
        [response("e1")],
        [response("e1", "n1"), response("e2", "n1")],
        [response(note="n1"), response("e1", note="n1")],
        [response()],
    ],
    ids="encounter both note new".split(),
)
def test_no_two_responses_of_one_note_or_encounter_are_taken_back_at_once(bodies: list[Body]) -> None:
    """QR-CREATE-16, LIMIT-04: a PUT names the encounter as well."""
    target = Target(dict(zip(map(str, range(6)), cycle(bodies))), dict.fromkeys(map(str, range(6)), "the same"))
    posted = take_back_all(target, 6)
    assert {each.result.state for each in posted} == {"undone"}
    assert (target.writes, target.doubled) == (6, 0)


PERMALINK = {"url": "http://schemas.example.com/fhir/extensions/questionnaire-permalink", "valueId": "n1"}


@pytest.mark.parametrize("note", [None, "n"])
def test_responses_of_different_encounters_are_taken_back_at_the_same_time(note: str | None) -> None:
    """QR-CREATE-07: no response waits for another encounter's."""
    bodies = [response(f"e{number}", note and f"{note}{number}") for number in range(4)]
    target = Target(
        {str(at): {**each, "extension": [PERMALINK, *each.get("extension", ())]} for at, each in enumerate(bodies)}
    )
    target.meet = threading.Barrier(4, timeout=60).wait
    assert {each.result.state for each in take_back_all(target, 4)} == {"undone"}


def refused(status: int) -> RequestRefused:
    return RequestRefused(Reply(status, outcome={"text": "no"}))


@pytest.mark.parametrize(
    ("answers", "state", "status", "writes"),
    [
        ([refused(422)], "refused", 422, 1),
        ([refused(412), None], "undone", 200, 2),
        ([refused(412)] * 9, "refused", 412, 4),
        ([TooLarge(Reply(413))], "refused", 413, 1),
        ([NotDone(Reply(503)), NotSent("no connection"), NotDone(Reply(429)), None], "undone", 200, 4),
        ([UnknownOutcome("HTTP 500"), None], "undone", 200, 2),
    ],
    ids="refused, changed meanwhile, changed each time, too large, later, unclear".split(", "),
)
def test_a_change_is_made_refused_or_tried_again(
    answers: list[Exception | None], state: str, status: int, writes: int
) -> None:
    """CLI-CMD-10: what may be done already is read first."""
    target = Target({"r": response("e1")})
    target.patience, target.answers = RetryPauses(7, sleep=lambda _: None), [*answers]
    [posted] = take_back_all(target, 1)
    assert (posted.result.state, posted.result.status, posted.unusable, target.writes) == (state, status, None, writes)


def test_a_write_that_is_of_no_use_a_second_time_ends_the_changes() -> None:
    """CLI-CMD-10: as where the secret of the client is wrong."""
    target = Target({"r": response()})
    target.answers = [NotSent("no token", final=True)]
    [posted] = take_back_all(target, 1)
    assert (posted.result, bool(posted.unusable), target.writes) == (RowResult("planned", "r"), True, 1)


def test_taking_back_a_missing_or_already_withdrawn_response_writes_nothing() -> None:
    target = Target({"gone": {}, "done": response() | {"status": "entered-in-error"}})
    gone, done = (each.result for each in take_back_all(target, 1))
    assert (gone.state, gone.status, done, target.writes) == ("refused", 404, RowResult("undone", "done", 200), 0)


def lost() -> None:
    raise LeaseLost("another loader has the target")


def test_a_loader_that_lost_its_lease_takes_nothing_back() -> None:
    """LEDGER-10: neither one by one nor in bundles."""
    target = Target({str(number): response() for number in range(3)})
    with ThreadPoolExecutor(1) as pool:
        posted = changes_of(target, lost).take_back([KnownResource(each, "", ()) for each in target.bodies], None, pool)
    assert posted == [PostResult(RowResult("planned", each), "another loader has the target") for each in target.bodies]
    assert (target.reads, target.writes) == (1, 0)
    target.bodies, held = {"r": read("r")}, iter([True])
    assert (
        together(changes_of(target, lambda: None if next(held, False) else lost()), [KnownResource("r", "", ())])
        == set()
    )
    assert [each["request"]["method"] for each in target.sent] == ["GET"]


def read(name: str, status: str = "200", etag: Any = 'W/"1"', **other: Any) -> Body:
    return {"response": {"status": status, "etag": etag}, "resource": response() | {"id": name, **other}}


def test_a_bundle_takes_back_only_unchanged_resources_and_reports_only_certain_ones() -> None:
    """CLI-CMD-10: a resource is written only if it has not changed since it was read."""
    done = read("done", status="200 OK") | {"resource": response() | {"id": "done", "status": "entered-in-error"}}
    left = {
        "gone": read("gone", "404"),
        "without version": read("without version", etag=None),
        "odd version": read("odd version", etag=7),
        "another's": read("another's", subject={"reference": "Patient/q"}),
    }
    target = Target({"r": read("r"), "done": done, **left})
    made = [KnownResource(name, "", ("p",)) for name in target.bodies]
    changes = changes_of(target)
    assert together(changes, made) == {"r", "done"}
    [written] = [each for each in target.sent if each["request"]["method"] == "PUT"]
    assert written["request"] == {"method": "PUT", "url": "QuestionnaireResponse/r", "ifMatch": 'W/"1"'}
    assert written["resource"] == target.bodies["r"]["resource"] | {"status": "entered-in-error"}
    target.answered["r"] = "412"
    assert together(changes, made) == {"done"}


def in_bundles(target: Target, *made: KnownResource, shown: bool = False) -> list[PostResult]:
    changes = Changes(cast(FhirClient, target), lambda: None, Owner(Identity("s", "QuestionnaireResponse"), shown))
    with ThreadPoolExecutor(1) as pool:
        return changes.take_back(made, "batch", pool)


def test_of_two_records_with_one_id_only_that_which_the_resource_is_of_is_taken_back() -> None:
    """LEDGER-08: a restored target gave the id again."""
    target = Target({"r": {**read("r", identifier={"system": "urn:chartferry:s:QuestionnaireResponse", "value": "b"})}})
    first, last = (
        each.result.state for each in in_bundles(target, *(KnownResource("r", value, ()) for value in "ab"), shown=True)
    )
    assert (first, last) == ("refused", "undone")


@pytest.mark.parametrize(
    ("failure", "state"),
    [(UnknownOutcome("HTTP 500"), "in_doubt"), (NotSent("no connection"), "planned"), (NotDone(Reply(429)), "planned")],
    ids="unclear, away, not done".split(", "),
)
def test_after_a_bundle_without_an_answer_what_it_wrote_is_in_doubt_if_the_target_goes_away(
    failure: Exception, state: str
) -> None:
    """LEDGER-01"""
    target = Target({"r": read("r"), "s": read("s", "404")})
    target.of_bundles, target.failure = [None, failure], NotSent("no connection")
    posted = in_bundles(target, *(KnownResource(name, "", ()) for name in "rs"))
    assert [each.result.state for each in posted] == [state, "planned"]


def test_bundles_wait_as_long_as_the_target_asks_and_are_sent_again() -> None:
    """One by one, all would go to a target that has too many requests."""
    target, waited = Target({"r": read("r")}), list[float]()
    target.patience = RetryPauses(3, sleep=waited.append)
    target.of_bundles = [NotDone(Reply(429, retry_after=7.0)), None] * 2
    [posted] = in_bundles(target, KnownResource("r", "", ()))
    assert (posted.result.state, target.bundles, target.writes, waited) == ("undone", 4, 0, [7.0, 7.0])


@pytest.mark.parametrize("failure", [NotSent("no connection"), UnknownOutcome("HTTP 500")], ids=["away", "in trouble"])
def test_once_the_target_cannot_be_used_nothing_more_is_asked_of_it(failure: Exception) -> None:
    target = Target({str(number): response(f"e{number}") for number in range(50)})
    target.failure = failure
    posted = take_back_all(target, 1)
    assert target.reads <= target.patience.attempts
    assert all("the target could not be used" in (each.unusable or "") for each in posted)
    states = Counter(each.result.state for each in posted)
    assert states == ({"planned": 50} if isinstance(failure, NotSent) else {"in_doubt": 1, "planned": 49})


@pytest.mark.parametrize("at", ["2026-01-01T10:00:00+02:00", "2026-01-01T08:00:00Z", "2026-01-01T08:00:00.25+00:00"])
def test_a_task_that_has_an_update_also_has_the_hashes_of_its_elements(at):
    """CLI-CMD-17: whatever offset a time is written with."""
    ours = {"status": "requested", "for": {"reference": "Patient/p1"}, "authoredOn": at}
    there = ours | {"authoredOn": "2026-01-01T08:00:00+00:00", "description": "call"}
    assert has(there, ours)
    assert set((element_hashes(ours) or "").split()) < set((element_hashes(there) or "").split())

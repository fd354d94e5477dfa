"""A conditional create sees what all entries before it did to identifiers, whether or not they share its commit."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from tests.conftest import BOTH, Running
from tests.support.bodies import entry, send, task

STORES = BOTH
VALUES = tuple("abcdefgh")


def identified(*values: str) -> dict[str, Any]:
    """Return a task with these identifiers; without the element if there are none."""
    body = task(1, identifier=[{"system": "urn:x", "value": value} for value in values])
    return body if values else {name: part for name, part in body.items() if name != "identifier"}


def conditional(value: str, *others: str) -> dict[str, Any]:
    return entry(identified(value, *others), f"identifier=urn:x|{value}")


def changed(task_id: str, *values: str) -> dict[str, Any]:
    return {"resource": identified(*values), "request": {"method": "PUT", "url": f"Task/{task_id}"}}


def made(service: Running, *values: str) -> str:
    """The id of a new task with these identifiers."""
    (answer,) = send(service.client, [entry(identified(*values))])
    return str(answer["location"].rpartition("/")[2])


@dataclass
class Model:
    """A model of the identifiers of all tasks, which predicts the outcome of an entry."""

    service: Running
    random: Random
    tasks: dict[str, set[str]] = field(default_factory=dict)

    def entry(self) -> tuple[dict[str, Any], Any]:
        """The next entry, and a function of its answer that says what is wrong with it."""
        values = self.random.sample(VALUES, self.random.choice((0, 1, 1, 2)))
        if self.random.random() < 0.4 and self.tasks:
            one = self.random.choice(sorted(self.tasks))
            return changed(one, *values), lambda answer: self.updated(one, set(values), answer)
        if values and self.random.random() < 0.8:
            return conditional(*values), lambda answer: self.asked(values[0], set(values), answer)
        return entry(identified(*values)), lambda answer: self.created(set(values), answer)

    def updated(self, task_id: str, values: set[str], answer: dict[str, Any]) -> None:
        assert answer["status"] == "200"
        self.tasks[task_id] = values or self.tasks[task_id]

    def created(self, values: set[str], answer: dict[str, Any]) -> None:
        assert answer["status"] == "201"
        self.tasks[answer["location"].rpartition("/")[2]] = values

    def asked(self, value: str, values: set[str], answer: dict[str, Any]) -> None:
        having = [one for one, others in self.tasks.items() if value in others]
        if not having:
            self.created(values, answer)
        elif len(having) == 1:
            assert (answer["status"], answer["location"]) == ("200", f"{self.service.url}/Task/{having[0]}")
        else:
            assert answer["status"] == "412"


@pytest.mark.on_both
@pytest.mark.parametrize("seed", range(3))
def test_a_condition_sees_every_change_before_it(fresh_service: Running, seed: int) -> None:
    """EXTRA-COND-14, EXTRA-COND-06, EXTRA-COND-11: creates and updates in batches, against a model of them."""
    model = Model(fresh_service, Random(seed))
    for _ in range(30):
        drawn = [model.entry() for _ in range(model.random.randint(1, 12))]
        answers = send(fresh_service.client, [one for one, _ in drawn])
        for (_, check), answer in zip(drawn, answers, strict=True):
            check(answer)
    assert len(model.tasks) > 10


def test_an_identifier_that_an_update_took_away_is_free(fresh_service: Running) -> None:
    """EXTRA-COND-14: in the same commit, and what it names is not the task that had it."""
    old = made(fresh_service, "a")
    answers = send(fresh_service.client, [changed(old, "b"), conditional("a"), conditional("b")])
    assert [answer["status"] for answer in answers] == ["200", "201", "200"]
    assert answers[2]["location"] == f"{fresh_service.url}/Task/{old}"


def test_an_identifier_that_an_update_gave_is_taken(fresh_service: Running) -> None:
    """EXTRA-COND-14: no second record under one key."""
    old = made(fresh_service, "a")
    (_, answer) = send(fresh_service.client, [changed(old, "b", "c"), conditional("c")])
    assert (answer["status"], answer["location"]) == ("200", f"{fresh_service.url}/Task/{old}")


@pytest.mark.on_both
def test_an_answer_that_is_crossed_out_keeps_its_one_identifier(fresh_service: Running) -> None:
    """QR-UPDATE-06, EXTRA-COND-14: an answer has one, which is no list."""
    answer = {
        "resourceType": "QuestionnaireResponse",
        "identifier": {"system": "urn:x", "value": "a"},
        "questionnaire": f"{fresh_service.service.site.base_url}/Questionnaire/q-intake",
        "status": "completed",
        "subject": {"reference": "Patient/p1"},
    }
    (first,) = send(fresh_service.client, [entry(answer, "identifier=urn:x|a")])
    name = "/".join(first["location"].rsplit("/", 2)[-2:])
    wrong = {"resourceType": "QuestionnaireResponse", "id": name.partition("/")[2], "status": "entered-in-error"}
    crossed = {"resource": wrong, "request": {"method": "PUT", "url": name}}
    answers = send(fresh_service.client, [crossed, entry(answer, "identifier=urn:x|a")])
    assert [each["status"] for each in (first, *answers)] == ["201", "200", "200"]
    assert answers[1]["location"] == first["location"]


def test_an_identifier_that_a_record_has_twice_is_one_match(fresh_service: Running) -> None:
    """EXTRA-COND-02: in the commit that makes it, and after."""
    one = conditional("a", "a")
    for answers in (send(fresh_service.client, [one, one]), send(fresh_service.client, [one])):
        assert {answer["status"] for answer in answers} <= {"200", "201"}


@pytest.mark.parametrize("second", ["identifier=urn:x|a", "identifier=urn:x|b", ""])
def test_two_conditions_are_refused(fresh_service: Running, second: str) -> None:
    """EXTRA-COND-13: also two alike; nothing is made."""
    headers = [("if-none-exist", "identifier=urn:x|a"), ("if-none-exist", second)]
    answer = fresh_service.client.post("/Task", json=identified("a", "b"), headers=headers)
    assert answer.status_code == 400
    assert fresh_service.client.get("/Task?_count=0").json()["total"] == 0


def test_a_precondition_that_fails_says_which(service: Running) -> None:
    """ERR-412-01: the text is that of the table, whatever the condition was."""
    path = f"/Task/{made(service, 'said')}"
    for _ in range(2):
        made(service, "said twice")
    headers = ({"if-match": 'W/"7"'}, {"if-none-match": 'W/"1"'})
    answers = [service.client.put(path, json=task(1), headers=each) for each in headers]
    answers.append(
        service.client.post(
            "/Task", json=identified("said twice"), headers={"if-none-exist": "identifier=urn:x|said twice"}
        )
    )
    assert [(answer.status_code, answer.json()["issue"][0]["diagnostics"]) for answer in answers] == [
        (412, "the resource has version 1, which If-Match does not name: read it again"),
        (412, "the resource has version 1, which If-None-Match excludes"),
        (412, "2 resources have the identifier that If-None-Exist names: none was created"),
    ]

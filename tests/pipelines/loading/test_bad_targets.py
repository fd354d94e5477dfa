"""Targets of other makes that claim too much, fail during a load, or change resources: no record is doubled, and none
is lost unseen.
"""

import json
from collections import Counter
from contextlib import closing
from dataclasses import replace

import pytest

from pipelines.client.client import ELSEWHERE
from pipelines.client.steps import LOOK_UP, SINGLE
from pipelines.home.progress import Progress
from pipelines.loading.stage import load
from tests.support.exports import TASKS, payments, put, tasks
from tests.support.fake_answers import Said, outcome
from tests.support.fake_target import FakeTarget, serving
from tests.support.work import TARGET, Work, payment, work_at

HTML = b"<html>Bad Gateway</html>"
TRANSACTION = ["transaction", "conditional", "identifier"]
WAYS = {"transaction": TRANSACTION, "conditional": ["conditional", "identifier"]}
CONDITIONAL = pytest.mark.parametrize("at", [{"says": says} for says in WAYS.values()], ids=list(WAYS), indirect=True)
IN_TRANSACTIONS = pytest.mark.parametrize("at", [{"says": TRANSACTION}], ids=["transaction"], indirect=True)


@pytest.fixture
def at(tmp_path, request):
    """Work at a target that is not the bundled service, with the capabilities that the test asks for."""
    with work_at(tmp_path, FakeTarget(**request.param)) as work:
        yield work


@pytest.fixture
def other(target):
    """The target of commands, which is not the bundled service."""
    target.additions, target.promised = False, TRANSACTION
    return target


class Saying(Progress):
    """The lines that were printed."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def keys(work):
    return sorted(body["identifier"][0]["value"] for body in work.target.of("PaymentNotice"))


def loaded_once(work, rows, loaded):
    """Assert that every row is at the target once, and that the ledger agrees."""
    assert loaded.counts["created"] + loaded.counts["adopted"] == len(rows)
    assert keys(work) == sorted(row[2] for row in rows)
    work.agree()


# -- promises


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (
            {"says": TRANSACTION, "does_not": ["transaction"]},
            "the target says that it takes a transaction, but refuses it, so rows are sent one by one",
        ),
        (
            {"says": TRANSACTION, "does_not": ["conditional"]},
            "the target says conditional create, but ignores the condition, so rows are looked up before a repeat",
        ),
    ],
    ids=["transaction", "condition"],
    indirect=["at"],
)
def test_a_false_promise_of_the_target_is_detected_by_the_first_rows_and_reported_once(at, words):
    """TARGET-02"""
    rows = [payment(number, patient=f"p{number % 5}") for number in range(30)]
    progress = Saying()
    with at.ledger.lease(TARGET) as lease:
        loaded = load(replace(at.load(at.batch(rows), lease), progress=progress))
    loaded_once(at, rows, loaded)
    assert progress.said == [words]


@pytest.mark.alike
@pytest.mark.parametrize(
    "at", [{"says": says, "does_not": ["conditional"]} for says in WAYS.values()], ids=list(WAYS), indirect=True
)
def test_a_condition_is_kept_only_if_the_answer_names_what_it_found(at, monkeypatch):
    """TARGET-02: some targets answer every create with 200, as if the resource had existed."""
    create = at.target.create
    monkeypatch.setattr(at.target, "create", lambda *given: (200, *create(*given)[1:]))
    rows = [payment(number, patient=f"p{number % 5}") for number in range(30)]
    progress = Saying()
    with at.ledger.lease(TARGET) as lease:
        loaded = load(replace(at.load(at.batch(rows), lease), progress=progress))
    loaded_once(at, rows, loaded)
    assert progress.said == [
        "the target says conditional create, but ignores the condition, so rows are looked up before a repeat"
    ]


def test_the_fallback_of_conditional_creates_is_the_look_up():
    """TARGET-02"""
    assert (SINGLE.below.name, LOOK_UP.below.name) == ("look-up", "look-up")


@pytest.mark.alike
@CONDITIONAL
def test_a_resource_that_was_there_is_the_rows_only_if_it_has_its_identifier(at, monkeypatch):
    """TARGET-02, LEDGER-01: some targets merge equal resources: two equal payments would become one."""
    create = at.target.create

    def without_doubles(body, condition):
        alike = (each for each in at.target.of("PaymentNotice") if each["amount"] == body["amount"])
        there = next(alike, None)
        return (200, f"PaymentNotice/{there['id']}", None) if there else create(body, condition)

    monkeypatch.setattr(at.target, "create", without_doubles)
    rows = [payment(number, patient=f"p{number}", cents=100 + number) for number in range(20)]
    rows.append(payment(20, patient="p4", cents=104))
    assert at.run(rows).counts == {"created": 20, "refused": 1}
    assert at.states()["k20"] == "refused"
    [reason] = at.table("reject_reason")
    assert reason["message"] == "the target answered with a resource that does not have this key"
    at.agree()


@pytest.mark.alike
@CONDITIONAL
@pytest.mark.parametrize("cents", [100, 200], ids=["equal", "other"])
def test_keys_that_differ_in_case_alone_are_one_to_some_targets(at, monkeypatch, cents):
    """TARGET-02, LEDGER-01: LinuxForHealth ignores case in identifiers. The second row is not the first's resource."""
    create = at.target.create

    def without_case(body, condition):
        alike = (each for each in at.target.stored.values() if keys_of(each) == keys_of(body))
        there = next(alike, None)
        return (200, f"PaymentNotice/{there['id']}", None) if there else create(body, condition)

    def keys_of(body):
        return body["identifier"][0]["value"].casefold()

    monkeypatch.setattr(at.target, "create", without_case)
    rows = [payment(number, patient=f"p{number}") for number in range(20)]
    rows.append(payment(20, patient="p4", key="K4", cents=cents))
    assert at.run(rows).counts == {"created": 20, "refused": 1}
    assert at.states()["K4"] == "refused"
    [reason] = at.table("reject_reason")
    assert reason["message"] == (
        "the target has a resource with a key that differs from this one only in case, blanks or accents"
    )
    at.agree()


@pytest.mark.parametrize("says", [["batch", *TRANSACTION[1:]], *WAYS.values()], ids=["batch", *WAYS])
def test_of_several_resources_that_match_a_condition_the_one_with_the_exact_key_is_adopted(tmp_path, monkeypatch, says):
    """TARGET-02, LEDGER-15: if the target ignores case, and two homes sent two such keys."""
    others = [payment(number, patient=f"p{number}", cents=100 + number) for number in range(25)]
    rows = [payment(30, key="a"), payment(31, cents=7, key="A"), payment(32, key="b"), payment(33, key="c")]
    with serving(FakeTarget(says=says)) as target:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        with closing(Work(tmp_path / "one", target)) as one:
            one.run([*others, *rows[:3]])
        of_b = next(body for body in target.of("PaymentNotice") if body["identifier"][0]["value"] == "b")
        target.stored["double"] = of_b | {"id": "double"}
        create = target.create

        def without_case(body, condition):
            key = body["identifier"][0]["value"].casefold()
            there = [each for each in target.of("PaymentNotice") if each["identifier"][0]["value"].casefold() == key]
            return (412, None, outcome("multiple-matches")) if len(there) > 1 else create(body, condition)

        monkeypatch.setattr(target, "create", without_case)
        with closing(Work(tmp_path / "two", target)) as two:
            assert two.run([*others, *rows]).counts == {"adopted": 27, "created": 1, "refused": 1}
            assert two.states()["b"] == "refused"
            assert [each["message"] for each in two.table("reject_reason")] == [
                "the target has several resources with this key"
            ]


# -- failures


@IN_TRANSACTIONS
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Said(500, outcome("exception")), id="failed"),
        pytest.param(Said(409, outcome("conflict")), id="in conflict", marks=pytest.mark.long),
    ],
)
def test_a_transaction_that_fails_once_in_the_middle_goes_again_in_halves(at, fault):
    """TARGET-02, TARGET-03: without a pause, since the target says that the transaction failed as a whole."""
    at.target.faults = ["", "", "", "", fault]
    rows = [payment(number, patient=f"p{number}") for number in range(1200)]
    loaded_once(at, rows, at.run(rows))


@pytest.mark.parametrize("at", [{"says": ["batch", "conditional", "identifier"]}], indirect=True)
@pytest.mark.parametrize("fault", ["unplaced", "missing_entries"])
def test_an_entry_without_an_outcome_is_looked_up_before_it_goes_again(at, fault):
    """TARGET-03: otherwise it could be sent four times while the target's index lags behind."""
    at.target.faults = ["", "", "", fault]
    rows = [payment(number, patient=f"p{number % 5}") for number in range(40)]
    loaded = at.run(rows)
    assert [sent for sent in Counter(at.target.conditions).values() if sent > 1] in ([], [2]), "one proves conditions"
    if loaded.counts["in_doubt"]:
        at.run(rows, settling=0)
    assert keys(at) == sorted(row[2] for row in rows)
    at.agree()


@pytest.mark.alike
@CONDITIONAL
@pytest.mark.parametrize("status", [500, 502])
@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
def test_a_gateways_page_in_place_of_an_answer_leaves_rows_to_be_looked_up(at, status, done):
    """TARGET-03: its rows are found in the same run, or sent again after the settling time. No person is asked."""
    at.target.faults = ["", "", "", Said(status, HTML, done=done)]
    rows = [payment(number, patient=f"p{number % 5}") for number in range(40)]
    loaded = at.run(rows)
    if not done:
        assert loaded.counts["in_doubt"] > 0
        assert set(at.states().values()) <= {"created", "adopted", "in_doubt", "planned"}
        at.run(rows, settling=0)
    assert keys(at) == sorted(row[2] for row in rows)
    at.agree()


@CONDITIONAL
def test_a_row_that_is_too_large_alone_is_a_reject_and_the_rest_is_in(at):
    """TARGET-02: a proxy answers with a web page that does not name the row."""
    rows = [payment(number, patient=f"p{number}") for number in range(60)]
    *about, body = rows[41]
    rows[41] = (*about, json.dumps(json.loads(body) | {"extension": [{"url": "x" * 9000}]}))
    at.target.heaviest = at.target.heaviest_alone = 8000
    loaded = at.run(rows)
    assert loaded.counts == {"created": 59, "refused": 1}
    [reason] = at.table("reject_reason")
    assert (reason["rule_id"], reason["message"]) == ("HTTP-413", "the target refused it (HTTP 413)")


@pytest.mark.alike
@pytest.mark.parametrize("at", [{"says": says} for says in ([], ["identifier"], *WAYS.values())], indirect=True)
@pytest.mark.parametrize("resource", ["tasks", "payments"])
def test_a_failed_create_is_sent_again_but_not_a_payment_without_a_condition(at, resource):
    """TARGET-03, LEDGER-05: the target itself answers 500, and the look-up after the settling time finds nothing."""
    at.target.fails = lambda body: True
    make = task if resource == "tasks" else payment
    at.follow(resource)
    rows = [make(1)]
    assert at.run(rows).counts == {"in_doubt": 1}
    at.target.fails = lambda body: False
    assert at.run(rows).counts == {"in_doubt": 1}, "not before the settling time has passed"
    waits = resource == "payments" and "conditional" not in at.target.says
    assert at.run(rows, settling=0).counts == ({"in_doubt": 1} if waits else {"created": 1})
    assert len(at.target.stored) == (0 if waits else 1)


def task(number):
    about = {"resourceType": "Task", "status": "requested", "intent": "unknown", "description": f"Call {number}"}
    body = {**about, "for": {"reference": "Patient/p1"}, "requester": {"reference": "Practitioner/a"}}
    return (number + 1, 1, f"k{number}", "p1", number, f"hash {number}", "p1", None, None, json.dumps(body))


@pytest.mark.alike
@pytest.mark.parametrize("says", WAYS.values(), ids=list(WAYS))
def test_resources_that_a_network_doubled_are_named_one_by_one(home, other, asked, says):
    """TARGET-03, CLI-CMD-17: two simultaneous conditional creates may both create. All other records are there once."""
    other.promised, other.faults = says, ["", "", "", "at_once"]
    payments(home, *((f"k{n}", f"p{n}", "1.00") for n in range(9)))
    assert asked("import")["totals"]["created"] == 9
    there = Counter(body["identifier"][0]["value"] for body in other.of("PaymentNotice"))
    doubled = sorted(int(key[1:]) + 2 for key, number in there.items() if number == 2)
    assert (len(there), there.total()) == (9, 9 + len(doubled))
    assert doubled
    found = asked("verify")["differences"]
    assert sorted((each["kind"], int(each["row"].rpartition(":")[2])) for each in found) == [
        ("double", line) for line in doubled
    ]


@pytest.mark.alike
@pytest.mark.parametrize("at", [{"says": says} for says in ([], ["identifier"], *WAYS.values())], indirect=True)
def test_a_row_whose_answer_names_something_of_another_type_is_looked_up(at, monkeypatch):
    """TARGET-03, LEDGER-01: otherwise it would seem lost, and a person would send it again."""
    create, odd = at.target.create, ["", "", "", "Binary"]

    def elsewhere(*given):
        status, location, problem = create(*given)
        instead = odd.pop(0) if odd else ""
        return status, location.replace("PaymentNotice", instead) if instead else location, problem

    monkeypatch.setattr(at.target, "create", elsewhere)
    rows = [payment(number, patient=f"p{number}") for number in range(9)]
    loaded = at.run(rows)
    assert loaded.counts == {"created": 8, "adopted": 1}
    at.agree()


# -- searches


@pytest.mark.alike
@pytest.mark.parametrize("at", [{"says": says} for says in (["identifier"], *WAYS.values())], indirect=True)
@pytest.mark.parametrize("resource", ["tasks", "payments"])
def test_a_resource_that_a_search_shows_late_is_waited_for_and_never_doubled(at, resource):
    """LEDGER-01, TARGET-03"""
    at.follow(resource)
    make = task if resource == "tasks" else payment
    asked_before = 2 if at.target.says == ["identifier"] else 0
    at.target.faults, at.target.found_after = ["", "", "", "lost_after"], 3 + asked_before
    rows = [make(number) for number in range(9)]
    at.run(rows)
    assert not at.run(rows).counts["in_doubt"], "it is found among what its patient has"
    assert sorted(body["identifier"][0]["value"] for body in at.target.stored.values()) == [f"k{n}" for n in range(9)]


@pytest.mark.parametrize("at", [{"says": []}], ids=["bare"], indirect=True)
def test_without_a_total_a_lost_payment_is_found_all_the_same(at):
    """LEDGER-06"""
    at.target.counts, at.target.most_a_page, at.target.faults = False, 2, ["", "", "", "lost_after"]
    rows = [payment(number, cents=100 + number) for number in range(7)]
    assert at.run(rows).counts == {"created": 6, "adopted": 1}
    at.agree()


@pytest.mark.long
def test_without_a_total_verify_reads_page_by_page(home, other, asked):
    """CLI-CMD-17"""
    payments(home, *((f"k{n}", "p1", f"{n + 1}.00") for n in range(7)))
    asked("import")
    other.counts, other.most_a_page = False, 2
    found = asked("verify")
    assert (found["exit_code"], found["rows"], found["target_cents"]) == (0, {"PaymentNotice": 7}, 2800)
    gone = next(iter(other.of("PaymentNotice")))["id"]
    del other.stored[gone]
    assert [each["resource_id"] for each in asked("verify")["differences"]] == [gone]


@pytest.mark.alike
@pytest.mark.parametrize(
    ("links", "why"),
    [
        ("http://127.0.0.1:1", ELSEWHERE),
        ("{url}@127.0.0.1:1", ELSEWHERE),
        ("{url}/behind/the/proxy", "HTTP 404"),
    ],
)
def test_next_links_to_other_hosts_are_reported_in_one_sentence_and_give_no_partial_answer(
    home, other, asked, chartferry, links, why
):
    """CLI-CMD-17: the token is not sent there, and a single page is not taken for the whole."""
    payments(home, *((f"k{n}", "p1", f"{n + 1}.00") for n in range(5)))
    asked("import")
    other.most_a_page, other.links, other.counts = 2, links.format(url=other.url), False
    code, out, err = chartferry("verify")
    assert (code, out) == (6, "")
    assert err.splitlines()[-1] == f"chartferry: PaymentNotice could not be read from the target ({why})"


def test_absolute_links_to_the_target_are_followed(home, other, asked):
    """CLI-CMD-17"""
    payments(home, *((f"k{n}", "p1", f"{n + 1}.00") for n in range(5)))
    asked("import")
    other.most_a_page, other.links = 2, other.url
    assert asked("verify")["rows"] == {"PaymentNotice": 5}


# -- resources that the target changes


def test_elements_that_the_target_takes_and_drops_are_named_one_by_one(home, other, asked, chartferry):
    """CLI-CMD-17"""
    tasks(home, "t1", "t2")
    payments(home, ("k1", "p1", "1.00"))
    other.drops = {"requester", "payment", "intent"}
    asked("import")
    found = asked("verify")
    assert (found["exit_code"], found["differences"]) == (3, [])
    dropped = [(each["element"], each["sent"]) for each in found["dropped"]]
    assert dropped == [("PaymentNotice.payment", 1), ("Task.intent", 2), ("Task.requester", 2)]
    out = chartferry("verify")[1]
    assert "Task.intent: sent, and not there in any of 2 records looked at: does the target keep it?" in out
    assert "ledger and target agree" not in out


def test_a_target_that_puts_its_own_time_in_the_place_of_a_records_is_named(home, other, asked):
    """CLI-CMD-17: the day on which a form was filled in is part of its content."""
    put(
        home, "tasks.csv", f"{TASKS.strip()},authored\nt1,p1,a,requested,a,2024-01-01\nt2,p1,b,requested,a,2024-02-01\n"
    )
    asked("import")
    assert asked("verify")["dropped"] == []
    first, second = other.of("Task")
    first["authoredOn"] = "2026-11-29T10:00:00Z"
    assert asked("verify")["dropped"] == [], "the other one has its own"
    second["authoredOn"] = "2026-11-29T10:00:01Z"
    found = asked("verify")
    assert (found["exit_code"], found["dropped"]) == (3, [{"element": "Task.authoredOn (its value)", "sent": 2}])


def test_an_element_that_was_changed_in_the_chart_is_not_called_dropped(home, other, asked):
    """CLI-CMD-17"""
    tasks(home, "t1", "t2")
    asked("import")
    first, second = other.of("Task")
    del first["requester"]
    assert asked("verify")["dropped"] == [], "the other one has it"
    first["description"] = second["description"] = "changed"
    del second["requester"]
    assert asked("verify")["dropped"] == [], "both were changed by somebody"


def test_resources_that_the_target_has_under_other_ids_are_named_and_found_again_without_a_double(home, other, asked):
    """CLI-CMD-17, LEDGER-01: for example, after a move of the server."""
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"))
    [batch] = [each["batch_id"] for each in asked("import")["batches"]]
    for name in list(other.stored):
        other.stored[f"new-{name}"] = other.stored.pop(name) | {"id": f"new-{name}"}
    other.identified = {key: (kind, f"new-{name}") for key, (kind, name) in other.identified.items()}
    assert asked("import")["totals"].get("created", 0) == 0
    kinds = sorted(each["kind"] for each in asked("verify")["differences"])
    assert kinds == ["double", "double", "gone", "gone"]
    asked("import", "--again", batch)
    assert asked("verify")["differences"] == []
    assert len(other.of("PaymentNotice")) == 2

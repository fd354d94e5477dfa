"""`check` finds each kind of damage that is planted in a store, and nothing in a store that is well."""

import json
import shutil

import duckdb
import httpx
import psycopg
import pytest

from fhir_service.admin import body_checks, checks
from fhir_service.admin.findings import Finding
from fhir_service.interface.site import Site
from fhir_service.store.store import Store
from tests.conftest import BOTH, running

STORES = BOTH
pytestmark = pytest.mark.crossed


def check(path):
    store = Store.open(str(path))
    try:
        return checks.check_store(store, Site())
    finally:
        store.close()


def damaged(store, *statements):
    """Plants damage, in one transaction."""
    if "://" in store:
        with psycopg.connect(store.replace("+psycopg", "")) as connection:
            for statement in statements:
                connection.execute(statement)
        return
    with duckdb.connect(store) as connection:
        for statement in statements:
            connection.execute(statement)


def payment(patient, amount, claim=None):
    body: dict = {"resourceType": "PaymentNotice", "status": "active", "request": {"reference": f"Patient/{patient}"}}
    body |= {"created": "2026-01-02", "payment": {}, "recipient": {}, "amount": {"value": amount, "currency": "USD"}}
    if claim:
        part = {"url": "claim", "valueReference": {"reference": f"Claim/{claim}"}}
        body["extension"] = [{"url": "http://schemas.example.com/fhir/copayment-claims", "extension": [part]}]
    return body


def task(description, **more):
    body: dict = {"resourceType": "Task", "status": "requested", "intent": "unknown", "description": description}
    body |= {"requester": {"reference": "Practitioner/dr1"}, "for": {"reference": "Patient/p1"}}
    body |= {"identifier": [{"system": "urn:test", "value": description}]}
    body["input"] = [{"type": {"text": "label"}, "valueString": label} for label in ("urgent", "phone")]
    return body | {"restriction": {"period": {"end": "2026-02-03"}}} | more


def response(site, **more):
    item = {"linkId": "note", "answer": [{"valueString": "none"}]}
    body: dict = {
        "resourceType": "QuestionnaireResponse",
        "status": "completed",
        "subject": {"reference": "Patient/p1"},
    }
    return body | {"questionnaire": f"{site.base_url}/Questionnaire/q-old", "item": [item]} | more


def fill(found):
    """Payments that leave money over and are applied across claims, tasks in two versions, a response in a note."""

    def post(body):
        answer = found.client.post(f"/{body['resourceType']}", json=body)
        assert answer.status_code == 201, answer.text
        return answer.headers["location"]

    for body in (
        payment("p1", 30),
        payment("p1", 5.5, "c2"),
        payment("p1", 40),
        payment("p3", 7, "c5"),
        payment("p6", 9, "c4"),
    ):
        post(body)
    kept = post(task("first"))
    post(task("second"))
    assert found.client.put(httpx.URL(kept).path, json=task("first, changed")).status_code == 200
    post(answers(found, encounter={"reference": "Encounter/e1"}))
    post(answers(found))


def answers(found, **more):
    """A response to the first questionnaire that takes a free text."""
    for entry in found.client.get("/Questionnaire?status=active").json()["entry"]:
        for item in entry["resource"]["item"]:
            if item["type"] == "text":
                body = response(found.service.site, **more)
                body["questionnaire"] = f"{found.service.site.base_url}/Questionnaire/{entry['resource']['id']}"
                body["item"][0]["linkId"] = item["linkId"]
                return body
    raise AssertionError("the world has no free text question")


@pytest.fixture(scope="module")
def well(tmp_path_factory, database):
    """A store with something of everything in it."""
    folder = tmp_path_factory.mktemp("well")
    with database(folder) as store:
        with running(folder, store=store) as found:
            fill(found)
            client = found.service.auth.add_client("other")
            found.service.auth.token({"grant_type": "client_credentials", **client})
        yield store


@pytest.fixture
def store(well, tmp_path, request):
    """A copy of it."""
    if "://" in well:
        with request.getfixturevalue("postgres").database(like=well) as copy:
            yield copy
    else:
        yield str(shutil.copy(well, tmp_path / "s.duckdb"))


def test_a_store_that_is_well_has_no_findings(store):
    """CLI-SVC-10, PAY-CREATE-12"""
    assert check(store) == []


DAMAGE = {
    "an account that charges too much": (
        "UPDATE account SET charged = charged + 1 WHERE patient = 'p1'",
        "balance",
        "Patient/p1",
    ),
    "an account that forgets a payment": (
        "UPDATE account SET paid = paid - 1 WHERE patient = 'p1'",
        "balance",
        "Patient/p1",
    ),
    "an account that is gone": ("DELETE FROM account WHERE patient = 'p2'", "balance", "Patient/p2"),
    "an account of nobody": ("INSERT INTO account VALUES ('ghost', 5, 0)", "balance", "Patient/ghost"),
    "a payment that is gone": ("DELETE FROM payment_notice WHERE request = 'p3'", "balance", "Patient/p3"),
    "a charge that is gone": ("DELETE FROM charge WHERE claim = 'c3'", "charge", "Claim/c3"),
    "a charge of another amount": ("UPDATE charge SET cents = cents + 1 WHERE claim = 'c3'", "charge", "Claim/c3"),
    "a charge of another day": ("UPDATE charge SET created = '2020-01-01' WHERE claim = 'c3'", "charge", "Claim/c3"),
    "a charge of another patient": ("UPDATE charge SET patient = 'p5' WHERE claim = 'c3'", "charge", "Claim/c3"),
    "a charge without a claim": ("INSERT INTO charge VALUES ('c99', 'p1', '2024-01-01', 0, 0)", "charge", "Claim/c99"),
    "a charge overpaid": ("UPDATE charge SET paid = cents + 1 WHERE claim = 'c3'", "balance", "Claim/c3"),
    "a charge said to be paid": ("UPDATE charge SET paid = 1 WHERE claim = 'c3'", "allocation", "Claim/c3"),
    "an allocation that is gone": ("DELETE FROM allocation WHERE claim = 'c1'", "allocation", "Claim/c1"),
    "an allocation to nothing": (
        "INSERT INTO allocation SELECT payment, 'c99', 1 FROM allocation LIMIT 1",
        "allocation",
        "Claim/c99",
    ),
    "an allocation of nothing": (
        "INSERT INTO allocation VALUES ('ghost', 'c1', 1)",
        "allocation",
        "PaymentNotice/ghost",
    ),
    "an allocation of another patient": (
        "UPDATE allocation SET claim = 'c3' WHERE claim = 'c1'",
        "allocation",
        "PaymentNotice/",
    ),
    "a payment in other cents": (
        "UPDATE payment_notice SET cents = cents + 1 WHERE request = 'p1'",
        "index",
        "PaymentNotice/",
    ),
    "a payment of another patient": (
        "UPDATE payment_notice SET request = 'p7' WHERE request = 'p1'",
        "index",
        "PaymentNotice/",
    ),
    "a payment to another claim": (
        "UPDATE payment_notice SET claim = 'c1' WHERE claim = 'c2'",
        "index",
        "PaymentNotice/",
    ),
    "a column that says something else": ("UPDATE task SET status = 'completed'", "index", "Task/"),
    "a date that says something else": ("UPDATE task SET due_end = due_end + INTERVAL '1 day'", "index", "Task/"),
    "a column that is empty": (
        "UPDATE diagnostic_report SET patient = NULL WHERE id = 'r1'",
        "index",
        "DiagnosticReport/r1",
    ),
    "a label that is gone": ("DELETE FROM task_label WHERE code = 'urgent'", "index", "Task/"),
    "a label twice": ("INSERT INTO task_label SELECT * FROM task_label", "index", "Task/"),
    "a digest that is not the identifier's": ("UPDATE task_identifier SET digest = 0", "index", "Task/"),
    "an identifier of another system": ("UPDATE task_identifier SET system = 'urn:other'", "index", "Task/"),
    "a code of no report": (
        "INSERT INTO diagnostic_report_code VALUES (987654, 's', 'c')",
        "index",
        "diagnostic_report_code 987654",
    ),
    "a body that is no JSON": ("UPDATE task SET body = substr(body, 2)", "body", "Task/"),
    "a body of another resource": (
        "UPDATE diagnostic_report SET body = replace(body, '\"r1\"', '\"r0\"')",
        "body",
        "DiagnosticReport/r1",
    ),
    "a body without its elements": (
        'UPDATE task SET body = \'{"resourceType":"Task","id":"\' || id || \'"}\'',
        "body",
        "Task/",
    ),
    "a record that is no JSON": ("UPDATE record SET body = '{' WHERE reference = 'Group/g1'", "body", "Group/g1"),
    "a record of another patient": (
        "UPDATE record SET patient = 'p5' WHERE reference = 'Claim/c3'",
        "index",
        "Claim/c3",
    ),
    "a patient who is gone": ("DELETE FROM record WHERE reference = 'Patient/p2'", "reference", "Claim/c3"),
    "a practitioner who is gone": ("DELETE FROM record WHERE reference = 'Practitioner/dr1'", "reference", "Task/"),
    "an encounter that is gone": (
        "DELETE FROM record WHERE reference = 'Encounter/e1'",
        "reference",
        "QuestionnaireResponse/",
    ),
    "a questionnaire that is gone": ("DELETE FROM questionnaire", "questionnaire", "QuestionnaireResponse/"),
    "two active questionnaires of a name": (
        "UPDATE questionnaire SET status = 'active', name = 'n'",
        "questionnaire",
        "Questionnaire/",
    ),
    "a second note of an encounter": (
        "INSERT INTO note VALUES ('n99', 'p1', 'e1', 'open', NULL)",
        "note",
        "Encounter/e1",
    ),
    "an encounter without a note": ("DELETE FROM note WHERE encounter = 'e2'", "note", "Encounter/e2"),
    "a note of another patient": ("UPDATE note SET patient = 'p2' WHERE encounter = 'e1'", "note", "Encounter/e1"),
    "a note of no encounter": ("UPDATE note SET encounter = 'e99' WHERE id = 'n5'", "note", "note n5"),
    "a note in an unknown state": ("UPDATE note SET state = 'lost' WHERE id = 'n5'", "note", "note n5"),
    "a note of nobody": ("INSERT INTO note VALUES ('n99', 'ghost', NULL, 'open', NULL)", "note", "note n99"),
    "a response without its note": ("DELETE FROM note WHERE encounter IS NULL", "note", "QuestionnaireResponse/"),
    "a number used twice": ("UPDATE payment_notice SET seq = (SELECT min(seq) FROM task)", "version", "seq "),
    "a version that is gone": ("DELETE FROM history", "version", "Task/"),
    "a version too many": ("INSERT INTO history SELECT * FROM history", "version", "Task/"),
    "a document of no report": (
        "INSERT INTO document VALUES ('r99', 0, 'text/plain', '')",
        "document",
        "DiagnosticReport/r99",
    ),
    "a token of nobody": ("UPDATE token SET client = 'ghost'", "client", "client ghost"),
    "a token of a revoked client": ("UPDATE client SET revoked_at = created_at", "client", "client "),
}


GROUPS = [list(DAMAGE)[first::14] for first in range(14)]
"""Kinds of damage that one store can have: none of them is found as another of its group."""


def found_in(store, names):
    """Return as what of all these kinds the findings of a store can be read."""
    found = [finding for finding in check(store) if not finding.notice]
    wanted = {name: DAMAGE[name][1:] for name in names}
    return [name for name, of in wanted.items() if any((each.kind, each.where[: len(of[1])]) == of for each in found)]


def suffers(store, name):
    """Plant a kind of damage; return False if the database refuses it."""
    try:
        damaged(store, DAMAGE[name][0])
    except psycopg.IntegrityError:
        return False
    return True


@pytest.mark.parametrize("names", GROUPS, ids=[names[0] for names in GROUPS])
def test_each_kind_of_damage_is_found(store, names):
    """CLI-SVC-10: unless the database refuses it."""
    planted = [name for name in names if suffers(store, name)]
    assert found_in(store, names) == planted


@pytest.mark.long
@pytest.mark.parametrize("name", DAMAGE)
def test_a_single_kind_of_damage_is_reported_as_that_kind(store, name):
    """CLI-SVC-10"""
    group = next(names for names in GROUPS if name in names)
    planted = suffers(store, name)
    assert found_in(store, group) == [name][:planted]


def test_allocations_that_add_up_but_skip_the_oldest_charge_are_found(store):
    """PAY-CREATE-09: the sums are right and the order is not."""
    move = "(SELECT cents FROM allocation WHERE claim = 'c1' ORDER BY payment LIMIT 1)"
    which = "(SELECT payment FROM allocation WHERE claim = 'c1' ORDER BY payment LIMIT 1)"
    damaged(
        store,
        f"CREATE TEMP TABLE moved AS SELECT {move} AS cents, {which} AS payment",
        "UPDATE charge SET paid = paid - (SELECT cents FROM moved) WHERE claim = 'c1'",
        "UPDATE charge SET paid = paid + (SELECT cents FROM moved) WHERE claim = 'c2'",
        "UPDATE allocation SET claim = 'c2' WHERE claim = 'c1' AND payment = (SELECT payment FROM moved)",
    )
    found = check(store)
    assert Finding("allocation", "Patient/p1", "the allocations are not oldest charge first") in found


OF_O1 = {
    "record": "reference = 'Observation/o1'",
    "observation_code": "seq IN (SELECT seq FROM observation WHERE id = 'o1')",
    "observation": "id = 'o1'",
}


def test_a_missing_target_of_loaded_data_is_a_notice(store):
    """REF-06: the Observation of a report and the Practitioner of a Claim; their patients would be damage."""
    damaged(store, *(f"DELETE FROM {table} WHERE {place}" for table, place in OF_O1.items()))
    found = check(store)
    assert found
    assert {(finding.kind, finding.text, finding.notice) for finding in found} == {
        ("reference", "Observation/o1 is not stored", True)
    }
    assert {finding.where for finding in found} == {"DiagnosticReport/r1"}


def test_a_missing_target_that_a_load_kept_is_a_notice(tmp_path):
    """REF-06: an Observation may name an encounter that is elsewhere, and another patient than its own."""
    patient = {"resourceType": "Patient", "id": "pa"}
    named = {"subject": refer("Patient/pa"), "encounter": refer("Encounter/x"), "performer": [refer("Patient/x")]}
    result = {"resourceType": "Observation", "id": "ob", "status": "final", "code": {"text": "x"}, **named}
    world = tmp_path / "world"
    world.mkdir()
    (world / "all.ndjson").write_text(f"{json.dumps(patient)}\n{json.dumps(result)}\n")
    with running(tmp_path, world):
        pass
    assert {(finding.where, finding.text, finding.notice) for finding in check(str(tmp_path / "service.duckdb"))} == {
        ("Observation/ob", "Encounter/x is not stored", True),
        ("Observation/ob", "Patient/x is not stored", True),
    }


def refer(target):
    return {"reference": target}


def test_the_findings_of_a_badly_damaged_store_are_bounded(store, monkeypatch):
    monkeypatch.setattr(checks, "MOST", 1)
    damaged(store, "UPDATE task SET status = 'completed'", "DELETE FROM record WHERE reference LIKE 'Observation/%'")
    found = [(finding.kind, finding.where, finding.notice) for finding in check(store)]
    assert ("bodies", "...", False) in found
    assert sum(kind == "index" for kind, _, _ in found) == 1


@pytest.mark.long
def test_every_page_is_looked_at(store, monkeypatch):
    monkeypatch.setattr(body_checks, "PAGE", 1)
    assert check(store) == []
    damaged(store, "UPDATE diagnostic_report SET patient = NULL", "UPDATE charge SET paid = 0, cents = cents + 1")
    found = check(store)
    assert sum(finding.kind == "index" for finding in found) == 8
    assert sum(finding.kind == "charge" for finding in found) == 6


def test_findings_hold_no_content(store):
    """REPORT-25: names, free text and amounts stay in the store."""
    damaged(
        store,
        *(
            statement
            for name, (statement, _, _) in list(DAMAGE.items())[:27]
            if name not in ("a body that is no JSON", "a charge overpaid", "a version too many")
            and not statement.startswith("UPDATE task SET body")
        ),
    )
    said = " ".join(f"{finding.where} {finding.text}" for finding in check(store))
    for text in ("Quill", "second", "urgent", "urn:test", "none", "Ada"):
        assert text not in said

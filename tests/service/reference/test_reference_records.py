"""Loading charges, notes, reports and versions of questionnaires: what each becomes in the store."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, update

from fhir_service.interface.json_text import parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.service import Service
from fhir_service.settings import Settings
from fhir_service.store.tables import ACCOUNT, BODIES, CHARGE, DOCUMENT, NOTE, RECORD, index_values
from tests.conftest import BOTH, FROZEN, WORLD, Database, counted_ids
from tests.service.reference.test_reference import (
    CLAIM,
    ENCOUNTER,
    OTHER,
    PATIENT,
    REPORT,
    Load,
    changed,
    outcomes,
    reasons,
    rows,
    shown,
)

STORES = BOTH
pytestmark = pytest.mark.crossed
NOTE_ID = "http://schemas.example.com/fhir/extensions/note-id"
COPAYMENT_CLAIMS = "http://schemas.example.com/fhir/copayment-claims"


@pytest.fixture
def service(tmp_path: Path, empty: Database) -> Iterator[Service]:
    with empty(tmp_path) as store:
        settings = Settings(store=store, audit=str(tmp_path / "audit.ndjson"))
        found = Service.open(settings, clock=lambda: FROZEN, new_id=counted_ids())
        yield found
        found.close()


@pytest.fixture
def load(service: Service, tmp_path: Path) -> Load:
    return Load(service, tmp_path)


QUESTIONNAIRE = {
    "resourceType": "Questionnaire",
    "id": "q1",
    "name": "intake",
    "status": "active",
    "code": [{"system": "http://loinc.org", "code": "55757-9"}],
    "item": [{"linkId": "a", "type": "text", "text": "How?"}],
}


def test_a_claim_is_one_charge_of_its_total(load, service) -> None:
    """PAY-BALANCE-02"""
    load(PATIENT, CLAIM)
    assert rows(service, CHARGE, "claim", "patient", "created", "cents", "paid") == [
        ("c1", "p1", "2024-01-10", 10010, 0)
    ]
    assert rows(service, ACCOUNT, "patient", "charged", "paid") == [("p1", 10010, 0)]


def test_a_claim_without_total_is_the_sum_of_its_items(load, service) -> None:
    """PAY-BALANCE-03"""
    items = [
        {"sequence": 1, "productOrService": {"text": "a"}, "net": {"value": Decimal("10.05")}},
        {
            "sequence": 2,
            "productOrService": {"text": "b"},
            "unitPrice": {"value": Decimal("2.50")},
            "quantity": {"value": Decimal(3)},
        },
        {"sequence": 3, "productOrService": {"text": "c"}},
    ]
    load(PATIENT, changed(CLAIM, total=None, item=items))
    assert rows(service, CHARGE, "cents") == [(1755,)]


@pytest.mark.parametrize("status", ["cancelled", "draft", "entered-in-error"])
def test_a_claim_that_is_not_active_makes_no_charge(load, service, status: str) -> None:
    """PAY-BALANCE-04"""
    load(PATIENT, CLAIM)
    assert outcomes(load(changed(CLAIM, status=status)))["Claim"] == (0, 0, 1, 0, 0)
    assert rows(service, CHARGE, "claim") == []
    assert rows(service, ACCOUNT, "patient") == []
    load(changed(CLAIM, total={"value": Decimal(7)}))
    assert rows(service, ACCOUNT, "patient", "charged", "paid") == [("p1", 700, 0)]


@pytest.mark.parametrize(
    ("total", "expression", "text"),
    [
        (None, "Claim.total", "there is neither a total nor an item with an amount"),
        ({"value": Decimal(1), "currency": "EUR"}, "Claim.total.currency", "the currency is not USD"),
        ({"value": Decimal("1.005")}, "Claim.total", "the amount has more than two decimals"),
        ({"value": Decimal("1e-300")}, "Claim.total", "the amount has more than two decimals"),
        ({"value": Decimal("1e300")}, "Claim.total", "the amount is too large"),
        ({"value": Decimal("1e400")}, "", "the number is larger or smaller than other programs can read"),
        ({"value": Decimal(-1)}, "Claim.total", "the amount is below zero"),
    ],
)
def test_a_claim_that_cannot_be_charged_is_refused(load, total: Any, expression: str, text: str) -> None:
    """PAY-BALANCE-04"""
    assert reasons(load(PATIENT, changed(CLAIM, total=total))) == [(expression, text)]


def test_a_claim_that_changes_after_payments_has_them_allocated_anew(load, service) -> None:
    """REF-08: also for the patient from whom the claim goes away."""
    load(PATIENT, OTHER, CLAIM, changed(CLAIM, id="c0", created="2024-01-01", total={"value": Decimal(30)}))
    _pay(service, "n1", "p1", 50)
    load(changed(CLAIM, id="c0", created="2024-01-01", total={"value": Decimal(20)}))
    assert rows(service, CHARGE, "claim", "cents", "paid") == [("c0", 2000, 2000), ("c1", 10010, 3000)]
    assert rows(service, ACCOUNT, "patient", "charged", "paid") == [("p1", 12010, 5000)]
    load(
        changed(CLAIM, id="c0", created="2024-01-01", patient={"reference": "Patient/p2"}, total={"value": Decimal(20)})
    )
    assert rows(service, CHARGE, "claim", "patient", "paid") == [("c0", "p2", 0), ("c1", "p1", 5000)]
    assert rows(service, ACCOUNT, "patient", "charged", "paid") == [("p1", 10010, 5000), ("p2", 2000, 0)]
    load(changed(CLAIM, id="c2", created="2024-01-01", total={"value": Decimal(60)}))
    assert rows(service, CHARGE, "claim", "paid") == [("c0", 0), ("c1", 0), ("c2", 5000)]
    _pay(service, "n2", "p1", 10, claim="c1")
    load(changed(CLAIM, id="c2", created="2024-01-01", total={"value": Decimal(55)}))
    assert rows(service, CHARGE, "claim", "paid") == [("c0", 0), ("c1", 1000), ("c2", 5000)]


def _pay(service: Service, id: str, patient: str, dollars: int, claim: str | None = None) -> None:
    """Stores a payment, as a create would, and lets it be allocated. claim: of a copayment."""
    stored: dict[str, Any] = {"resourceType": "PaymentNotice", "id": id}
    stored["request"] = {"reference": f"Patient/{patient}"}
    stored |= {"amount": {"value": Decimal(dollars)}}
    if claim:
        named = {"url": "claim", "valueReference": {"reference": f"Claim/{claim}"}}
        stored |= {"extension": [{"url": COPAYMENT_CLAIMS, "extension": [named]}]}
    values = index_values(RESOURCES["PaymentNotice"], stored)

    def store(connection: Any) -> None:
        row = {
            "seq": service.writer.next_seq(),
            "id": id,
            "version": 1,
            "updated_at": FROZEN,
            "client": "t",
            "body": "{}",
        }
        connection.execute(insert(BODIES["PaymentNotice"]), [row | values])

    service.writer.transact(store)


def test_an_encounter_takes_its_note_from_the_extension_or_gets_a_new_one(load, service) -> None:
    """QR-NOTE-10"""
    named = changed(ENCOUNTER, id="e2", extension=[{"url": NOTE_ID, "valueId": "n7"}], period=None)
    load(PATIENT, ENCOUNTER, named)
    first = "00000000-0000-0000-0000-000000000001"
    assert rows(service, NOTE, "id", "patient", "encounter", "state", "service_at") == [
        (first, "p1", "e1", "open", "2024-01-10T08:00:00+00:00"),
        ("n7", "p1", "e2", "open", None),
    ]
    assert rows(service, RECORD, "reference", "patient", "note")[:2] == [
        ("Encounter/e1", "p1", first),
        ("Encounter/e2", "p1", "n7"),
    ]


@pytest.mark.parametrize(
    ("status", "state"), [("cancelled", "cancelled"), ("entered-in-error", "deleted"), ("planned", "open")]
)
def test_an_encounters_status_is_its_notes(load, service, status: str, state: str) -> None:
    """QR-NOTE-10: a stored encounter that names no other note keeps its own when it is loaded anew."""
    load(PATIENT, ENCOUNTER)
    load(changed(ENCOUNTER, status=status))
    assert rows(service, NOTE, "id", "state") == [("00000000-0000-0000-0000-000000000001", state)]


def test_two_encounters_never_share_a_note(load, service) -> None:
    """QR-NOTE-10"""
    extension = [{"url": NOTE_ID, "valueId": "n7"}]
    load(PATIENT, changed(ENCOUNTER, extension=extension))
    report = load(
        changed(ENCOUNTER, id="e2", extension=extension),
        changed(ENCOUNTER, extension=[{"url": NOTE_ID, "valueId": "n8"}]),
    )
    assert reasons(report) == [
        ("Encounter.extension", "the note belongs to another encounter"),
    ]
    assert rows(service, NOTE, "id", "encounter") == [("n8", "e1")]


def test_a_report_is_stored_as_the_interface_shows_it(load, service) -> None:
    """DR-07, DR-09, DR-14, DR-22, DR-33, REF-DR-01"""
    body = {
        **REPORT,
        "text": {
            "status": "additional",
            "div": '<div xmlns="http://www.w3.org/1999/xhtml"><p onclick="x()">ok</p></div>',
        },
        "identifier": [{"use": "usual", "system": "urn:lab", "value": "L-1"}],
        "status": "amended",
        "category": [{"coding": [{"system": "urn:any", "version": "2", "code": "C"}], "text": "gone"}],
        "effectivePeriod": {"start": "2023-12-31T23:30:00.250-05:00", "end": "2024-01-01T01:00:00-05:00"},
        "issued": "2024-01-02T00:00:00.1234567Z",
        "performer": [{"reference": "Organization/o1"}, {"reference": "Practitioner/dr1", "display": "D"}],
        "result": [{"reference": "Observation/o1", "display": "Glucose"}],
        "conclusion": "not in the field table",
    }
    load(PATIENT, body)
    assert shown(service, "DiagnosticReport", "r1") == {
        "resourceType": "DiagnosticReport",
        "id": "r1",
        "text": {"status": "generated", "div": '<div xmlns="http://www.w3.org/1999/xhtml"><p>ok</p></div>'},
        "identifier": [{"use": "usual", "system": "urn:lab", "value": "L-1"}],
        "status": "final",
        "category": [{"coding": [{"system": "urn:any", "code": "C"}]}],
        "code": {"coding": [{"system": "http://loinc.org", "code": "1", "display": "Panel"}]},
        "subject": {"reference": "Patient/p1", "type": "Patient"},
        "effectiveDateTime": "2024-01-01T04:30:00.250000+00:00",
        "issued": "2024-01-02T00:00:00.123456+00:00",
        "performer": [{"reference": "Practitioner/dr1", "type": "Practitioner"}],
        "result": [{"reference": "Observation/o1", "type": "Observation"}],
    }
    assert "Organization/o1" in dict(rows(service, RECORD, "reference", "body"))["DiagnosticReport/r1"]


def test_a_bare_report_gets_an_identifier_and_a_summary(load, service) -> None:
    """DR-07, DR-10, DR-30"""
    load(
        PATIENT,
        changed(REPORT, effectiveDateTime="2023-11", category=[{"coding": [{"system": "urn:x", "code": "LAB"}]}]),
    )
    found = shown(service, "DiagnosticReport", "r1")
    assert found["identifier"] == [{"system": "http://example.com", "value": "r1"}]
    assert found["text"] == {
        "status": "generated",
        "div": '<div xmlns="http://www.w3.org/1999/xhtml"><p>Panel</p><p>LAB, 2023-11, final</p></div>',
    }
    assert found["effectiveDateTime"] == "2023-11"
    assert "presentedForm" not in found


def test_documents_are_stored_and_outside_ones_dropped(load, service) -> None:
    """DR-31, DR-32"""
    forms = [
        {"contentType": "application/pdf", "url": "http://outside.example/a.pdf"},
        {"contentType": "text/plain", "data": "aGVs\nbG8="},
        {"data": "AAEC"},
    ]
    load(PATIENT, changed(REPORT, presentedForm=forms))
    assert rows(service, DOCUMENT, "report", "position", "content_type", "data") == [
        ("r1", 0, "text/plain", "aGVsbG8="),
        ("r1", 1, "application/octet-stream", "AAEC"),
    ]
    assert shown(service, "DiagnosticReport", "r1")["presentedForm"] == [
        {
            "extension": [
                {"url": "http://schemas.example.com/fhir/extensions/deprecated-url", "valueUri": f"\x94r1/{n}\x94"}
            ],
            "contentType": kind,
            "url": f"http://127.0.0.1:8400/DiagnosticReport/r1/files/presentedForm/{n}",
        }
        for n, kind in enumerate(["text/plain", "application/octet-stream"])
    ]
    load(changed(REPORT, presentedForm=forms[2:]))
    assert rows(service, DOCUMENT, "position", "data") == [(0, "AAEC")]
    assert rows(service, BODIES["DiagnosticReport"], "id", "version") == [("r1", 2)]


@pytest.mark.parametrize("status", ["registered", "partial", "preliminary", "cancelled", "unknown"])
def test_a_report_of_another_status_is_refused(load, status: str) -> None:
    """REF-DR-02"""
    assert reasons(load(PATIENT, changed(REPORT, status=status))) == [
        ("DiagnosticReport.status", "the status is not supported")
    ]


@pytest.mark.parametrize(
    ("status", "as_"),
    [("amended", "final"), ("corrected", "final"), ("appended", "final"), ("entered-in-error", "entered-in-error")],
)
def test_the_statuses_of_corrections_are_final(load, service, status: str, as_: str) -> None:
    """REF-DR-01"""
    load(PATIENT, changed(REPORT, status=status))
    assert shown(service, "DiagnosticReport", "r1")["status"] == as_


def test_a_document_that_is_not_base64_refuses_its_report(load) -> None:
    form = {"contentType": "text/plain", "data": "!!"}
    assert reasons(load(PATIENT, changed(REPORT, presentedForm=[form]))) == [
        ("DiagnosticReport.presentedForm[0].data", "not base64")
    ]


@pytest.mark.parametrize("kind", ["text/plain; name=Bericht €.txt", "text/plain; name=a\tb"])
def test_a_content_type_that_no_header_can_carry_refuses_its_report(load, kind: str) -> None:
    """Its document could not be read."""
    form = {"contentType": kind, "data": "TWV0"}
    assert reasons(load(PATIENT, changed(REPORT, presentedForm=[form]))) == [
        ("DiagnosticReport.presentedForm[0].contentType", "an HTTP header cannot carry the content type")
    ]


def test_a_stored_content_type_that_no_header_can_carry_is_octets(load, service) -> None:
    load(PATIENT, changed(REPORT, presentedForm=[{"contentType": "text/plain", "data": "TWV0"}]))
    wrong = update(DOCUMENT).values(content_type="text/plain; name=€")
    service.writer.transact(lambda connection: connection.execute(wrong))
    assert service.documents.read("r1", "0")[:2] == ("application/octet-stream", b"Met")


def versions(service: Service) -> dict[str, tuple[str, str]]:
    return {id: (name, status) for id, name, status in rows(service, BODIES["Questionnaire"], "id", "name", "status")}


def test_an_active_questionnaire_retires_the_active_one_of_its_name(load, service) -> None:
    """STATE-QNR-02, STATE-QNR-03, QNR-05"""
    load(QUESTIONNAIRE)
    load(
        changed(QUESTIONNAIRE, id="q2"),
        changed(QUESTIONNAIRE, id="q3"),
        changed(QUESTIONNAIRE, id="x", name="intake 2"),
    )
    expected = {
        "q1": ("intake (v1)", "retired"),
        "q2": ("intake (v2)", "retired"),
        "q3": ("intake", "active"),
        "x": ("intake 2", "active"),
    }
    assert versions(service) == expected
    assert outcomes(load(QUESTIONNAIRE)) == {"Questionnaire": (0, 1, 0, 0, 0)}
    assert outcomes(load(changed(QUESTIONNAIRE, description="new"))) == {"Questionnaire": (0, 0, 1, 0, 0)}
    assert versions(service) == expected
    assert shown(service, "Questionnaire", "q1")["description"] == "new"


def test_a_questionnaire_loaded_as_retired_gets_the_next_version(load, service) -> None:
    """STATE-QNR-05, REF-QNR-07"""
    retired = changed(QUESTIONNAIRE, status="retired")
    load(changed(retired, id="q5", name="intake (v4)"), retired, changed(QUESTIONNAIRE, id="q2"))
    assert versions(service) == {
        "q5": ("intake (v4)", "retired"),
        "q1": ("intake (v5)", "retired"),
        "q2": ("intake", "active"),
    }
    load(changed(QUESTIONNAIRE, id="q2", status="retired"))
    assert versions(service)["q2"] == ("intake (v6)", "retired")


def test_a_questionnaire_with_responses_refuses_other_content(load, service) -> None:
    """REF-04: its status may change, and what is not shown."""
    load(PATIENT, QUESTIONNAIRE)
    _answer(service)
    report = load(changed(QUESTIONNAIRE, description="other"))
    assert reasons(report) == [("Questionnaire", "the questionnaire has responses: load a new version under a new id")]
    assert outcomes(load(changed(QUESTIONNAIRE, publisher="P", status="retired"))) == {"Questionnaire": (0, 0, 1, 0, 0)}
    assert versions(service) == {"q1": ("intake (v1)", "retired")}


def _answer(service: Service) -> None:
    table = BODIES["QuestionnaireResponse"]

    def store(connection: Any) -> None:
        row = {
            "seq": service.writer.next_seq(),
            "id": "a1",
            "version": 1,
            "updated_at": FROZEN,
            "client": "t",
            "body": "{}",
        }
        connection.execute(insert(table), [row | {"questionnaire": "q1"}])

    service.writer.transact(store)


def test_the_bodies_that_are_stored_hold_no_site(load, service) -> None:
    load.paths(WORLD)
    for name in ("Questionnaire", "DiagnosticReport"):
        for (body,) in rows(service, BODIES[name], "body"):
            assert "127.0.0.1" not in body
            assert "http://example.com" not in body
            assert "schemas." not in body or "schemas.\x92.com" in body or "schemas.\x93.\x92.com" in body
            parse_json(body)

"""Loading reference data into a store: what is created, kept, replaced, refused, and what a load reports."""

import copy
import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from fhir_service import reference
from fhir_service.interface.datatypes import dump_json, parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.service import Service
from fhir_service.settings import Settings
from fhir_service.store.tables import ACCOUNT, BODIES, CHARGE, DOCUMENT, NOTE, RECORD, index_values
from tests.conftest import BOTH, FROZEN, WORLD, Database, counted_ids

STORES = BOTH

NOTE_ID = "http://schemas.example.com/fhir/extensions/note-id"


@pytest.fixture
def service(tmp_path: Path, database: Database) -> Iterator[Service]:
    with database(tmp_path) as store:
        settings = Settings(store=store, audit=str(tmp_path / "audit.ndjson"))
        found = Service.open(settings, clock=lambda: FROZEN, new_id=counted_ids())
        yield found
        found.close()


class Load:
    """Loads bodies, written as one NDJSON file, or paths."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.service, self.folder = service, folder

    def __call__(self, *bodies: Any) -> reference.Report:
        path = self.folder / "x.ndjson"
        path.write_bytes(b"".join(b if isinstance(b, bytes) else dump_json(b) + b"\n" for b in bodies))
        return self.paths(path)

    def paths(self, *paths: Path) -> reference.Report:
        s = self.service
        return reference.load(list(paths), s.writer, s.store, s.clock, s.new_id, s.site)


@pytest.fixture
def load(service: Service, tmp_path: Path) -> Load:
    return Load(service, tmp_path)


def outcomes(report: reference.Report) -> dict[str, tuple[int, ...]]:
    """created, unchanged, updated, refused, unresolved by type."""
    return {
        c["type"]: (c["created"], c["unchanged"], c["updated"], c["refused"], c["unresolved"]) for c in report["counts"]
    }


def reasons(report: reference.Report) -> list[tuple[str, str]]:
    return [(p["expression"], p["text"]) for refused in report["refused"] for p in refused["problems"]]


def rows(service: Service, table: Any, *columns: str) -> list[tuple[Any, ...]]:
    with service.store.read() as connection:
        query = select(*(table.c[name] for name in columns)).order_by(*(table.c[name] for name in columns))
        return [tuple(row) for row in connection.execute(query)]


def shown(service: Service, name: str, id: str) -> dict[str, Any]:
    """A stored resource as the interface shows it."""
    with service.store.read() as connection:
        body = connection.execute(select(BODIES[name].c.body).where(BODIES[name].c.id == id)).scalar_one()
    found: dict[str, Any] = json.loads(service.site.fill(body.encode()))
    return found


PATIENT = {"resourceType": "Patient", "id": "p1", "name": [{"family": "Quill", "given": ["Ada"]}]}
OTHER = {"resourceType": "Patient", "id": "p2"}
CLAIM = {
    "resourceType": "Claim",
    "id": "c1",
    "status": "active",
    "type": {"text": "professional"},
    "use": "claim",
    "patient": {"reference": "Patient/p1"},
    "created": "2024-01-10",
    "provider": {"reference": "Organization/o"},
    "priority": {"text": "normal"},
    "insurance": [{"sequence": 1, "focal": True, "coverage": {"display": "Self-pay"}}],
    "total": {"value": Decimal("100.10"), "currency": "USD"},
}
ENCOUNTER = {
    "resourceType": "Encounter",
    "id": "e1",
    "status": "finished",
    "class": {"code": "AMB"},
    "subject": {"reference": "Patient/p1"},
    "period": {"start": "2024-01-10T09:00:00+01:00"},
}
REPORT = {
    "resourceType": "DiagnosticReport",
    "id": "r1",
    "status": "final",
    "code": {"coding": [{"system": "http://loinc.org", "code": "1", "display": "Panel"}]},
    "subject": {"reference": "Patient/p1"},
}
QUESTIONNAIRE = {
    "resourceType": "Questionnaire",
    "id": "q1",
    "name": "intake",
    "status": "active",
    "code": [{"system": "http://loinc.org", "code": "55757-9"}],
    "item": [{"linkId": "a", "type": "text", "text": "How?"}],
}


def changed(body: dict[str, Any], **elements: Any) -> dict[str, Any]:
    found = copy.deepcopy(body) | elements
    return {name: value for name, value in found.items() if value is not None}


# --- Loading, again, in any order -----------------------------------------------------------------


def test_the_eight_types_are_loaded_from_ndjson_and_loading_them_again_changes_nothing(load, service) -> None:
    """REF-01, REF-03"""
    first = outcomes(load.paths(WORLD))
    tables = [RECORD, CHARGE, ACCOUNT, NOTE, DOCUMENT, *BODIES.values()]
    before = [rows(service, table, *(c.name for c in table.columns)) for table in tables]
    assert set(first) == {
        *("Patient", "Practitioner", "Group", "Encounter", "Claim", "Observation", "Questionnaire", "DiagnosticReport")
    }
    assert all(
        created and not (unchanged or updated or refused) for created, unchanged, updated, refused, _ in first.values()
    )
    again = outcomes(load.paths(WORLD))
    assert again == {kind: (0, created, 0, 0, open_) for kind, (created, *_, open_) in first.items()}
    assert [rows(service, table, *(c.name for c in table.columns)) for table in tables] == before


def test_gzipped_files_and_single_resources_are_loaded_too(load, tmp_path) -> None:
    """REF-01"""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.ndjson.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + dump_json(PATIENT) + b"\r\n\n"))
    (tmp_path / "in" / "b.json").write_text(json.dumps(OTHER, indent=2))
    (tmp_path / "in" / "README.md").write_text("not data")
    assert outcomes(load.paths(tmp_path / "in")) == {"Patient": (2, 0, 0, 0, 0)}


def test_a_path_that_is_not_there_stops_the_load_before_anything_is_done(load, tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        load.paths(WORLD, tmp_path / "nowhere")


def test_white_space_and_the_order_of_keys_are_no_change(load) -> None:
    """REF-03"""
    load(PATIENT)
    other = json.dumps(dict(reversed(PATIENT.items())), separators=(" , ", " : ")).encode()
    assert outcomes(load(other)) == {"Patient": (0, 1, 0, 0, 0)}


def test_newer_content_replaces_the_older(load, service) -> None:
    """REF-04, REF-05"""
    load(PATIENT)
    assert outcomes(load(changed(PATIENT, name=[{"text": "Ada Q"}]))) == {"Patient": (0, 0, 1, 0, 0)}
    assert rows(service, RECORD, "reference", "display") == [("Patient/p1", "Ada Q")]


def test_of_two_with_lastUpdated_the_later_stays(load, service) -> None:
    """REF-05"""
    late = changed(PATIENT, meta={"lastUpdated": "2024-02-01T00:00:00Z"}, name=[{"text": "late"}])
    early = changed(PATIENT, meta={"lastUpdated": "2024-02-01T00:30:00+01:00"}, name=[{"text": "early"}])
    load(late)
    assert outcomes(load(early)) == {"Patient": (0, 1, 0, 0, 0)}
    assert rows(service, RECORD, "display") == [("late",)]
    assert outcomes(load(changed(PATIENT, name=[{"text": "undated"}]))) == {"Patient": (0, 0, 1, 0, 0)}


def test_the_same_id_twice_in_a_load_is_a_creation_and_an_update(load, service) -> None:
    """REF-04"""
    assert outcomes(load(PATIENT, changed(PATIENT, name=[{"text": "B"}]), PATIENT)) == {"Patient": (1, 0, 2, 0, 0)}
    assert rows(service, RECORD, "display") == [("Ada Quill",)]


def test_a_patient_may_come_after_the_records_that_need_it(load) -> None:
    """REF-06"""
    found = outcomes(load(REPORT, CLAIM, ENCOUNTER, PATIENT))
    assert found == dict.fromkeys(("Patient", "Encounter", "Claim", "DiagnosticReport"), (1, 0, 0, 0, 0))


def test_a_record_without_its_patient_is_refused(load, service) -> None:
    """REF-06"""
    observation = {"resourceType": "Observation", "id": "o", "status": "final", "code": {"text": "x"}}
    observation |= {"subject": {"reference": "Patient/p9"}}
    bad_patient = changed(PATIENT, birthDate="soon")
    report = load(bad_patient, CLAIM, ENCOUNTER, REPORT, observation, changed(REPORT, id="r2", subject=None))
    assert reasons(report) == [
        ("Patient.birthDate", "the value is not valid here"),
        ("Claim.patient", "the patient is not known"),
        ("Encounter.subject", "the patient is not known"),
        ("DiagnosticReport.subject", "the patient is not known"),
        ("Observation.subject", "the patient is not known"),
        ("DiagnosticReport.subject", "names no patient in the form Patient/<id>"),
    ]
    assert rows(service, RECORD, "reference") == []


def test_other_references_without_a_target_are_kept_and_counted(load, service) -> None:
    """REF-06, REF-07"""
    body = changed(
        REPORT,
        encounter={"reference": "Encounter/e1"},
        performer=[{"reference": "Practitioner/d1"}, {"reference": "Practitioner/automation"}],
        basedOn=[{"reference": "ServiceRequest/s1"}],
        result=[{"reference": "Observation/o1"}, {"reference": "Observation/o1"}],
    )
    assert outcomes(load(PATIENT, ENCOUNTER, body)) == {
        "Patient": (1, 0, 0, 0, 0),
        "Encounter": (1, 0, 0, 0, 0),
        "DiagnosticReport": (1, 0, 0, 0, 3),
    }
    assert shown(service, "DiagnosticReport", "r1")["performer"] == [
        {"reference": "Practitioner/d1", "type": "Practitioner"},
        {"reference": "Practitioner/automation", "type": "Practitioner"},
    ]


# --- What is refused ------------------------------------------------------------------------------


def test_a_refused_record_is_named_by_file_line_type_and_id_and_the_rest_goes_on(load, tmp_path) -> None:
    """REF-QNR-02: nothing of the record's values is repeated."""
    report = load(
        PATIENT, b"{not json}\n", b"\n", changed(OTHER, gender=["secret"]), b'{"resourceType": "Task"}\n', b"[]\n"
    )
    file = str(tmp_path / "x.ndjson")
    assert report["refused"] == [
        {
            "file": file,
            "line": 2,
            "type": None,
            "id": None,
            "problems": [{"expression": "", "text": "the text is not JSON (line 1, column 2)"}],
        },
        {
            "file": file,
            "line": 4,
            "type": "Patient",
            "id": "p2",
            "problems": [{"expression": "Patient.gender", "text": "a string is expected"}],
        },
        {
            "file": file,
            "line": 5,
            "type": "Task",
            "id": None,
            "problems": [{"expression": "resourceType", "text": "records of this type are not loaded"}],
        },
        {
            "file": file,
            "line": 6,
            "type": None,
            "id": None,
            "problems": [{"expression": "", "text": "an object is expected"}],
        },
    ]
    assert outcomes(report) == {"Patient": (1, 0, 0, 1, 0), "": (0, 0, 0, 2, 0), "Task": (0, 0, 0, 1, 0)}


@pytest.mark.parametrize(
    ("raw", "expression", "text"),
    [
        ('{"resourceType":"Patient","id":"p1","id":"p2"}', "", "an object repeats a key"),
        ('{"resourceType":"Patient"}', "Patient.id", "a required element is missing"),
        ('{"resourceType":"Patient","id":"a b"}', "Patient.id", "not an id"),
        ('{"resourceType":"Patient","id":7}', "Patient.id", "not an id"),
        ('{"id":"p1"}', "resourceType", "a required element is missing"),
        ('{"resourceType":["x"],"id":"p1"}', "resourceType", "records of this type are not loaded"),
        (
            '{"resourceType":"Practitioner","id":"automation"}',
            "Practitioner.id",
            "the id is that of the built-in automation user",
        ),
        (
            '{"resourceType":"Patient","id":"p1","name":[{"text":"a\\u0092b"}]}',
            "Patient.name[0].text",
            "the text holds a control character",
        ),
        (
            '{"resourceType":"Patient","id":"p1","name":[{"text":"a\x92b"}]}',
            "Patient.name[0].text",
            "the text holds a control character",
        ),
        (
            '{"resourceType":"Patient","id":"p1","name":[{"text":"\\ud83d"}]}',
            "Patient.name[0].text",
            "the text is not valid Unicode",
        ),
        ('{"resourceType":"Patient","id":"p1","gender":null}', "Patient.gender", "null is not a value"),
        ('{"resourceType":"Patient","id":"p1","bogus":1}', "Patient.bogus", "FHIR knows no such element here"),
        (
            '{"resourceType":"Patient","id":"p1","x":1e99999999999999999999}',
            "",
            "a number is beyond what can be computed with",
        ),
        (
            '{"resourceType":"Patient","id":"p1","contained":' + '[{"a":' * 200 + "1" + "}]" * 200 + "}",
            "",
            "the text is nested too deeply",
        ),
        ('{"a":' * 50000, "", "the text is nested too deeply"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_the_reason(load, raw: str, expression: str, text: str) -> None:
    """COMMON-46 holds for loaded text too."""
    assert reasons(load(raw.encode())) == [(expression, text)]


def test_text_with_tabs_newlines_and_any_script_is_loaded(load, service) -> None:
    """COMMON-47"""
    name = "Ада\t\n\r 張 🩺 \u200f"
    load(changed(PATIENT, name=[{"text": name}]))
    assert rows(service, RECORD, "display") == [(name,)]


def test_a_file_that_breaks_off_ends_with_a_refusal(load, tmp_path) -> None:
    path = tmp_path / "cut.ndjson.gz"
    path.write_bytes(
        gzip.compress(b"".join(dump_json(changed(PATIENT, id=f"p{n}")) + b"\n" for n in range(3000)))[:-20]
    )
    report = load.paths(path)
    assert [(r["type"], r["problems"][0]["text"]) for r in report["refused"]] == [
        (None, "the file cannot be read from here on")
    ]


def test_the_digits_of_a_number_are_kept(load, service) -> None:
    load(
        PATIENT,
        {
            "resourceType": "Observation",
            "id": "o",
            "status": "final",
            "code": {"text": "x"},
            "valueQuantity": {"value": Decimal("1.10")},
        },
    )
    assert '"value":1.10}' in dict(rows(service, RECORD, "reference", "body"))["Observation/o"]


# --- Charges --------------------------------------------------------------------------------------


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
        ({"value": Decimal("1e-400")}, "Claim.total", "the amount has more than two decimals"),
        ({"value": Decimal("1e400")}, "Claim.total", "the amount is too large"),
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


def _pay(service: Service, id: str, patient: str, dollars: int) -> None:
    """Stores a payment, as a create would, and lets it be allocated."""
    stored = {"resourceType": "PaymentNotice", "id": id, "request": {"reference": f"Patient/{patient}"}}
    stored |= {"amount": {"value": Decimal(dollars)}}
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


# --- Notes ----------------------------------------------------------------------------------------


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
    """QR-NOTE-10: a stored encounter keeps its note when it is loaded anew."""
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
        ("Encounter.extension", "a stored encounter keeps its note"),
    ]
    assert rows(service, NOTE, "id", "encounter") == [("n7", "e1")]


# --- Reports --------------------------------------------------------------------------------------


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


# --- Versions of questionnaires -------------------------------------------------------------------


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
    assert reasons(report) == [("Questionnaire", "it has responses: a new version needs a new id")]
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

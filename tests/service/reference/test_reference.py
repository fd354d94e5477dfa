"""Loading reference data into a store: what is created, kept, replaced, refused, and what a load reports."""

import copy
import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from fhir_service.interface.json_text import DEEPEST, dump_json
from fhir_service.reference import loading as reference
from fhir_service.service import Service
from fhir_service.settings import Settings
from fhir_service.store.tables import ACCOUNT, BODIES, CHARGE, DOCUMENT, NOTE, RECORD
from tests.conftest import BOTH, FROZEN, WORLD, Database, counted_ids

STORES = BOTH


@pytest.fixture
def service(tmp_path: Path, empty: Database) -> Iterator[Service]:
    with empty(tmp_path) as store:
        settings = Settings(store=store, audit=str(tmp_path / "audit.ndjson"))
        found = Service.open(settings, clock=lambda: FROZEN, new_id=counted_ids())
        yield found
        found.close()


class Load:
    """Loads bodies, written as one NDJSON file, or paths."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.service, self.folder = service, folder

    def __call__(self, *bodies: Any) -> reference.LoadReport:
        path = self.folder / "x.ndjson"
        path.write_bytes(b"".join(b if isinstance(b, bytes) else dump_json(b) + b"\n" for b in bodies))
        return self.paths(path)

    def paths(self, *paths: Path) -> reference.LoadReport:
        s = self.service
        return reference.load(list(paths), s.writer, s.store, s.clock, s.new_id, s.site)


@pytest.fixture
def load(service: Service, tmp_path: Path) -> Load:
    return Load(service, tmp_path)


def outcomes(report: reference.LoadReport) -> dict[str, tuple[int, ...]]:
    """created, unchanged, updated, refused, unresolved by type."""
    return {
        c["type"]: (c["created"], c["unchanged"], c["updated"], c["refused"], c["unresolved"]) for c in report["counts"]
    }


def reasons(report: reference.LoadReport) -> list[tuple[str, str]]:
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


def changed(body: dict[str, Any], **elements: Any) -> dict[str, Any]:
    found = copy.deepcopy(body) | elements
    return {name: value for name, value in found.items() if value is not None}


# --- Loading, again, in any order -----------------------------------------------------------------


def test_the_eight_types_are_loaded_from_ndjson_and_loading_them_again_changes_nothing(
    load, service, monkeypatch
) -> None:
    """REF-01, REF-03: the second time begins no transaction."""
    first = outcomes(load.paths(WORLD))
    tables = [RECORD, CHARGE, ACCOUNT, NOTE, DOCUMENT, *BODIES.values()]
    before = [rows(service, table, *(c.name for c in table.columns)) for table in tables]
    assert set(first) == {
        *("Patient", "Practitioner", "Group", "Encounter", "Claim", "Observation", "Questionnaire", "DiagnosticReport")
    }
    assert all(
        created and not (unchanged or updated or refused) for created, unchanged, updated, refused, _ in first.values()
    )
    monkeypatch.setattr(service.writer, "transact", None)
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


def test_the_record_with_the_later_lastUpdated_stays(load, service) -> None:
    """REF-05"""
    late = changed(PATIENT, meta={"lastUpdated": "2024-02-01T00:00:00Z"}, name=[{"text": "late"}])
    early = changed(PATIENT, meta={"lastUpdated": "2024-02-01T00:30:00+01:00"}, name=[{"text": "early"}])
    load(late)
    assert outcomes(load(early)) == {"Patient": (0, 1, 0, 0, 0)}
    assert rows(service, RECORD, "display") == [("late",)]
    assert outcomes(load(changed(PATIENT, name=[{"text": "undated"}]))) == {"Patient": (0, 0, 1, 0, 0)}


def test_an_id_that_comes_again_with_other_content_in_a_load_counts_as_created_and_updated(load, service) -> None:
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
        (
            '{"resourceType":"Patient","id":"a b"}',
            "Patient.id",
            "not an id of 1 to 64 letters, digits, dashes and dots",
        ),
        ('{"resourceType":"Patient","id":7}', "Patient.id", "not an id of 1 to 64 letters, digits, dashes and dots"),
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
        ('{"resourceType":"Patient","id":"p1","\\ud83d":1}', "Patient", "the text is not valid Unicode"),
        ('{"resourceType":"Patient","id":"p1","gender":null}', "Patient.gender", "null is not allowed"),
        ('{"resourceType":"Patient","id":"p1","bogus":1}', "Patient.bogus", "FHIR R4 has no such element here"),
        (
            '{"resourceType":"Patient","id":"p1","x":1e99999999999999999999}',
            "",
            "a number is too large, too small, or has too many digits",
        ),
        (
            '{"resourceType":"Patient","id":"p1","contained":' + '[{"a":' * 200 + "1" + "}]" * 200 + "}",
            "",
            "the text is nested too deeply",
        ),
        ('{"a":' * 5000 + "1" + "}" * 5000, "", "the text is nested too deeply"),
    ],
)
def test_a_record_that_cannot_be_stored_is_refused_with_the_reason(load, raw: str, expression: str, text: str) -> None:
    """COMMON-46 holds for loaded text too."""
    assert reasons(load(raw.encode())) == [(expression, text)]


def test_the_deepest_record_is_loaded(load) -> None:
    extension: dict[str, Any] = {"url": "u", "valueString": "s"}
    for _ in range((DEEPEST - 4) // 2):
        extension = {"url": "u", "extension": [extension]}
    assert reasons(load(changed(PATIENT, extension=[extension]))) == []


def test_text_with_tabs_newlines_and_any_script_is_loaded(load, service) -> None:
    """COMMON-47"""
    name = "Ада\t\n\r 張 🩺 \u200f"
    load(changed(PATIENT, name=[{"text": name}]))
    assert rows(service, RECORD, "display") == [(name,)]


def test_a_file_that_breaks_off_ends_with_a_refusal(load, tmp_path) -> None:
    path = tmp_path / "cut.ndjson.gz"
    path.write_bytes(gzip.compress(b"".join(dump_json(changed(PATIENT, id=f"p{n}")) + b"\n" for n in range(300)))[:-20])
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

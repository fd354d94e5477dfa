"""The command `tell`: charges with their payments, and patients without names."""

import json

from fhir_service.admin.actions import perform
from fhir_service.settings import Settings
from tests.conftest import running
from tests.service.admin.test_checks import payment


def told(store, name, file):
    rows = perform(Settings.read({}, store=store), "tell", {"name": name, "to": str(file)})["rows"]
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(found) == rows
    return {each.get("claim_id") or each["id"]: each for each in found}


def test_the_tell_command_prints_charges_and_patients_without_names(tmp_path):
    """REPORT-28, REPORT-29: charges to the cent with the paid amount, and patients by sex and year of birth only."""
    store = str(tmp_path / "s.duckdb")
    with running(tmp_path, store=store) as found:
        for body in (payment("p1", 30), payment("p1", 5.5, "c2"), payment("p1", 80)):
            assert found.client.post("/PaymentNotice", json=body).status_code == 201
    charges = told(store, "charges", tmp_path / "charges")
    assert [charges[claim] for claim in ("c1", "c2")] == [
        {
            "claim_id": "c1",
            "patient_id": "p1",
            "created": "2024-01-10",
            "cents": 10000,
            "paid_cents": 10000,
            "copaid_cents": 0,
        },
        {
            "claim_id": "c2",
            "patient_id": "p1",
            "created": "2024-02-10",
            "cents": 5025,
            "paid_cents": 1550,
            "copaid_cents": 550,
        },
    ]
    assert "c4" not in charges, "it is cancelled"
    patients = told(store, "patients", tmp_path / "patients")
    assert set(patients["p1"]) == {"id", "gender", "birthYear"}
    assert all(each["birthYear"] is None or 1800 < each["birthYear"] < 2100 for each in patients.values())

"""Patients whom the target does not have: their ids may be people's numbers in another system."""

import re
import stat

import duckdb
import pytest

from tests.support.fake_answers import Said
from tests.support.publishing import publish_only

HEADER = "payment_id,patient_id,amount,paid_on\n"


def rows(home, query):
    with duckdb.connect(str(home / "published/reports.duckdb"), read_only=True) as tables:
        return tables.sql(query).fetchall()


@pytest.mark.publishes
def test_published_tables_hold_a_keyed_hash_in_the_place_of_an_id_that_the_target_does_not_know(
    home, asked, target, monkeypatch
):
    """REPORT-27: of all tables."""
    (home / "inbox/payments.csv").write_text(
        HEADER
        + "1,90817263,10.00,never\n2,90817263,11.00,never\n3,90817264,12.00,never\n4,p1,13.00,2026-03-01\n"
        + "5,p1,14.00,never\n"
    )
    asked("import")
    first, again, other, known, rejected = (
        patient for (patient,) in rows(home, "SELECT patient_id FROM payment ORDER BY source_key")
    )
    assert (known, rejected) == ("p1", "p1")
    assert first == again != other
    assert re.fullmatch("unknown-[0-9a-f]{16}", first)
    published = b"".join(path.read_bytes() for path in (home / "published").rglob("*") if path.is_file())
    assert b"9081726" not in published
    assert stat.S_IMODE((home / "hash.key").stat().st_mode) == 0o600
    publish_only(monkeypatch, "payment")  # of the second file this one alone is looked at
    (home / "inbox/payments-2.csv").write_text(HEADER + "6,90817263,15.00,2026-03-01\n7,90817264,16.00,never\n")
    asked("import")
    shown = dict(rows(home, "SELECT source_key, patient_id FROM payment"))
    assert (shown["1"], shown["6"]) == ("90817263", "90817263")
    assert (shown["3"], shown["7"]) == (other, other)


@pytest.mark.publishes("payment", "reject_reason")
def test_a_refusal_that_names_an_unknown_patient_is_published_with_the_hash(home, asked, target):
    """REPORT-27"""
    said = {"severity": "error", "code": "value", "diagnostics": "no chart 90817263 (90817263)"}
    refused = {"resourceType": "OperationOutcome", "issue": [said]}
    target.additions, target.faults = False, [Said(422, refused)]
    (home / "inbox/payments.csv").write_text(HEADER + "1,90817263,10.00,2026-03-01\n")
    asked("import")
    [(patient, message)] = rows(home, "SELECT patient_id, message FROM payment, reject_reason")
    assert message.endswith(f"no chart {patient} ({patient})")
    assert patient.startswith("unknown-")


@pytest.mark.publishes("answer", "reject_reason")
def test_a_refusal_that_names_another_unknown_patient_is_published_with_a_hash_too(home, asked, target):
    """REPORT-27: the one who is said to have answered, whatever column that was read from."""
    words = "Patient/90817263 is not known, nor is Patient/90817264; Patient/p1 is"
    refused = {
        "resourceType": "OperationOutcome",
        "issue": [{"severity": "error", "code": "value", "diagnostics": words}],
    }
    target.additions, target.faults = False, [Said(422, refused)]
    (home / "inbox/payments.csv").write_text(HEADER + "1,p1,10.00,2026-03-01\n")
    (home / "inbox/payments-2.csv").write_text(HEADER + "2,p1,10.00,2026-03-01\n")
    asked("import")
    [(message,)] = rows(home, "SELECT message FROM reject_reason")
    assert re.search(
        r"Patient/unknown-[0-9a-f]{16} is not known, nor is Patient/unknown-[0-9a-f]{16}; Patient/p1 is$", message
    )

"""Patients who owe much, and exports of their payments: no payment is refused, and every cent can be counted."""

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

HEADER = "payment_id,patient_id,amount,paid_on,claim_id"
AMOUNTS = (100, 100, 250, 999)
"""Amounts in cents. Some are equal, so that a double cannot be recognised by its amount."""

Paid = Counter[tuple[str, int]]
"""The number of payments by patient and cents."""


def practice(folder: Path, patients: int) -> Path:
    """Write reference data: patients, each with a claim, and one practitioner."""
    folder.mkdir()
    ids = [f"p{number}" for number in range(patients)]
    bodies = {
        "patient": [{"resourceType": "Patient", "id": each, "name": [{"family": "A"}]} for each in ids],
        "claim": [claim(each) for each in ids],
        "practitioner": [{"resourceType": "Practitioner", "id": "a", "name": [{"family": "B"}]}],
    }
    for name, some in bodies.items():
        (folder / f"{name}.ndjson").write_text("".join(json.dumps(body) + "\n" for body in some))
    return folder


def claim(patient: str) -> dict[str, Any]:
    """Return a claim of a million dollars."""
    return {
        "resourceType": "Claim",
        "id": f"c-{patient}",
        "status": "active",
        "type": {"coding": [{"code": "professional"}]},
        "use": "claim",
        "provider": {"reference": "Practitioner/a"},
        "priority": {"coding": [{"code": "normal"}]},
        "insurance": [{"sequence": 1, "focal": True, "coverage": {"display": "none"}}],
        "patient": {"reference": f"Patient/{patient}"},
        "created": "2026-01-01",
        "total": {"value": 1_000_000, "currency": "USD"},
    }


def payments(name: str, rows: int, patients: int, chosen: Random) -> tuple[str, Paid]:
    """Return an export whose keys begin with `name`, and its payments by patient and cents. Exports whose names differ
    in one letter are of different days: the import stops a file whose records it knows under other keys.
    """
    day = f"2026-02-{1 + sum(name.encode()) % 28:02}"
    paid = [(f"p{chosen.randrange(patients)}", chosen.choice(AMOUNTS)) for _ in range(rows)]
    lines = [f"{name}-{n},{patient},{cents / 100:.2f},{day}," for n, (patient, cents) in enumerate(paid)]
    return "\n".join([HEADER, *lines, ""]), Counter(paid)


def paid(notices: list[dict[str, Any]]) -> Paid:
    """Return the number of PaymentNotices by patient and cents."""
    return Counter(
        (body["request"]["reference"].removeprefix("Patient/"), round(body["amount"]["value"] * 100))
        for body in notices
    )

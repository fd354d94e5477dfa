"""People who owe much, and exports of what they paid: for tests where every payment is taken and every cent counts."""

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

HEADER = "payment_id,patient_id,amount,paid_on,claim_id"
AMOUNTS = (100, 100, 250, 999)
"""In cents; equal ones among them, so that a double is not told from another payment by its looks."""

Paid = Counter[tuple[str, int]]
"""How often a patient paid so many cents."""


def practice(folder: Path, patients: int) -> Path:
    """Reference data of so many patients, each with a claim, and of one practitioner."""
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
    """A charge of a million dollars."""
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
    """An export whose keys begin with `name`, and what it comes to. Two that differ in one letter are of two days: the
    import stops a file whose records it knows under other keys.
    """
    day = f"2026-02-{1 + sum(name.encode()) % 28:02}"
    paid = [(f"p{chosen.randrange(patients)}", chosen.choice(AMOUNTS)) for _ in range(rows)]
    lines = [f"{name}-{n},{patient},{cents / 100:.2f},{day}," for n, (patient, cents) in enumerate(paid)]
    return "\n".join([HEADER, *lines, ""]), Counter(paid)


def paid(notices: list[dict[str, Any]]) -> Paid:
    """What PaymentNotices come to."""
    return Counter(
        (body["request"]["reference"].removeprefix("Patient/"), round(body["amount"]["value"] * 100))
        for body in notices
    )

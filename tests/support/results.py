"""Results of reports, and reports that name them."""

from typing import Any

from tests.support.publishing import report

HBA1C = {"system": "http://loinc.org", "code": "4548-4", "display": "Hemoglobin A1c"}


def result(name: str, value: float | None = None, **fields: Any) -> dict[str, Any]:
    quantity = {"valueQuantity": {"value": value, "unit": "%"}} if value is not None else {}
    return {
        "resourceType": "Observation",
        "id": name,
        "status": "final",
        "code": {"coding": [HBA1C]},
        "subject": {"reference": "Patient/p1"},
        **quantity,
        **fields,
    }


def report_of(name: str, *results: str, **fields: Any) -> dict[str, Any]:
    return report(name, result=[{"reference": f"Observation/{each}"} for each in results], **fields)

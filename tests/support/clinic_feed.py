"""A feed of a clinic that has its own numbers for patients, with their crosswalk."""

from pathlib import Path

CLINIC = """
name = "clinic"
source = "clinic"
kind = "tasks"
files = ["clinic*.csv"]
[columns]
task_id = "ID"
patient_id = { column = "MRN", crosswalk = { file = "patients.csv", from = "MRN", to = "FHIR" } }
description = "WHAT"
status = { column = "DONE", values = { Y = "completed", N = "requested" } }
requester_id = { column = "BY" }
authored = { column = "WHEN", optional = true }
"""


def lay_clinic(feeds: Path, crosswalk: str) -> None:
    """Write the feed and its crosswalk, of the columns `MRN` and `FHIR`, into a folder of feeds."""
    (feeds / "clinic.toml").write_text(CLINIC)
    (feeds / "patients.csv").write_text(crosswalk)

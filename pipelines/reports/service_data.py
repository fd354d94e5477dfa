"""Data that tables need and the interface does not show: charges of claims, and patients by sex and year of birth.

The bundled service returns both by a command. Another target is asked for its Claims and PaymentNotices, and for its
patients if the home publishes them. Only sex and year of birth of a patient are kept.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb

from fhir_service.paths import exists
from pipelines.home.files import replace_whole
from pipelines.reports.readings import read_at
from pipelines.reports.results import SearchesById
from pipelines.reports.sweep import FILES, folder_of

CHARGES, PATIENTS = "charges", "patients"
PATIENT = "Patient"
CHARGE_COLUMNS = {
    "claim_id": "VARCHAR",
    "patient_id": "VARCHAR",
    "created": "VARCHAR",
    "cents": "BIGINT",
    "paid_cents": "BIGINT",
    "copaid_cents": "BIGINT",
}
PATIENT_COLUMNS = {"id": "VARCHAR", "gender": "VARCHAR", "birthYear": "BIGINT"}

Tell = Callable[[str, Path], None]


def keep_told(tell: Tell, home: Path, target: str, name: str) -> None:
    """Keep the service's file of `charges` or `patients`."""
    folder = folder_of(home, target)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = folder / f"{name}.told"
    tell(name, part)
    replace_whole(part, _file(folder, name))


def forget_patients(home: Path, target: str) -> None:
    """Remove everything that is kept about patients."""
    folder = folder_of(home, target)
    for name in (_file(folder, PATIENTS).name, *FILES[PATIENT]):
        (folder / name).unlink(missing_ok=True)


class WithoutNames:
    """A search of patients that keeps each patient's id, sex, year of birth and time of change, and nothing else."""

    def __init__(self, client: SearchesById) -> None:
        self._client = client

    def pages(self, resource_type: str, params: dict[str, str] | None = None) -> Iterable[dict[str, Any]]:
        for page in self._client.pages(resource_type, params):
            entries = page.get("entry", [])
            yield page | {"entry": list(map(_least, entries)) if isinstance(entries, list) else entries}


def _least(entry: Any) -> Any:
    resource = entry.get("resource") if isinstance(entry, dict) else None
    if not isinstance(resource, dict):
        return entry
    kept = {name: resource[name] for name in ("resourceType", "id", "gender") if name in resource}
    if isinstance(meta := resource.get("meta"), dict):
        kept["meta"] = {"lastUpdated": meta.get("lastUpdated")}
    if isinstance(born := resource.get("birthDate"), str) and born[:4].isdecimal():
        kept["birthYear"] = int(born[:4])
    return {"resource": kept}


def stage_told(db: duckdb.DuckDBPyConnection, folder: Path, with_patients: bool) -> None:
    """Stage the relation `charges`, its time of reading `charges_read`, and the patients as `told_patient`."""
    db.register(CHARGES, _rows(db, _file(folder, CHARGES), CHARGE_COLUMNS))
    # Bind the time as a text, since DuckDB looks for pandas if a datetime is bound.
    at = read_at(folder, CHARGES)
    db.execute("CREATE TEMP TABLE charges_read AS SELECT ?::TIMESTAMPTZ AS read_at", [at and at.isoformat()])
    db.execute("CREATE TEMP TABLE told_patient (patient_id VARCHAR, gender VARCHAR, birth_year BIGINT)")
    if not with_patients:
        return
    db.register("told", _rows(db, _file(folder, PATIENTS), PATIENT_COLUMNS))
    db.execute("INSERT INTO told_patient FROM told")
    swept = folder / FILES[PATIENT][0]
    if exists(swept) and not exists(_file(folder, PATIENTS)):
        db.execute(
            """INSERT INTO told_patient SELECT report_id, body ->> '$.gender', (body ->> '$.birthYear')::BIGINT
            FROM read_parquet($1) WHERE gone_at IS NULL""",
            [str(swept)],
        )
    db.unregister("told")


def _rows(db: duckdb.DuckDBPyConnection, file: Path, columns: dict[str, str]) -> duckdb.DuckDBPyRelation:
    if not exists(file) or not file.stat().st_size:
        none = ", ".join(f"NULL::{kind} AS {name}" for name, kind in columns.items())
        return db.sql(f"SELECT {none} WHERE false")
    return db.sql(
        "FROM read_json($file, format = 'newline_delimited', columns = $columns)",
        params={"file": str(file), "columns": columns},
    )


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.ndjson"

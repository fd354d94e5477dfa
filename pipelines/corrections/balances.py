"""Patients' balances from the bundled store, for people who correct payments above a balance.

A balance is written only into files of the home that hold rows anyway, never into outcomes, logs or Dagster.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import duckdb
from sqlalchemy import select

from fhir_service.interface.billing import ABOVE_BALANCE
from fhir_service.paths import exists
from pipelines.ledger import tables as t
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import Reason
from pipelines.runs.lines import dollars
from pipelines.session.bundled import STORE


def with_balances(
    home: Path, ledger: Ledger, target: str, reasons: Mapping[str, list[Reason]]
) -> Mapping[str, list[Reason]]:
    """Return the reasons of rejects by id. Add the balance to reasons of payments above it, if it can be read now."""
    above = [name for name, each in reasons.items() if any(ABOVE_BALANCE in reason.message for reason in each)]
    if not above:
        return reasons
    patients = _patients(ledger, above)
    owed = _owed(home / STORE, target, set(patients.values()))
    return {
        name: [_said(reason, owed.get(patients.get(name, ""))) for reason in each] for name, each in reasons.items()
    }


def _said(reason: Reason, cents: int | None) -> Reason:
    if cents is None or ABOVE_BALANCE not in reason.message:
        return reason
    return reason._replace(message=f"{reason.message}, which is {dollars(cents)} now")


def _patients(ledger: Ledger, rejects: Iterable[str]) -> dict[str, str]:
    reject = t.reject.c
    found = ledger.read_of(select(reject.reject_id, reject.patient_id), reject.reject_id, rejects)
    return {name: patient for name, patient in found if patient}


def _owed(store: Path, target: str, patients: set[str]) -> dict[str, int]:
    """Return the cents owed by patient, 0 without an account. Return nothing if the store is another target's or a
    process has it open, or if the service was killed.
    """
    # The service moves the content of this file into the tables when it opens the store.
    if not exists(store) or exists(store.with_name(f"{store.name}.ahead")):
        return {}
    try:
        with duckdb.connect(str(store), read_only=True) as connection:
            said = connection.execute("SELECT 'urn:uuid:' || value FROM store WHERE name = 'id'").fetchall()
            if said != [(target,)]:
                return {}
            query = "SELECT patient, charged - paid FROM account WHERE list_contains($1, patient)"
            return dict.fromkeys(patients, 0) | dict(connection.execute(query, [sorted(patients)]).fetchall())
    except duckdb.Error:
        return {}

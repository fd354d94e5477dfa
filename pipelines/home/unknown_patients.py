"""Ids of patients that the target is not known to have: replace them by keyed hashes in the published tables.

Such an id may be a person's number in another system, if a feed reads the wrong column. The target is known to have a
patient for whom it took a record, or whom one of its reports or responses names. It is also known to have one whose
balance a payment exceeded. No other refusal proves it, since other servers' messages about unknown patients vary. A
refusal may name others than the record's patient, such as the person who answered.
"""

from pathlib import Path

import duckdb

from fhir_service.interface.billing import ABOVE_BALANCE
from pipelines.home.files import made_once

KEY = "hash.key"
"""The home's file with the key of the hashes. With another key, an id has another hash."""
TABLES = ("ledger_record", "ledger_repeat", "ledger_reject", "waiting_payment")

KNOWN = f"""
CREATE TEMP TABLE known_patient AS
SELECT target, patient_id
FROM (SELECT target, patient_id, state FROM ledger_record UNION ALL SELECT target, patient_id, state FROM ledger_former)
WHERE patient_id IS NOT NULL AND state IN ('created', 'adopted', 'updated', 'superseded', 'undone')
UNION
SELECT target, patient_id FROM swept_report CROSS JOIN this_publication WHERE patient_id IS NOT NULL
UNION
SELECT target, patient_id FROM swept_response CROSS JOIN this_publication WHERE patient_id IS NOT NULL
UNION
SELECT ledger_reject.target, ledger_reject.patient_id FROM ledger_reject
JOIN ledger_reject_reason AS reason USING (reject_id)
WHERE ledger_reject.patient_id IS NOT NULL AND ledger_reject.stage = 'load'
    AND contains(reason.message, '{ABOVE_BALANCE}')"""
NAMED = """
CREATE TEMP TABLE named_patient AS
WITH named AS (
    SELECT reason.reject_id, ledger_reject.target, ledger_reject.patient_id FROM ledger_reject
    JOIN ledger_reject_reason AS reason USING (reject_id)
    WHERE ledger_reject.patient_id IS NOT NULL
    UNION
    SELECT reason.reject_id, ledger_reject.target,
        unnest(regexp_extract_all(reason.message, 'Patient/([A-Za-z0-9.-]{0,63}[A-Za-z0-9-])', 1))
    FROM ledger_reject JOIN ledger_reject_reason AS reason USING (reject_id)
    WHERE contains(reason.message, 'Patient/')
)
SELECT *, row_number() OVER (PARTITION BY reject_id ORDER BY length(patient_id) DESC, patient_id) AS number
FROM named ANTI JOIN known_patient USING (target, patient_id)"""
STRANGER = """
CREATE TEMP MACRO stranger(id) AS
    'unknown-' || left(sha256((SELECT value FROM hash_key) || sha256((SELECT value FROM hash_key) || id)), 16)"""
ARE_STRANGERS = f"""
SELECT EXISTS (
    FROM ({" UNION ALL ".join(f"SELECT target, patient_id FROM {table}" for table in TABLES)}) AS each
    ANTI JOIN known_patient USING (target, patient_id)
    WHERE patient_id IS NOT NULL), (SELECT coalesce(max(number), 0) FROM named_patient)"""
HIDE = """
UPDATE {table} SET patient_id = stranger(patient_id)
WHERE patient_id IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM known_patient
    WHERE known_patient.target = {table}.target AND known_patient.patient_id = {table}.patient_id)"""
HIDE_IN_MESSAGES = """
UPDATE ledger_reject_reason SET message = regexp_replace(
    message, '(^|[^A-Za-z0-9])' || regexp_escape(patient_id) || '($|[^A-Za-z0-9])',
    '\\1' || stranger(patient_id) || '\\2', 'g')
FROM named_patient
WHERE named_patient.reject_id = ledger_reject_reason.reject_id AND number = ?"""


def hide_strangers(db: duckdb.DuckDBPyConnection, home: Path) -> None:
    """Replace such ids by keyed hashes in the tables from which a publication is made."""
    db.execute("CREATE TEMP TABLE hash_key AS SELECT ?::VARCHAR AS value", [_key(home)])
    db.execute(KNOWN)
    db.execute(NAMED)
    [(are_there, most_of_a_reject)] = db.execute(ARE_STRANGERS).fetchall()
    if not (are_there or most_of_a_reject):
        return  # mostly so: five statements without effect take as long to plan as others
    db.execute(STRANGER)
    for number in range(1, most_of_a_reject + 1):
        db.execute(HIDE_IN_MESSAGES, [number])
    for table in TABLES:
        db.execute(HIDE.format(table=table))


def _key(home: Path) -> str:
    """Return the key of a home, made at its first publication. Keys of studies are made beside it."""
    return made_once(home / KEY, 32)

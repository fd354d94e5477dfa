-- table import_row: One row per source record that the import began to load, in the file where it came. A row keeps its
--   state where a later file has updated or superseded its record: the row of that file says so. A response that was
--   superseded is not in the chart any more.
-- inputs: ledger_record, ledger_repeat, ledger_batch
-- references: batch_id import_batch
-- column batch_id VARCHAR internal: Batch of the file.
-- column target VARCHAR internal: The target it was loaded into.
-- column feed VARCHAR internal: Feed that read the file.
-- column file_name VARCHAR internal: Name of the file as received.
-- column source VARCHAR internal: System that made the key.
-- column source_key VARCHAR internal: The record's key in its source.
-- column line BIGINT internal: First physical line of the record in the file.
-- column state VARCHAR internal: Its state: planned, sending, created, adopted, unchanged, updated, superseded,
--   skipped, refused, in_doubt or undone.
-- column resource_type VARCHAR internal: FHIR resource that it becomes.
-- column resource_id VARCHAR internal: Id of its resource at the target, as of finished_at. Where the record was made
--   anew later, the row that was sent has the new id, and rows that only repeated it keep the old one.
-- column patient_id VARCHAR internal: Id of the patient.
-- column source_at TIMESTAMPTZ internal: The record's own time (paid on, authored), UTC.
-- column amount DECIMAL(18,2) internal: Amount in US dollars; empty where the record has none.
-- column attempts BIGINT internal: In how many runs its key was sent so far, of any file; 0 for unchanged and
--   skipped.
-- column http_status BIGINT internal: Status of the last answer; empty where there was none.
-- column first_sent_at TIMESTAMPTZ internal: When a record of its key was first sent, UTC; empty for a line that
--   repeats one.
-- column finished_at TIMESTAMPTZ internal: When its outcome was known, UTC.
WITH later AS (
    SELECT *
    FROM ledger_repeat
    WHERE
        NOT EXISTS (
            SELECT 1
            FROM ledger_record
            WHERE
                ledger_record.target = ledger_repeat.target
                AND ledger_record.batch_id = ledger_repeat.batch_id
                AND ledger_record.line = ledger_repeat.line
                AND ledger_record.key = ledger_repeat.key
        )
),

appearance AS (
    SELECT *
    FROM ledger_record
    UNION ALL BY NAME
    SELECT *
    FROM later
)

SELECT
    appearance.batch_id,
    appearance.target,
    ledger_batch.feed,
    ledger_batch.file_name,
    appearance.source,
    appearance.key AS source_key,
    appearance.line,
    appearance.state,
    appearance.resource_type,
    appearance.resource_id,
    appearance.patient_id,
    appearance.source_at,
    appearance.amount,
    appearance.attempts,
    appearance.http_status,
    appearance.first_sent_at,
    appearance.finished_at
FROM appearance
LEFT JOIN ledger_batch ON appearance.target = ledger_batch.target AND appearance.batch_id = ledger_batch.batch_id
ORDER BY appearance.target, appearance.batch_id, appearance.line

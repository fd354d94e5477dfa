-- table import_batch: One row per received file and target, with the first outcome of its records.
--   records = accepted + rejected; accepted = created + adopted + unchanged + updated + superseded + skipped + refused
--   + in_doubt; lines = header + not_taken + lines of records. Later runs of the file are in import_run.
--   The counts of a running batch are those at this publication.
-- inputs: ledger_batch, unanswered
-- key: target, batch_id
-- column batch_id VARCHAR internal: Name of the batch: the feed and the first 12 digits of the file's hash.
-- column target VARCHAR internal: The target it was loaded into: the id of its store, else its address.
-- column feed VARCHAR internal: Feed that read the file.
-- column source VARCHAR internal: System that made the keys.
-- column resource_type VARCHAR internal: FHIR resource that its records become.
-- column state VARCHAR internal: running, finished, stopped (reject limit, control totals, copayments to confirm) or
--   failed (unreadable, or this program failed on it).
-- column file_name VARCHAR internal: Name of the file as received.
-- column file_sha256 VARCHAR internal: SHA-256 of the file, hexadecimal.
-- column received_at TIMESTAMPTZ internal: When the file was first received, UTC.
-- column finished_at TIMESTAMPTZ internal: When the batch ended, UTC.
-- column lines BIGINT internal: Physical lines of the file.
-- column not_taken BIGINT internal: Lines that the feed does not take: filtered out, blank, a trailer.
-- column records BIGINT internal: Records read: accepted and rejected.
-- column accepted BIGINT internal: Records that every rule accepts; equal repeats within the file count.
-- column rejected BIGINT internal: Records set aside before anything was sent.
-- column created BIGINT internal: Created at the target by the import.
-- column adopted BIGINT internal: Found at the target with the same content, and taken as the record's.
-- column unchanged BIGINT internal: Known from before with the same content; nothing sent.
-- column updated BIGINT internal: Changed at the target (tasks).
-- column superseded BIGINT internal: Replaced at the target by a new one (responses).
-- column skipped BIGINT internal: Equal repeats within the file, and rows that the feed's policy skips.
-- column refused BIGINT internal: Refused by the target; also rejects of stage load.
-- column in_doubt BIGINT internal: Sent; the outcome is not known.
-- column amount_received DECIMAL(18,2) internal: Sum of the amounts of all records, US dollars.
-- column amount_accepted DECIMAL(18,2) internal: Sum of the amounts of accepted records, US dollars.
-- column amount_created DECIMAL(18,2) internal: Sum of the amounts of created records, US dollars.
-- column copayments BIGINT internal: Accepted payments with a claim, which may take the balance below zero; empty
--   where an older version did not count them.
-- column amount_copayments DECIMAL(18,2) internal: Sum of their amounts, US dollars.
-- column unanswered BIGINT internal: Of a stopped or failed file: its records that nothing answers. A record is answered
--   by its content in the ledger, by its key in a later file, or once its reject is closed or discarded; by a purge all
--   are. Empty where they are not known, or the file was not stopped and did not fail.
WITH open AS (
    SELECT
        target,
        batch_id,
        CASE WHEN count(*) = count(line) THEN count(*) END AS number
    FROM unanswered
    GROUP BY target, batch_id
)

SELECT
    batch_id,
    target,
    feed,
    source,
    resource_type,
    state,
    file_name,
    file_sha256,
    received_at,
    finished_at,
    lines,
    not_taken,
    records,
    accepted,
    rejected,
    created,
    adopted,
    unchanged,
    updated,
    superseded,
    skipped,
    refused,
    in_doubt,
    amount_received,
    amount_accepted,
    amount_created,
    copayments,
    amount_copayments,
    CASE
        WHEN state NOT IN ('stopped', 'failed') THEN NULL
        WHEN open.batch_id IS NULL THEN 0
        ELSE open.number
    END AS unanswered
FROM ledger_batch
LEFT JOIN open USING (target, batch_id)
ORDER BY received_at, target, batch_id

-- table import_batch: One row per received file and target, with the first outcome of its records. Later runs of the
--   file are in import_run. These add up: records = accepted + rejected. The accepted are the sum of created, adopted,
--   unchanged, updated, superseded, skipped, refused and in_doubt. The lines are the sum of header, not_taken and the
--   lines of records. Of a running, stopped or failed batch, records without an outcome are in accepted alone. The
--   counts of a running batch are those at this publication.
-- inputs: ledger_batch, unanswered
-- key: target, batch_id
-- column batch_id VARCHAR internal: Name of the batch: the feed and the first 12 digits of the file's hash.
-- column target VARCHAR internal: The target it was loaded into: the id of its store, else its address.
-- column feed VARCHAR internal: Feed that read the file.
-- column source VARCHAR internal: System that made the keys.
-- column resource_type VARCHAR internal: FHIR resource that its records become.
-- column state VARCHAR internal: running, finished, stopped (reject limit, control totals, copayments to confirm;
--   or ended by undo before it was finished) or failed (unreadable, or this program failed on it).
-- column file_name VARCHAR internal: Name of the file as received.
-- column file_sha256 VARCHAR internal: SHA-256 of the file, hexadecimal.
-- column received_at TIMESTAMPTZ internal: When the file was first received, UTC.
-- column finished_at TIMESTAMPTZ internal: When the batch ended, UTC; empty while it is running, as with rows in doubt.
-- column lines BIGINT internal: Physical lines of the file.
-- column not_taken BIGINT internal: Lines that the feed does not take: filtered out, blank, a trailer.
-- column records BIGINT internal: Records read: accepted and rejected.
-- column accepted BIGINT internal: Records that every rule accepts; equal repeats within the file count.
-- column rejected BIGINT internal: Records set aside before anything was sent.
-- column created BIGINT internal: Created at the target by the import.
-- column adopted BIGINT internal: Found at the target with the same content, and taken as the record's.
-- column unchanged BIGINT internal: Known from before with the same content; nothing sent.
-- column updated BIGINT internal: Changed at the target (tasks).
-- column superseded BIGINT internal: Took the place of an earlier one of their key at the target (responses).
-- column skipped BIGINT internal: Equal repeats within the file, and rows that the feed's policy skips.
-- column refused BIGINT internal: Refused by the target; also rejects of stage load.
-- column in_doubt BIGINT internal: Sent; the outcome is not known.
-- column amount_received DECIMAL(18,2) internal: Sum of the amounts that could be read, US dollars.
-- column amount_accepted DECIMAL(18,2) internal: Sum of the amounts of accepted records, US dollars.
-- column amount_created DECIMAL(18,2) internal: Sum of the amounts of created records, US dollars.
-- column copayments BIGINT internal: Accepted payments with a claim, which may take the balance below zero; empty
--   where an older version did not count them.
-- column amount_copayments DECIMAL(18,2) internal: Sum of their amounts, US dollars.
-- column unanswered BIGINT internal: Records of a stopped or failed file that are still to be loaded, discarded or
--   purged; their content or key in a later file counts as loaded. Empty for other files, and where not known.
WITH open AS (
    SELECT
        target,
        batch_id,
        CASE WHEN count(*) = count(line) THEN count(*) END AS number
    FROM unanswered
    GROUP BY target, batch_id
)

SELECT
    ledger_batch.batch_id,
    ledger_batch.target,
    ledger_batch.feed,
    ledger_batch.source,
    ledger_batch.resource_type,
    ledger_batch.state,
    ledger_batch.file_name,
    ledger_batch.file_sha256,
    ledger_batch.received_at,
    CASE WHEN ledger_batch.state <> 'running' THEN ledger_batch.finished_at END AS finished_at,
    ledger_batch.lines,
    ledger_batch.not_taken,
    ledger_batch.records,
    ledger_batch.accepted,
    ledger_batch.rejected,
    ledger_batch.created,
    ledger_batch.adopted,
    ledger_batch.unchanged,
    ledger_batch.updated,
    ledger_batch.superseded,
    ledger_batch.skipped,
    ledger_batch.refused,
    ledger_batch.in_doubt,
    ledger_batch.amount_received,
    ledger_batch.amount_accepted,
    ledger_batch.amount_created,
    ledger_batch.copayments,
    ledger_batch.amount_copayments,
    CASE
        WHEN ledger_batch.state NOT IN ('stopped', 'failed') THEN NULL
        WHEN open.batch_id IS NULL THEN 0
        ELSE open.number
    END AS unanswered
FROM ledger_batch
LEFT JOIN open ON ledger_batch.target = open.target AND ledger_batch.batch_id = open.batch_id
ORDER BY ledger_batch.received_at, ledger_batch.target, ledger_batch.batch_id

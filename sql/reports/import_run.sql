-- table import_run: One row per run of a batch into the target of this publication, with the outcomes of that run.
-- inputs: ledger_run, ledger_batch, this_publication
-- key: batch_id, run
-- references: batch_id import_batch
-- column batch_id VARCHAR internal: Batch that ran.
-- column feed VARCHAR internal: Feed that read the file.
-- column file_name VARCHAR internal: Name of the file as received.
-- column run BIGINT internal: Number of the run, from 1.
-- column started_at TIMESTAMPTZ internal: Start, UTC.
-- column finished_at TIMESTAMPTZ internal: End, UTC; empty while it runs and after a crash.
-- column state VARCHAR internal: finished, stopped or failed, as in import_batch; running, also if it left rows without
--   an outcome to a later run; or cut off. A run is cut off if it was killed, or this program failed on the file.
-- column feed_hash VARCHAR internal: Hash of the feed file's content that the run used.
-- column rules_version VARCHAR internal: Version of the rules that the run applied.
-- column lines BIGINT internal: Physical lines of the file; of a retry, those of its rejects.
-- column not_taken BIGINT internal: Lines that the feed does not take: filtered out, blank, a trailer.
-- column records BIGINT internal: Records read: accepted and rejected.
-- column accepted BIGINT internal: Records that every rule accepts; equal repeats within the file count.
-- column rejected BIGINT internal: Records set aside before anything was sent.
-- column created BIGINT internal: Created at the target by the import.
-- column adopted BIGINT internal: Found at the target with the same content, and taken as the record's.
-- column unchanged BIGINT internal: Known from before with the same content; nothing sent.
-- column updated BIGINT internal: Changed at the target (tasks).
-- column superseded BIGINT internal: Took the place of an earlier one of their key at the target (responses).
-- column skipped BIGINT internal: Equal repeats within the file, and rows left as they are: by the feed's policy, or
--   since an undo or a later file changed their record.
-- column refused BIGINT internal: Refused by the target; also rejects of stage load.
-- column in_doubt BIGINT internal: Sent; the outcome is not known.
-- column amount_received DECIMAL(18,2) internal: Sum of the amounts that could be read, US dollars.
-- column amount_accepted DECIMAL(18,2) internal: Sum of the amounts of accepted records, US dollars.
-- column amount_created DECIMAL(18,2) internal: Sum of the amounts of created records, US dollars.
-- column copayments BIGINT internal: Accepted payments with a claim, which may take the balance below zero; empty
--   where an older version did not count them.
-- column amount_copayments DECIMAL(18,2) internal: Sum of their amounts, US dollars.
-- column message VARCHAR text: Why nothing was sent, or what else is to be known of the run; empty for most.
SELECT
    ledger_run.batch_id,
    ledger_batch.feed,
    ledger_batch.file_name,
    ledger_run.run,
    ledger_run.started_at,
    ledger_run.finished_at,
    ledger_run.state,
    ledger_run.feed_hash,
    ledger_run.rules_version,
    ledger_run.lines,
    ledger_run.not_taken,
    ledger_run.records,
    ledger_run.accepted,
    ledger_run.rejected,
    ledger_run.created,
    ledger_run.adopted,
    ledger_run.unchanged,
    ledger_run.updated,
    ledger_run.superseded,
    ledger_run.skipped,
    ledger_run.refused,
    ledger_run.in_doubt,
    ledger_run.amount_received,
    ledger_run.amount_accepted,
    ledger_run.amount_created,
    ledger_run.copayments,
    ledger_run.amount_copayments,
    ledger_run.message
FROM ledger_run
LEFT JOIN ledger_batch ON ledger_run.target = ledger_batch.target AND ledger_run.batch_id = ledger_batch.batch_id
INNER JOIN this_publication ON ledger_run.target = this_publication.target
ORDER BY ledger_run.batch_id, ledger_run.run

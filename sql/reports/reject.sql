-- table reject: One row per record set aside by a rule, or refused by the target of this publication.
-- inputs: ledger_reject, ledger_batch, this_publication
-- key: reject_id
-- references: batch_id import_batch
-- column reject_id VARCHAR internal: Name of the reject; a corrected record that carries it as _reject_id closes it.
-- column batch_id VARCHAR internal: Batch of the file.
-- column feed VARCHAR internal: Feed that read the file.
-- column file_name VARCHAR internal: Name of the file as received.
-- column line BIGINT internal: First physical line of the record in the file.
-- column source_key VARCHAR internal: The record's key in its source, where it could be read.
-- column stage VARCHAR internal: Where it was set aside: parse, map, rule or load (refused by the target).
-- column state VARCHAR internal: open, resubmitted, closed or discarded.
-- column attempts BIGINT internal: How often it was tried.
-- column first_seen_at TIMESTAMPTZ internal: First time it was set aside, UTC.
-- column last_seen_at TIMESTAMPTZ internal: Last time it was set aside, UTC.
-- column closed_by_batch VARCHAR internal: Batch whose record settled it.
-- column patient_id VARCHAR internal: Id of the patient whom the record names; empty where it names none.
SELECT
    ledger_reject.reject_id,
    ledger_reject.batch_id,
    ledger_batch.feed,
    ledger_batch.file_name,
    ledger_reject.line,
    ledger_reject.source_key,
    ledger_reject.stage,
    ledger_reject.state,
    ledger_reject.attempts,
    ledger_reject.first_seen_at,
    ledger_reject.last_seen_at,
    ledger_reject.closed_by_batch,
    ledger_reject.patient_id
FROM ledger_reject
LEFT JOIN ledger_batch
    ON ledger_reject.target = ledger_batch.target AND ledger_reject.batch_id = ledger_batch.batch_id
INNER JOIN this_publication ON ledger_reject.target = this_publication.target
ORDER BY ledger_reject.batch_id, ledger_reject.line, ledger_reject.reject_id

-- table reject_reason: One row per reason of a reject, for which it was set aside last (last_seen_at).
-- inputs: ledger_reject_reason, reject
-- references: reject_id reject
-- column reject_id VARCHAR internal: The reject.
-- column rule_id VARCHAR internal: Rule that the record breaks, as in the list of requirements.
-- column expression VARCHAR internal: FHIRPath of the element concerned, or the column of the file.
-- column message VARCHAR internal: What was wrong, in codes, ids and paths; for a refusal, the target's own words.
-- column retryable BOOLEAN internal: True if another try may help without a correction.
SELECT
    reject_id,
    rule_id,
    coalesce(expression, column_name) AS expression,
    message,
    retryable
FROM ledger_reject_reason
WHERE reject_id IN (SELECT reject.reject_id FROM reject)
ORDER BY reject_id, position

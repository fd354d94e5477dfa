-- table payment: One row per payment read from files for the target of this publication, as it stands now. A payment
--   that comes again unchanged counts once, a rejected one that was corrected counts as its correction.
-- inputs: import_row, ledger_reject, this_publication
-- references: batch_id import_batch
-- column batch_id VARCHAR: Batch of the file that it stands in.
-- column line BIGINT: First physical line of the record in the file.
-- column source VARCHAR: System that made the key.
-- column source_key VARCHAR: The payment's key in its source; empty where a rejected record has none.
-- column patient_id VARCHAR: Id of the patient; empty where a rejected record names none.
-- column paid_on DATE: UTC day of the payment in its source; empty where a rejected record has none.
-- column amount DECIMAL(18,2): Amount in US dollars.
-- column fate VARCHAR: created (at the target, adopted ones included), refused (rejected by a rule or refused by the
--   target) or open (under way, in doubt).
-- column resource_id VARCHAR: Id of the PaymentNotice at the target.
WITH loaded AS (
    SELECT
        *,
        CASE WHEN state IN ('created', 'adopted') THEN 'created' ELSE 'open' END AS fate
    FROM import_row
    WHERE state NOT IN ('unchanged', 'skipped', 'refused')
),

set_aside AS (
    SELECT
        *,
        'refused' AS fate
    FROM ledger_reject
    WHERE
        state <> 'closed'
        AND NOT EXISTS (
            SELECT 1
            FROM loaded
            WHERE
                loaded.target = ledger_reject.target
                AND loaded.batch_id = ledger_reject.batch_id
                AND loaded.line = ledger_reject.line
        )
),

every_record AS (
    SELECT *
    FROM loaded
    UNION ALL BY NAME
    SELECT *
    FROM set_aside
)

SELECT
    batch_id,
    line,
    source,
    source_key,
    patient_id,
    source_at::DATE AS paid_on,
    amount,
    fate,
    resource_id
FROM every_record
WHERE
    target IN (SELECT target FROM this_publication)
    AND resource_type = 'PaymentNotice'
    AND amount IS NOT NULL
ORDER BY batch_id, line

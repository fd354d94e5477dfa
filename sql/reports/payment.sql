-- table payment: One row per payment read from files for the target of this publication, in its present state.
--   A payment that comes again unchanged counts once, rejected ones too; one that was corrected counts as its
--   correction. A rejected record without a readable amount has no row.
-- inputs: import_row, ledger_reject, ledger_resubmission, waiting_payment, sent_payment, this_publication
-- references: batch_id import_batch
-- column batch_id VARCHAR: Batch of the file that holds it.
-- column line BIGINT: First physical line of the record in the file.
-- column source VARCHAR: System that made the key.
-- column source_key VARCHAR: The payment's key in its source; empty where a rejected record has none.
-- column patient_id VARCHAR: Id of the patient; empty where a rejected record names none.
-- column paid_on DATE: UTC day of the payment in its source; empty where a rejected record has none.
-- column amount DECIMAL(18,2): Amount in US dollars.
-- column kind VARCHAR: copayment (it has a claim, and is not held against the balance) or balance payment; empty where
--   a rule rejected the record, or its source rows were purged.
-- column claim_id VARCHAR: Id of the Claim that a copayment names; empty for others.
-- column fate VARCHAR: created (at the target, adopted ones included), refused (rejected by a rule or refused by the
--   target) or open (under way, in doubt, waiting).
-- column resource_id VARCHAR: Id of the PaymentNotice at the target.
WITH loaded AS (
    SELECT
        *,
        CASE WHEN state IN ('created', 'adopted') THEN 'created' ELSE 'open' END AS fate
    FROM import_row
    WHERE state NOT IN ('unchanged', 'skipped', 'refused') AND resource_type = 'PaymentNotice'
    UNION ALL BY NAME
    SELECT
        *,
        'PaymentNotice' AS resource_type,
        'open' AS fate
    FROM waiting_payment
),

answered AS (
    SELECT
        again.target,
        again.reject_id
    FROM ledger_resubmission AS again
    SEMI JOIN loaded
        ON again.target = loaded.target AND again.batch_id = loaded.batch_id AND again.line = loaded.line
),

set_aside AS (
    SELECT
        *,
        CASE state WHEN 'resubmitted' THEN 'open' ELSE 'refused' END AS fate
    FROM ledger_reject
    ANTI JOIN loaded
        ON
            ledger_reject.target = loaded.target
            AND ledger_reject.batch_id = loaded.batch_id
            AND ledger_reject.line = loaded.line
    ANTI JOIN answered
        ON
            ledger_reject.target = answered.target
            AND ledger_reject.reject_id = answered.reject_id
            AND ledger_reject.state = 'resubmitted'
    WHERE ledger_reject.state <> 'closed'
),

every_record AS (
    SELECT *
    FROM loaded
    UNION ALL BY NAME
    SELECT *
    FROM set_aside
)

SELECT
    every_record.batch_id,
    every_record.line,
    every_record.source,
    every_record.source_key,
    every_record.patient_id,
    every_record.source_at::DATE AS paid_on,
    every_record.amount,
    CASE
        WHEN sent_payment.claim_id = '' THEN 'balance payment'
        WHEN sent_payment.line IS NOT NULL THEN 'copayment'
    END AS kind,
    nullif(sent_payment.claim_id, '') AS claim_id,
    every_record.fate,
    every_record.resource_id
FROM every_record
LEFT JOIN sent_payment
    ON every_record.batch_id = sent_payment.batch_id AND every_record.line = sent_payment.line
WHERE
    every_record.target IN (SELECT target FROM this_publication)
    AND every_record.resource_type = 'PaymentNotice'
    AND every_record.amount IS NOT NULL
QUALIFY
    row_number() OVER (
        PARTITION BY
            every_record.target,
            every_record.source,
            coalesce(every_record.source_key, every_record.batch_id || ' ' || every_record.line),
            every_record.patient_id,
            every_record.source_at,
            every_record.amount
        ORDER BY every_record.fate, every_record.batch_id, every_record.line
    ) = 1
ORDER BY every_record.batch_id, every_record.line

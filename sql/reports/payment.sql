-- table payment: One row per payment read from files for the target of this publication, in its present state. A
--   payment that comes again unchanged counts once, rejected ones too. One that was corrected counts as its correction.
--   Of a key that was rejected in several files the newest one counts, none if that was corrected. A rejected record
--   without a key is known by patient, time and amount; as many count as one file has alike. Without a time it is the
--   same as one of a later file, or as one that was sent under its key. A rejected record without a readable amount has
--   no row. One that came again with another patient, day or amount, and was rejected for it, has a row beside that of
--   the payment at the target. One that a stopped or failed file left unsent counts until a later file has its key; a
--   rejected one as other rejects do.
-- inputs: import_row, reject, ledger_reject, ledger_batch, ledger_resubmission, waiting_payment, sent_payment,
--   this_publication
-- references: batch_id import_batch, reject_id reject
-- column batch_id VARCHAR internal: Batch of the file that holds it.
-- column feed VARCHAR internal: Feed that read the file.
-- column file_name VARCHAR text: Name of the file as received.
-- column line BIGINT internal: First physical line of the record in the file.
-- column source VARCHAR code: System that made the key.
-- column source_key VARCHAR text: The payment's key in its source; empty where a rejected record has none.
-- column patient_id VARCHAR patient: Id of the patient; empty where a rejected record names none.
-- column paid_on DATE time: UTC day of the payment in its source; empty where none can be read of a rejected record.
-- column amount DECIMAL(18,2) value: Amount in US dollars.
-- column kind VARCHAR code: copayment (it has a claim, and may take the balance below zero) or balance payment; empty
--   where a rule rejected the record, or its source rows were purged.
-- column claim_id VARCHAR key: Id of the Claim that a copayment names; empty for others.
-- column fate VARCHAR code: created (made or adopted at the target), refused (by a rule or by the target), open (under
--   way, in doubt, waiting) or not sent (its file is stopped or failed).
-- column resource_id VARCHAR key: Id of the PaymentNotice at the target.
-- column reject_id VARCHAR internal: The reject that it is, or was under its key before it was corrected; the latest of
--   these.
-- column received_at TIMESTAMPTZ internal: When its file was first received, UTC.
-- column first_sent_at TIMESTAMPTZ internal: When a payment of its key was first sent, UTC; empty where it was not
--   sent, as where a rule rejected it.
-- column finished_at TIMESTAMPTZ internal: When its outcome was known, UTC; for a refused one, when it was last set
--   aside.
WITH loaded AS (
    SELECT
        *,
        CASE WHEN state IN ('created', 'adopted') THEN 'created' ELSE 'open' END AS fate
    FROM import_row
    WHERE state NOT IN ('unchanged', 'skipped', 'refused') AND resource_type = 'PaymentNotice'
    UNION ALL BY NAME
    SELECT *
    FROM waiting_payment
),

loaded_line AS (
    SELECT DISTINCT
        target,
        batch_id,
        line
    FROM loaded
),

answered AS (
    SELECT DISTINCT
        again.target,
        again.reject_id
    FROM ledger_resubmission AS again
    SEMI JOIN loaded_line
        ON
            again.target = loaded_line.target
            AND again.batch_id = loaded_line.batch_id
            AND again.line = loaded_line.line
),

refused_key AS (
    SELECT
        target,
        source,
        source_key,
        min(first_sent_at) AS first_sent_at
    FROM import_row
    WHERE state = 'refused' AND resource_type = 'PaymentNotice'
    GROUP BY target, source, source_key
),

told AS (
    SELECT
        ledger_reject.*,
        refused_key.first_sent_at,
        ledger_reject.reject_id AS own_reject_id,
        ledger_reject.last_seen_at AS finished_at,
        ledger_batch.received_at,
        ledger_reject.state <> 'closed' AND loaded_line.line IS NULL AND answered.reject_id IS NULL AS counts,
        CASE
            WHEN ledger_reject.state = 'resubmitted' AND answered.reject_id IS NULL THEN 'open' ELSE 'refused'
        END AS fate,
        -- Of records without a key: those of one file that are alike are as many payments.
        CASE WHEN ledger_reject.source_key IS NULL THEN row_number() OVER (
            PARTITION BY
                ledger_reject.target,
                ledger_reject.source,
                ledger_reject.batch_id,
                ledger_reject.source_key,
                ledger_reject.patient_id,
                ledger_reject.source_at,
                ledger_reject.amount
            ORDER BY ledger_reject.line
        ) ELSE 0 END AS nth,
        row_number() OVER (
            PARTITION BY
                ledger_reject.target,
                ledger_reject.source,
                ledger_reject.batch_id,
                ledger_reject.source_key,
                ledger_reject.patient_id,
                ledger_reject.amount
            ORDER BY ledger_reject.line
        ) AS nth_of_amount
    FROM ledger_reject
    LEFT JOIN ledger_batch
        ON ledger_reject.target = ledger_batch.target AND ledger_reject.batch_id = ledger_batch.batch_id
    LEFT JOIN loaded_line
        ON
            ledger_reject.target = loaded_line.target
            AND ledger_reject.batch_id = loaded_line.batch_id
            AND ledger_reject.line = loaded_line.line
    LEFT JOIN answered
        ON
            ledger_reject.target = answered.target
            AND ledger_reject.reject_id = answered.reject_id
            AND ledger_reject.state = 'resubmitted'
    LEFT JOIN refused_key
        ON
            ledger_reject.target = refused_key.target
            AND ledger_reject.source = refused_key.source
            AND ledger_reject.source_key = refused_key.source_key
            AND ledger_reject.stage = 'load'
    WHERE ledger_reject.resource_type = 'PaymentNotice'
),

set_aside AS (
    SELECT *
    FROM told
    -- Of what files say different things of, what the newest one says, though it was corrected: all rows of a key, or
    -- one of those that are alike.
    QUALIFY
        batch_id = first_value(batch_id)
            OVER (
                PARTITION BY
                    target,
                    source,
                    source_key,
                    fate,
                    nth,
                    CASE WHEN source_key IS NULL THEN [patient_id, source_at::VARCHAR, amount::VARCHAR] END
                ORDER BY received_at DESC, batch_id DESC
            )
        -- Older versions kept no time of a reject: one without is the same as a later one.
        AND (
            source_key IS NOT NULL
            OR source_at IS NOT NULL
            OR received_at = max(received_at) OVER (
                PARTITION BY target, source, source_key, patient_id, amount, nth_of_amount
            )
        )
),

every_record AS (
    SELECT
        *,
        0 AS nth
    FROM loaded
    UNION ALL BY NAME
    SELECT set_aside.* EXCLUDE (received_at, counts, nth_of_amount)
    FROM set_aside
    -- One of which no day can be read is the payment of its key that was sent.
    ANTI JOIN loaded
        ON
            set_aside.source_at IS NULL
            AND loaded.fate IN ('created', 'open')
            AND set_aside.target = loaded.target
            AND set_aside.source = loaded.source
            AND set_aside.source_key = loaded.source_key
            AND set_aside.patient_id = loaded.patient_id
            AND set_aside.amount = loaded.amount
    WHERE set_aside.counts
),

one AS (
    SELECT every_record.*
    FROM every_record
    LEFT JOIN ledger_batch
        ON every_record.target = ledger_batch.target AND every_record.batch_id = ledger_batch.batch_id
    WHERE
        every_record.target IN (SELECT target FROM this_publication)
        AND every_record.amount IS NOT NULL
    QUALIFY
        row_number() OVER (
            PARTITION BY
                every_record.target,
                every_record.source,
                every_record.source_key,
                every_record.nth,
                every_record.patient_id,
                every_record.source_at,
                every_record.amount
            ORDER BY
                list_position(['created', 'open', 'not sent', 'refused'], every_record.fate) ASC,
                ledger_batch.received_at DESC,
                every_record.batch_id ASC,
                every_record.line ASC
        ) = 1
),

latest_of_key AS (
    SELECT
        target,
        source,
        source_key,
        reject_id
    FROM ledger_reject
    -- An open one is a change of a payment that was sent, and was not corrected to it.
    WHERE resource_type = 'PaymentNotice' AND state IN ('resubmitted', 'closed')
    QUALIFY
        row_number() OVER (PARTITION BY target, source, source_key ORDER BY last_seen_at DESC, reject_id DESC) = 1
)

SELECT
    one.batch_id,
    ledger_batch.feed,
    ledger_batch.file_name,
    one.line,
    one.source,
    one.source_key,
    one.patient_id,
    one.source_at::DATE AS paid_on,
    one.amount,
    CASE
        WHEN sent_payment.claim_id = '' THEN 'balance payment'
        WHEN sent_payment.line IS NOT NULL THEN 'copayment'
    END AS kind,
    nullif(sent_payment.claim_id, '') AS claim_id,
    one.fate,
    one.resource_id,
    coalesce(one.own_reject_id, latest_of_key.reject_id) AS reject_id,
    ledger_batch.received_at,
    one.first_sent_at,
    one.finished_at
FROM one
LEFT JOIN ledger_batch ON one.target = ledger_batch.target AND one.batch_id = ledger_batch.batch_id
LEFT JOIN sent_payment
    ON
        one.batch_id = sent_payment.batch_id
        AND one.line = sent_payment.line
        AND one.source_key = sent_payment.key
LEFT JOIN latest_of_key
    ON
        one.target = latest_of_key.target
        AND one.source = latest_of_key.source
        AND one.source_key = latest_of_key.source_key
ORDER BY one.batch_id, one.line

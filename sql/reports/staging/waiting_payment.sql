-- Makes waiting_payment from the payments that the import made ready to send in unfinished batches (relation ready:
-- batch_id, line, run, source_key, patient_id, source_at, amount): those without a verdict, such as a payment that
-- waits behind one in doubt. Those of a file of which nothing was sent are there until a later file says what its
-- records are: one of its name that went well, as for the page, or any with the payment's key.
WITH latest AS (
    SELECT *
    FROM ready
    QUALIFY row_number() OVER (PARTITION BY batch_id, line ORDER BY run DESC) = 1
),

waiting AS (
    SELECT
        latest.batch_id,
        latest.line,
        ledger_batch.target,
        ledger_batch.source,
        latest.source_key,
        latest.patient_id,
        latest.source_at,
        latest.amount,
        ledger_batch.feed,
        ledger_batch.file_name,
        ledger_batch.received_at,
        CASE WHEN ledger_batch.state IN ('stopped', 'failed') THEN 'not sent' ELSE 'open' END AS fate
    FROM latest
    INNER JOIN ledger_batch ON latest.batch_id = ledger_batch.batch_id
    INNER JOIN this_publication ON ledger_batch.target = this_publication.target
    ANTI JOIN ledger_record AS own
        ON ledger_batch.target = own.target AND latest.batch_id = own.batch_id AND latest.line = own.line
    ANTI JOIN ledger_repeat AS own_repeat
        ON
            ledger_batch.target = own_repeat.target
            AND latest.batch_id = own_repeat.batch_id
            AND latest.line = own_repeat.line
    ANTI JOIN ledger_reject AS own_reject
        ON
            ledger_batch.target = own_reject.target
            AND latest.batch_id = own_reject.batch_id
            AND latest.line = own_reject.line
),

met AS (
    SELECT
        target,
        batch_id,
        source,
        key AS source_key
    FROM ledger_record
    WHERE resource_type = 'PaymentNotice'
    UNION ALL
    SELECT
        target,
        batch_id,
        source,
        key AS source_key
    FROM ledger_repeat
    WHERE resource_type = 'PaymentNotice'
    UNION ALL
    SELECT
        target,
        batch_id,
        source,
        source_key
    FROM ledger_reject
    WHERE resource_type = 'PaymentNotice'
    UNION ALL
    SELECT
        target,
        batch_id,
        source,
        source_key
    FROM waiting
),

met_last AS (
    SELECT
        met.target,
        met.source,
        met.source_key,
        max(ledger_batch.received_at) AS received_at
    FROM met
    INNER JOIN ledger_batch ON met.target = ledger_batch.target AND met.batch_id = ledger_batch.batch_id
    SEMI JOIN waiting
        ON
            met.target = waiting.target
            AND met.source = waiting.source
            AND met.source_key = waiting.source_key
            AND waiting.fate = 'not sent'
    GROUP BY met.target, met.source, met.source_key
)

SELECT
    waiting.batch_id,
    waiting.line,
    waiting.target,
    waiting.source,
    waiting.source_key,
    waiting.patient_id,
    waiting.source_at,
    waiting.amount,
    waiting.fate
FROM waiting
ANTI JOIN met_last
    ON
        waiting.fate = 'not sent'
        AND waiting.target = met_last.target
        AND waiting.source = met_last.source
        AND waiting.source_key = met_last.source_key
        AND waiting.received_at < met_last.received_at
ANTI JOIN replaced_batch
    ON waiting.target = replaced_batch.target AND waiting.batch_id = replaced_batch.batch_id

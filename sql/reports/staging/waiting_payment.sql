-- Makes waiting_payment from the payments that the import made ready to send in unfinished batches (relation ready:
-- batch_id, line, run, source_key, patient_id, source_at, amount): those without a verdict, such as a payment that
-- waits behind one in doubt. Those of a file of which nothing was sent are there as long as nothing answers them
-- (relation unanswered); of a key in several such files, as the newest has it.
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
    LEFT JOIN unanswered
        ON
            ledger_batch.target = unanswered.target
            AND latest.batch_id = unanswered.batch_id
            AND latest.line = unanswered.line
    WHERE ledger_batch.state NOT IN ('stopped', 'failed') OR unanswered.line IS NOT NULL
)

SELECT
    batch_id,
    line,
    target,
    source,
    source_key,
    patient_id,
    source_at,
    amount,
    fate
FROM waiting
QUALIFY fate = 'open' OR received_at = max(received_at) OVER (PARTITION BY target, source, source_key)

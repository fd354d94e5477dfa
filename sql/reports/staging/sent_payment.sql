-- Makes sent_payment from the bodies that the import made ready to send (relation sent: batch_id, line, run,
-- resource_type, body): a row for each payment, as the last run of its file made it. Only a copayment is read as JSON.
SELECT
    batch_id,
    line,
    arg_max(
        CASE
            WHEN contains(body, '/copayment-claims"')
                THEN reference_id(body ->> '$.extension[0].extension[0].valueReference.reference', 'Claim')
            ELSE ''
        END,
        run
    ) AS claim_id
FROM sent
WHERE resource_type = 'PaymentNotice'
GROUP BY batch_id, line

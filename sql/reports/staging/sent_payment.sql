-- Makes sent_payment from body_of_version and the bodies that the import made ready to send (relation sent): a row for
-- each payment of a line, as its record was sent; where the line has no record, as the last run of its file made it.
-- Only a copayment is read as JSON.
WITH of_record AS (
    SELECT *
    FROM body_of_version
    WHERE resource_type = 'PaymentNotice' AND version IS NULL
),

of_line AS (
    SELECT
        sent.batch_id,
        sent.line,
        sent.key,
        sent.batch_id AS body_batch_id,
        sent.folder AS body_folder,
        sent.line AS body_line
    FROM sent
    ANTI JOIN of_record
        ON sent.batch_id = of_record.batch_id AND sent.line = of_record.line AND sent.key = of_record.key
    WHERE sent.resource_type = 'PaymentNotice'
    QUALIFY
        row_number() OVER (
            PARTITION BY sent.batch_id, sent.line, sent.key ORDER BY sent.run DESC, sent.folder DESC
        ) = 1
),

place AS (
    SELECT * EXCLUDE (resource_type, source, version)
    FROM of_record
    UNION ALL BY NAME
    SELECT *
    FROM of_line
)

SELECT
    place.batch_id,
    place.line,
    place.key,
    CASE
        WHEN contains(sent.body, '/copayment-claims"')
            THEN reference_id(sent.body ->> '$.extension[0].extension[0].valueReference.reference', 'Claim')
        ELSE ''
    END AS claim_id
FROM place
INNER JOIN sent
    ON place.body_batch_id = sent.batch_id AND place.body_folder = sent.folder AND place.body_line = sent.line

-- table payment_reconciliation: Payments per patient and day, from file to the target of this publication, to the cent.
--   A payment that comes again unchanged counts once; a rejected one that was corrected counts as its correction.
-- inputs: payment
-- key: patient_id, paid_on
-- column patient_id VARCHAR patient: Id of the patient; empty where a rejected record names none.
-- column paid_on DATE time: UTC day of the payment in its source; empty where none can be read of a rejected record.
-- column received DECIMAL(18,2) value: Sum of the amounts read from files, US dollars.
-- column created DECIMAL(18,2) value: Sum of the amounts that the import made at the target or adopted there, US
--   dollars.
-- column refused DECIMAL(18,2) value: Sum of the amounts rejected by a rule or refused by the target, US dollars.
-- column difference DECIMAL(18,2) value: received less created less refused: payments under way, in doubt, or left
--   unsent by a stopped or failed file, US dollars.
WITH patient_day AS (
    SELECT
        patient_id,
        paid_on,
        sum(amount) AS received,
        coalesce(sum(amount) FILTER (WHERE fate = 'created'), 0) AS created,
        coalesce(sum(amount) FILTER (WHERE fate = 'refused'), 0) AS refused
    FROM payment
    GROUP BY patient_id, paid_on
)

SELECT
    patient_id,
    paid_on,
    in_dollars(received) AS received,
    in_dollars(created) AS created,
    in_dollars(refused) AS refused,
    in_dollars(received - created - refused) AS difference
FROM patient_day
ORDER BY patient_id, paid_on

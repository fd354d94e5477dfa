-- table payment_by_day: Payments per day, source and fate, counted as in payment.
-- inputs: payment
-- key: paid_on, source, fate
-- column paid_on DATE internal: UTC day of the payments in their source; empty for rejected records without one.
-- column source VARCHAR internal: System that made the keys.
-- column fate VARCHAR internal: created, refused, open or not sent, as in payment.
-- column payments BIGINT internal: Number of payments.
-- column patients BIGINT internal: Number of different patients among them.
-- column amount DECIMAL(18,2) internal: Sum of the amounts, US dollars.
SELECT
    paid_on,
    source,
    fate,
    count(*) AS payments,
    count(DISTINCT patient_id) AS patients,
    in_dollars(sum(amount)) AS amount
FROM payment
GROUP BY paid_on, source, fate
ORDER BY paid_on, source, fate

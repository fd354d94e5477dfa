-- Makes charge, a row for each Claim that charges something: from what the bundled service tells (relation charges:
-- claim_id, patient_id, created, cents, paid_cents, copaid_cents), else from the Claims and PaymentNotices of the
-- target (relations read_claims, read_payments: report_id, body, gone_at). There payments are applied as the service
-- does: a copayment to its claim, all else to the oldest claims first. What each claim is paid does not depend on the
-- order of the payments. A Claim with an amount that is not in dollars charges nothing, and a payment that is not pays
-- nothing. Relation charges_read: when they were read last.
WITH claim AS (
    SELECT
        report_id AS claim_id,
        reference_id(body ->> '$.patient.reference', 'Patient') AS patient_id,
        body ->> '$.created' AS created,
        try_cast(round(100 * coalesce(
            try_cast(body ->> '$.total.value' AS DOUBLE),
            list_sum(list_transform(
                json_extract(body, '$.item[*]'),
                LAMBDA each: coalesce(
                    try_cast(each ->> '$.net.value' AS DOUBLE),
                    try_cast(each ->> '$.unitPrice.value' AS DOUBLE)
                    * coalesce(try_cast(each ->> '$.quantity.value' AS DOUBLE), 1)
                    * coalesce(try_cast(each ->> '$.factor' AS DOUBLE), 1)
                )
            ))
        )) AS BIGINT) AS cents
    FROM read_claims
    WHERE
        gone_at IS NULL AND coalesce(body ->> '$.status', '') NOT IN ('cancelled', 'draft', 'entered-in-error')
        AND coalesce(body ->> '$.total.currency', 'USD') = 'USD'
        AND len(list_filter(body ->> '$.item[*].*.currency', LAMBDA each: each <> 'USD')) = 0
),

payment AS (
    SELECT
        reference_id(body ->> '$.request.reference', 'Patient') AS patient_id,
        reference_id(
            list_filter(
                json_extract(body, '$.extension[*]'),
                LAMBDA each: ends_with(each ->> '$.url', '/copayment-claims')
            )[1] ->> '$.extension[0].valueReference.reference',
            'Claim'
        ) AS claim_id,
        try_cast(round(100 * try_cast(body ->> '$.amount.value' AS DOUBLE)) AS BIGINT) AS cents
    FROM read_payments
    WHERE
        -- Else no row is used: the bundled service tells its charges, and may have a million payments.
        EXISTS (SELECT 1 FROM read_claims)
        AND gone_at IS NULL AND coalesce(body ->> '$.status', '') NOT IN ('cancelled', 'draft', 'entered-in-error')
        AND coalesce(body ->> '$.amount.currency', 'USD') = 'USD'
),

copaid AS (
    SELECT
        patient_id,
        claim_id,
        sum(cents) AS cents
    FROM payment
    WHERE claim_id IS NOT NULL
    GROUP BY patient_id, claim_id
),

direct AS (
    SELECT
        claim.*,
        coalesce(copaid.cents, 0)::BIGINT AS copaid_cents,
        least(claim.cents, coalesce(copaid.cents, 0)) AS direct_cents
    FROM claim
    LEFT JOIN copaid ON claim.claim_id = copaid.claim_id AND claim.patient_id = copaid.patient_id
    WHERE claim.cents > 0
),

total AS (
    SELECT
        patient_id,
        sum(cents) AS cents
    FROM payment
    GROUP BY patient_id
),

used AS (
    SELECT
        patient_id,
        sum(direct_cents) AS cents
    FROM direct
    GROUP BY patient_id
),

pool AS (
    SELECT
        total.patient_id,
        total.cents - coalesce(used.cents, 0) AS cents
    FROM total
    LEFT JOIN used ON total.patient_id = used.patient_id
),

in_order AS (
    SELECT
        direct.*,
        coalesce(pool.cents, 0) AS left_over,
        direct.cents - direct.direct_cents AS room,
        coalesce(sum(room) OVER (
            PARTITION BY direct.patient_id
            ORDER BY moment(direct.created), direct.claim_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS room_before
    FROM direct
    LEFT JOIN pool ON direct.patient_id = pool.patient_id
)

SELECT
    claim_id,
    patient_id,
    created,
    cents,
    paid_cents,
    copaid_cents,
    'target' AS applied_by,
    (SELECT max(charges_read.read_at) FROM charges_read) AS read_at
FROM charges
UNION ALL
SELECT
    claim_id,
    patient_id,
    created,
    cents,
    (direct_cents + greatest(0, least(room, left_over - room_before)))::BIGINT AS paid_cents,
    copaid_cents,
    'publication' AS applied_by,
    (SELECT max(charges_read.read_at) FROM charges_read) AS read_at
FROM in_order
WHERE NOT EXISTS (SELECT 1 FROM charges)

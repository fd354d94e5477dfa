-- table claim_balance: One row per Claim of the target that charges something, as last read, with what is paid and what
--   is open. Empty where the target does not show its Claims. All payments at the target count, not only those of the
--   import. The balances are those of the reading (read_at), without later payments and charges.
-- inputs: charge
-- key: claim_id
-- column claim_id VARCHAR key: Id of the Claim at the target.
-- column patient_id VARCHAR patient: Id of the patient.
-- column charged_on DATE time: UTC day on which the Claim was created.
-- column charged DECIMAL(18,2) value: Its total, else the sum of its items, in US dollars.
-- column copayments DECIMAL(18,2) value: Sum of the copayments that name it, in US dollars; one may be above what was
--   open.
-- column paid DECIMAL(18,2) value: Part of it that payments have covered, copayments included, in US dollars.
-- column open DECIMAL(18,2) value: charged less paid, in US dollars.
-- column applied_by VARCHAR code: target if the target tells which payment covers which claim; publication if they were
--   applied here, a copayment to its claim first and all else to the oldest claims first.
-- column read_at TIMESTAMPTZ internal: When the target's Claims and payments were read, UTC; empty where that is not
--   known.
SELECT
    claim_id,
    patient_id,
    moment(created)::DATE AS charged_on,
    dollars(cents) AS charged,
    dollars(copaid_cents) AS copayments,
    dollars(paid_cents) AS paid,
    dollars(cents - paid_cents) AS open,
    applied_by,
    read_at
FROM charge
ORDER BY patient_id, charged_on, claim_id

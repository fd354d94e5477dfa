-- table record_by_month: Records per month of their own time, source, resource and state, for the target of this
--   publication. Each record counts once, as it is now, however often it came; rejected and refused ones are in reject.
-- inputs: ledger_record, this_publication
-- key: month, source, resource_type, state
-- column month DATE internal: First day of the UTC month of source_at; empty for records without a time of their own.
-- column source VARCHAR internal: System that made the keys.
-- column resource_type VARCHAR internal: FHIR resource that the records become.
-- column state VARCHAR internal: Their state now, as in import_row.
-- column records BIGINT internal: Number of records.
-- column patients BIGINT internal: Number of different patients among them.
SELECT
    date_trunc('month', source_at)::DATE AS month,
    source,
    resource_type,
    state,
    count(*) AS records,
    count(DISTINCT patient_id) AS patients
FROM ledger_record
WHERE
    target IN (SELECT target FROM this_publication)
    AND state NOT IN ('unchanged', 'skipped', 'refused')
GROUP BY ALL
ORDER BY ALL

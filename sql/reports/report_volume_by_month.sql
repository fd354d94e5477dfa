-- table report_volume_by_month: Reports and patients per month, first category and status; entered-in-error included.
-- inputs: diagnostic_report
-- key: month, category_code, status
-- column month DATE internal: First day of the UTC month of effective_at; empty for reports without it.
-- column category_code VARCHAR internal: First category code of the reports.
-- column status VARCHAR internal: Status of the reports.
-- column reports BIGINT internal: Number of reports; they add up to diagnostic_report.
-- column patients BIGINT internal: Number of different patients among them; a patient counts in every row it appears
--   in.
SELECT
    date_trunc('month', effective_at)::DATE AS month,
    category_code,
    status,
    count(*) AS reports,
    count(DISTINCT patient_id) AS patients
FROM diagnostic_report
GROUP BY ALL
ORDER BY ALL

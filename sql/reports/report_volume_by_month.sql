-- table report_volume_by_month: Reports and patients per month, first category and status; entered-in-error included.
-- inputs: diagnostic_report
-- key: month, category_code, status
-- column month DATE: First day of the UTC month of effective_at; empty for reports without it.
-- column category_code VARCHAR: First category code of the reports.
-- column status VARCHAR: Status of the reports.
-- column reports BIGINT: Number of reports; they add up to diagnostic_report.
-- column patients BIGINT: Number of different patients among them; a patient counts in every row it appears in.
SELECT
    date_trunc('month', effective_at)::DATE AS month,
    category_code,
    status,
    count(*) AS reports,
    count(DISTINCT patient_id) AS patients
FROM diagnostic_report
GROUP BY ALL
ORDER BY ALL

-- table report_by_patient: One row per patient with reports, without entered-in-error.
-- inputs: diagnostic_report, swept_report
-- key: patient_id
-- column patient_id VARCHAR patient: Id of the patient.
-- column reports BIGINT value: Number of reports.
-- column first_effective_at TIMESTAMPTZ time: Earliest effective_at, UTC.
-- column last_effective_at TIMESTAMPTZ time: Latest effective_at, UTC.
-- column corrected BIGINT internal: Reports whose content a later sweep found changed.
SELECT
    report.patient_id,
    count(*) AS reports,
    min(report.effective_at) AS first_effective_at,
    max(report.effective_at) AS last_effective_at,
    count(*) FILTER (WHERE swept.changes > 0) AS corrected
FROM diagnostic_report AS report
INNER JOIN swept_report AS swept ON report.report_id = swept.report_id
WHERE report.status IS DISTINCT FROM 'entered-in-error' AND report.patient_id IS NOT NULL
GROUP BY report.patient_id
ORDER BY report.patient_id

-- table report_by_performer: One row per practitioner that reports are assigned to, without entered-in-error.
-- inputs: diagnostic_report, diagnostic_report_performer
-- key: practitioner_id
-- column practitioner_id VARCHAR key: Id of the practitioner.
-- column reports BIGINT count: Number of reports; one with several performers counts for each.
-- column patients BIGINT count: Number of different patients.
-- column p50_turnaround_hours DOUBLE hours of timed: Median of the turnaround hours that are not negative.
-- column timed BIGINT internal: Of the patients, those with a turnaround that is not negative.
SELECT
    performer.practitioner_id,
    count(*) AS reports,
    count(DISTINCT report.patient_id) AS patients,
    quantile_cont(report.turnaround_hours, 0.5) FILTER (WHERE report.turnaround_hours >= 0) AS p50_turnaround_hours,
    count(DISTINCT report.patient_id) FILTER (WHERE report.turnaround_hours >= 0) AS timed
FROM diagnostic_report_performer AS performer
INNER JOIN diagnostic_report AS report ON performer.report_id = report.report_id
WHERE report.status IS DISTINCT FROM 'entered-in-error'
GROUP BY performer.practitioner_id
ORDER BY performer.practitioner_id

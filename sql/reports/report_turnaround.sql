-- table report_turnaround: Hours from effective to issued per first category and first code, without entered-in-error.
-- inputs: diagnostic_report
-- key: category_code, code
-- column category_code VARCHAR cell: First category code of the reports.
-- column code VARCHAR cell: First code of the reports.
-- column code_display VARCHAR text: Display of the code; of several the last in alphabetical order.
-- column reports BIGINT count: Number of reports, those without turnaround included.
-- column p50_hours DOUBLE hours of timed: Median of the turnaround hours that are not negative.
-- column p90_hours DOUBLE hours of timed: 90th percentile of the turnaround hours that are not negative,
--   interpolated.
-- column max_hours DOUBLE internal: The longest turnaround.
-- column issued_before_effective BIGINT part of reports: Reports with a negative turnaround; they are in no percentile.
-- column patients BIGINT count: Number of different patients who have them.
-- column timed BIGINT internal: Of the patients, those with a turnaround that is not negative.
SELECT
    category_code,
    code,
    max(code_display) AS code_display,
    count(*) AS reports,
    quantile_cont(turnaround_hours, 0.5) FILTER (WHERE turnaround_hours >= 0) AS p50_hours,
    quantile_cont(turnaround_hours, 0.9) FILTER (WHERE turnaround_hours >= 0) AS p90_hours,
    max(turnaround_hours) FILTER (WHERE turnaround_hours >= 0) AS max_hours,
    count(*) FILTER (WHERE turnaround_hours < 0) AS issued_before_effective,
    count(DISTINCT patient_id) AS patients,
    count(DISTINCT patient_id) FILTER (WHERE turnaround_hours >= 0) AS timed
FROM diagnostic_report
WHERE status IS DISTINCT FROM 'entered-in-error'
GROUP BY category_code, code
ORDER BY category_code, code

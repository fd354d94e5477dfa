-- table diagnostic_report_result: One row per result of a report.
-- inputs: swept_report
-- references: report_id diagnostic_report
-- column report_id VARCHAR: Id of the report.
-- column observation_id VARCHAR: Id of the observation.
SELECT
    report_id,
    unnest(result_ids) AS observation_id
FROM swept_report
ORDER BY report_id, observation_id

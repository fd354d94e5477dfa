-- table diagnostic_report_performer: One row per performer of a report.
-- inputs: swept_report
-- key: report_id, practitioner_id
-- references: report_id diagnostic_report
-- column report_id VARCHAR key: Id of the report.
-- column practitioner_id VARCHAR key: Id of the practitioner the report is assigned to.
SELECT
    report_id,
    unnest(performer_ids) AS practitioner_id
FROM swept_report
ORDER BY report_id, practitioner_id

-- table diagnostic_report_result: One row per result of a report.
-- inputs: swept_report, observation
-- key: report_id, observation_id
-- references: report_id diagnostic_report
-- column report_id VARCHAR key: Id of the report.
-- column observation_id VARCHAR key: Id of the observation; of one within the report, as in observation.
-- column state VARCHAR code: read (it is in observation), other patient (it is there, of another patient) or not read.
--   A result is not read if the target shows no Observations, or not this one.
WITH named AS (
    SELECT
        report_id,
        patient_id,
        unnest(result_ids) AS observation_id
    FROM swept_report
)

SELECT
    named.report_id,
    named.observation_id,
    CASE
        WHEN observation.observation_id IS NULL THEN 'not read'
        WHEN observation.patient_id <> named.patient_id THEN 'other patient'
        ELSE 'read'
    END AS state
FROM named
LEFT JOIN observation ON named.observation_id = observation.observation_id
ORDER BY named.report_id, named.observation_id

-- Makes swept_response from the responses that the target shows (relation read_responses: report_id, which is the id of
-- the QuestionnaireResponse, body, first_seen_at, gone_at): a row for each, those that count no longer included. said
-- is how it names its questionnaire.
-- A body is parsed once: DuckDB holds 2,048 parsed bodies at once for each function that reads them.
WITH shaped AS (
    SELECT
        report_id,
        first_seen_at,
        gone_at,
        json_transform(body, '{
            "status": "VARCHAR",
            "subject": {"reference": "VARCHAR"},
            "questionnaire": "VARCHAR",
            "authored": "VARCHAR",
            "meta": {"lastUpdated": "VARCHAR"}
        }') AS response
    FROM read_responses
)

SELECT
    report_id AS response_id,
    gone_at IS NULL AND coalesce(response.status, '') IN ('completed', 'amended') AS counts,
    reference_id(response.subject.reference, 'Patient') AS patient_id,
    response.questionnaire AS said,
    moment(response.authored) AS authored_at,
    least(first_seen_at, moment(response.meta.lastupdated)) AS stored_at
FROM shaped

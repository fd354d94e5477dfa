-- Makes swept_response from the responses that the target shows (relation read_responses: report_id, which is the id of
-- the QuestionnaireResponse, body, gone_at): a row for each, those that count no longer included.
SELECT
    report_id AS response_id,
    gone_at IS NULL AND coalesce(body ->> '$.status', '') IN ('completed', 'amended') AS counts,
    reference_id(body ->> '$.subject.reference', 'Patient') AS patient_id,
    questionnaire_of(body ->> '$.questionnaire') AS questionnaire_id,
    moment(body ->> '$.authored') AS authored_at,
    answered_items(body) AS answered
FROM read_responses

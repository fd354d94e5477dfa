-- Makes sent_response from the bodies that the import made ready to send (relation sent: batch_id, line, run,
-- resource_type, body): a row for each response, as the last run of its file made it.
SELECT
    batch_id,
    line,
    questionnaire_of(body ->> '$.questionnaire') AS questionnaire_id,
    answered_items(body) AS answered
FROM sent
WHERE resource_type = 'QuestionnaireResponse'
QUALIFY row_number() OVER (PARTITION BY batch_id, line ORDER BY run DESC) = 1

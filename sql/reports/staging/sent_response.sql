-- Makes sent_response from landed, body_of_version and the bodies that the import made ready to send (relation sent): a
-- row for each response that the target has, as it was sent. said is how it names its questionnaire.
SELECT
    landed.resource_id AS response_id,
    sent.batch_id,
    sent.run,
    ledger_run.started_at,
    landed.finished_at,
    sent.body ->> '$.questionnaire' AS said
FROM landed
INNER JOIN body_of_version AS place
    ON
        landed.resource_type = place.resource_type
        AND landed.source = place.source
        AND landed.key = place.key
        AND landed.version IS NOT DISTINCT FROM place.version
INNER JOIN sent
    ON
        place.body_batch_id = sent.batch_id
        AND place.body_folder = sent.folder
        AND place.body_line = sent.line
LEFT JOIN ledger_run
    ON landed.target = ledger_run.target AND sent.batch_id = ledger_run.batch_id AND sent.run = ledger_run.run
WHERE landed.resource_type = 'QuestionnaireResponse'

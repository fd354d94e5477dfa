-- table questionnaire_response: One row per response that the import has made or adopted at the target of this
--   publication, as last sent; without those taken back. Answers are left out, and so are responses whose source rows
--   were purged.
-- inputs: ledger_record, ledger_batch, sent_response, this_publication
-- key: resource_id
-- references: batch_id import_batch
-- column resource_id VARCHAR: Id of the QuestionnaireResponse at the target.
-- column source VARCHAR: System that made the key.
-- column source_key VARCHAR: The response's key in its source.
-- column batch_id VARCHAR: Batch of the file that it was last sent from.
-- column feed VARCHAR: Feed that read the file.
-- column file_name VARCHAR: Name of the file as received.
-- column line BIGINT: First physical line of the record in that file.
-- column patient_id VARCHAR: Id of the patient.
-- column questionnaire_id VARCHAR: Id of the questionnaire that it answers.
-- column authored_at TIMESTAMPTZ: When it was given in its source, UTC; where that does not say, when it was sent.
-- column authored_is_own BOOLEAN: True if authored_at is from the source; else it is the time of sending.
-- column questions_answered BIGINT: Number of questions with an answer.
SELECT
    ledger_record.resource_id,
    ledger_record.source,
    ledger_record.key AS source_key,
    ledger_record.batch_id,
    ledger_batch.feed,
    ledger_batch.file_name,
    ledger_record.line,
    ledger_record.patient_id,
    sent_response.questionnaire_id,
    coalesce(ledger_record.source_at, ledger_record.finished_at) AS authored_at,
    ledger_record.source_at IS NOT NULL AS authored_is_own,
    len(sent_response.answered) AS questions_answered
FROM ledger_record
INNER JOIN this_publication ON ledger_record.target = this_publication.target
LEFT JOIN ledger_batch
    ON ledger_record.target = ledger_batch.target AND ledger_record.batch_id = ledger_batch.batch_id
INNER JOIN sent_response
    ON ledger_record.batch_id = sent_response.batch_id AND ledger_record.line = sent_response.line
WHERE
    ledger_record.resource_type = 'QuestionnaireResponse'
    AND ledger_record.state IN ('created', 'adopted', 'superseded')
ORDER BY ledger_record.resource_id

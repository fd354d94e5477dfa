-- table questionnaire_response: One row per response at the target of this publication. Those that the import has made
--   or adopted are as last sent. Those of others are as last read, where the target shows its responses. Responses that
--   were taken back, entered in error or gone have no row. A response of the import is gone if a reading of all
--   responses, an hour or more after it was made or adopted, did not find it. One that is to be superseded counts until
--   the target has the new one. Its answers are in answer.
-- inputs: landed, ledger_record, ledger_former, ledger_batch, said_answer, told_form, swept_response, whole_reading,
--   this_publication
-- key: resource_id
-- references: batch_id import_batch
-- column resource_id VARCHAR key: Id of the QuestionnaireResponse at the target.
-- column is_imported BOOLEAN code: True if the import made or adopted it; else it is of others.
-- column source VARCHAR code: System that made the key; empty for those of others, as are the next five columns.
-- column source_key VARCHAR text: The response's key in its source.
-- column batch_id VARCHAR internal: Batch of the file that it was last sent from.
-- column feed VARCHAR internal: Feed that read the file.
-- column file_name VARCHAR text: Name of the file as received.
-- column line BIGINT internal: First physical line of the record in that file.
-- column patient_id VARCHAR patient: Id of the patient.
-- column questionnaire_id VARCHAR term: Id of the questionnaire that it answers.
-- column authored_at TIMESTAMPTZ time: When it was given in its source, UTC; where that does not say, when it was sent.
-- column authored_is_own BOOLEAN code: True if authored_at is from the source; else it is the time of sending.
-- column questions_answered BIGINT value: Number of questions with an answer.
WITH answered AS (
    SELECT
        said_answer.response_id,
        count(DISTINCT said_answer.item_place) AS questions
    FROM said_answer
    SEMI JOIN told_form
        ON said_answer.response_id = told_form.response_id AND said_answer.is_sent = told_form.is_sent
    GROUP BY said_answer.response_id
),

own AS (
    SELECT
        landed.resource_id,
        TRUE AS is_imported,
        landed.source,
        landed.key AS source_key,
        landed.batch_id,
        ledger_batch.feed,
        ledger_batch.file_name,
        landed.line,
        landed.patient_id,
        told_form.questionnaire_id,
        coalesce(landed.source_at, sending_time(landed.finished_at)) AS authored_at,
        landed.source_at IS NOT NULL AS authored_is_own,
        coalesce(answered.questions, 0) AS questions_answered
    FROM landed
    INNER JOIN told_form ON landed.resource_id = told_form.response_id
    LEFT JOIN ledger_batch
        ON landed.target = ledger_batch.target AND landed.batch_id = ledger_batch.batch_id
    LEFT JOIN swept_response ON landed.resource_id = swept_response.response_id
    LEFT JOIN whole_reading ON landed.resource_type = whole_reading.resource_type
    LEFT JOIN answered ON landed.resource_id = answered.response_id
    WHERE
        landed.resource_type = 'QuestionnaireResponse'
        AND coalesce(swept_response.counts, landed.finished_at >= whole_reading.shows_until, TRUE)
),

known AS (
    SELECT *
    FROM ledger_record
    UNION ALL BY NAME
    SELECT *
    FROM ledger_former
),

made AS (
    SELECT known.resource_id
    FROM known
    SEMI JOIN this_publication ON known.target = this_publication.target
),

of_others AS (
    SELECT
        swept_response.response_id AS resource_id,
        FALSE AS is_imported,
        NULL AS source,
        NULL AS source_key,
        NULL AS batch_id,
        NULL AS feed,
        NULL AS file_name,
        NULL AS line,
        swept_response.patient_id,
        told_form.questionnaire_id,
        swept_response.authored_at,
        swept_response.authored_at IS NOT NULL AS authored_is_own,
        coalesce(answered.questions, 0) AS questions_answered
    FROM swept_response
    INNER JOIN told_form ON swept_response.response_id = told_form.response_id
    ANTI JOIN made ON swept_response.response_id = made.resource_id
    LEFT JOIN answered ON swept_response.response_id = answered.response_id
    WHERE swept_response.counts
)

SELECT *
FROM own
UNION ALL
SELECT *
FROM of_others
ORDER BY resource_id

-- table answer_by_question: How many responses answer each question of a questionnaire, counted as in
--   questionnaire_response. A question that no response answers has no row.
-- inputs: questionnaire_response, sent_response
-- key: questionnaire_id, link_id
-- column questionnaire_id VARCHAR: Id of the questionnaire.
-- column link_id VARCHAR: linkId of the question in it.
-- column responses BIGINT: Number of responses to the questionnaire.
-- column answered BIGINT: Of these, those that answer the question.
-- column answered_percent DOUBLE: Share of the responses that answer the question, in percent.
-- column answers BIGINT: Number of answers; more than answered where a question may have several.
WITH total AS (
    SELECT
        questionnaire_id,
        count(*) AS responses
    FROM questionnaire_response
    GROUP BY questionnaire_id
),

answered_question AS (
    SELECT
        response.questionnaire_id,
        response.resource_id,
        unnest(sent_response.answered) AS question
    FROM questionnaire_response AS response
    INNER JOIN sent_response
        ON response.batch_id = sent_response.batch_id AND response.line = sent_response.line
)

SELECT
    total.questionnaire_id,
    answered_question.question.linkid AS link_id,
    any_value(total.responses) AS responses,
    count(DISTINCT answered_question.resource_id) AS answered,
    100.0 * count(DISTINCT answered_question.resource_id) / any_value(total.responses) AS answered_percent,
    sum(len(answered_question.question.answer))::BIGINT AS answers
FROM answered_question
INNER JOIN total ON answered_question.questionnaire_id IS NOT DISTINCT FROM total.questionnaire_id
GROUP BY total.questionnaire_id, answered_question.question.linkid
ORDER BY total.questionnaire_id, link_id

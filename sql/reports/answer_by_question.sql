-- table answer_by_question: How many responses answer each question of a questionnaire, counted as in
--   questionnaire_response. A question that no response answers has no row.
-- inputs: questionnaire_response, answer
-- key: questionnaire_id, link_id
-- column questionnaire_id VARCHAR cell: Id of the questionnaire.
-- column link_id VARCHAR cell: linkId of the question in it.
-- column responses BIGINT count: Number of responses to the questionnaire.
-- column answered BIGINT part of responses: Of these, those that answer the question.
-- column answered_percent DOUBLE rate: Share of the responses that answer the question, in percent.
-- column answers BIGINT rate: Number of answers; more than answered where a question may have several.
WITH total AS (
    SELECT
        questionnaire_id,
        count(*) AS responses
    FROM questionnaire_response
    GROUP BY questionnaire_id
)

SELECT
    total.questionnaire_id,
    answer.link_id,
    any_value(total.responses) AS responses,
    count(DISTINCT answer.response_id) AS answered,
    100.0 * count(DISTINCT answer.response_id) / any_value(total.responses) AS answered_percent,
    count(*) AS answers
FROM answer
INNER JOIN total ON answer.questionnaire_id IS NOT DISTINCT FROM total.questionnaire_id
GROUP BY total.questionnaire_id, answer.link_id
ORDER BY total.questionnaire_id, answer.link_id

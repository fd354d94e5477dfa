-- table score: One row per response and score of its questionnaire, counted as in questionnaire_response. The values of
--   options are those that the questionnaire declares, else those of the file in scores that names it.
-- inputs: questionnaire_response, questionnaire, answer, known_score, known_score_item, known_score_value,
--   known_score_band
-- key: response_id, score_name
-- column response_id VARCHAR key: Id of the QuestionnaireResponse at the target.
-- column patient_id VARCHAR patient: Id of the patient.
-- column questionnaire_id VARCHAR term: Id of the questionnaire.
-- column questionnaire VARCHAR words: Name of the questionnaire.
-- column score_name VARCHAR words: Name of the score, such as PHQ-9.
-- column value DOUBLE value: The score; of an incomplete one that of the answers given. A sum with permitted gaps is
--   their mean times the number of questions.
-- column complete BOOLEAN code: True if no more questions are missing than the score permits. Count complete ones
--   alone.
-- column missing BIGINT value: Number of questions of the score without an answer that counts. Those without any answer
--   that are asked only under a condition are left out.
-- column questions BIGINT value: Number of questions of the score.
-- column band VARCHAR words: What the value means, such as mild; empty for an incomplete score.
-- column authored_at TIMESTAMPTZ time: When the response was given in its source, UTC; where that does not say, when it
--   was sent.
WITH given AS (
    SELECT
        answer.response_id,
        item.score_name,
        item.link_id,
        item.turns,
        item.lowest,
        item.highest,
        coalesce(option_value.value, answer.number) AS value,
        coalesce(option_value.ends, FALSE) AS ends
    FROM answer
    INNER JOIN known_score_item AS item
        ON answer.questionnaire_id = item.questionnaire_id AND answer.link_id = item.link_id
    LEFT JOIN known_score_value AS option_value
        ON
            item.score_name = option_value.score_name
            AND item.questionnaire_id = option_value.questionnaire_id
            AND item.link_id = option_value.link_id
            AND answer.option_system IS NOT DISTINCT FROM option_value.system
            AND answer.option_code = option_value.code
),

answered AS (
    SELECT
        response_id,
        score_name,
        link_id,
        CASE
            WHEN count(value) < count(*) THEN NULL
            WHEN any_value(turns) THEN any_value(lowest + highest) - sum(value)
            ELSE sum(value)
        END AS value,
        bool_or(ends) AS ends
    FROM given
    GROUP BY response_id, score_name, link_id
),

total AS (
    SELECT
        response_id,
        score_name,
        count(value) AS answers,
        sum(value) AS value,
        bool_or(ends) AS ends
    FROM answered
    GROUP BY response_id, score_name
),

left_out AS (
    SELECT
        response.resource_id AS response_id,
        item.score_name,
        count(*) AS questions
    FROM questionnaire_response AS response
    INNER JOIN known_score_item AS item ON response.questionnaire_id = item.questionnaire_id
    LEFT JOIN answered
        ON
            response.resource_id = answered.response_id
            AND item.score_name = answered.score_name
            AND item.link_id = answered.link_id
    WHERE item.is_conditional AND answered.link_id IS NULL
    GROUP BY response.resource_id, item.score_name
),

scored AS (
    SELECT
        response.resource_id AS response_id,
        response.patient_id,
        response.questionnaire_id,
        response.authored_at,
        known_score.score_name,
        known_score.method,
        known_score.items AS questions,
        known_score.missing_allowed,
        coalesce(total.answers, 0) AS answers,
        total.value AS total,
        coalesce(total.ends, FALSE) AS ends,
        CASE
            WHEN total.ends THEN 0
            ELSE known_score.items - coalesce(total.answers, 0) - coalesce(left_out.questions, 0)
        END AS missing
    FROM questionnaire_response AS response
    INNER JOIN known_score ON response.questionnaire_id = known_score.questionnaire_id
    LEFT JOIN total ON response.resource_id = total.response_id AND known_score.score_name = total.score_name
    LEFT JOIN left_out
        ON response.resource_id = left_out.response_id AND known_score.score_name = left_out.score_name
),

valued AS (
    SELECT
        *,
        missing <= missing_allowed AND answers > 0 AS complete,
        CASE
            WHEN answers = 0 THEN NULL
            WHEN method = 'mean' THEN total / answers
            WHEN missing BETWEEN 1 AND missing_allowed THEN total / answers * (answers + missing)
            ELSE total
        END AS value
    FROM scored
)

SELECT
    valued.response_id,
    valued.patient_id,
    valued.questionnaire_id,
    questionnaire.name AS questionnaire,
    valued.score_name,
    valued.value,
    valued.complete,
    valued.missing,
    valued.questions,
    CASE WHEN valued.complete THEN (
        SELECT known_score_band.label
        FROM known_score_band
        WHERE known_score_band.score_name = valued.score_name AND known_score_band.from_value <= valued.value
        ORDER BY known_score_band.from_value DESC
        LIMIT 1
    ) END AS band,
    valued.authored_at
FROM valued
LEFT JOIN questionnaire ON valued.questionnaire_id = questionnaire.questionnaire_id
ORDER BY valued.response_id, valued.score_name

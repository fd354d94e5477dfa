-- table answer: One row per answer of a response, counted as in questionnaire_response.
-- inputs: questionnaire_response, said_answer, told_form, swept_response, questionnaire, question, answer_option
-- key: response_id, link_id, position
-- column response_id VARCHAR key: Id of the QuestionnaireResponse at the target; resource_id of questionnaire_response.
-- column patient_id VARCHAR patient: Id of the patient.
-- column questionnaire_id VARCHAR term: Id of the questionnaire.
-- column questionnaire VARCHAR words: Name of the questionnaire.
-- column link_id VARCHAR term: linkId of the question.
-- column position BIGINT code: Place of the answer among those to the question, from 1.
-- column question_code VARCHAR code: First code of the question.
-- column kind VARCHAR code: choice, number or text.
-- column option_system VARCHAR term: System of the chosen option's code.
-- column option_code VARCHAR term of option_system: Code of the chosen option.
-- column option_display VARCHAR words: The chosen option in words.
-- column number DOUBLE value: The number answered.
-- column text VARCHAR text: The answer in free text; empty unless the setting publish_free_text is set.
-- column authored_at TIMESTAMPTZ time: When the response was given in its source, UTC; where that does not say, when it
--   was sent.
WITH answered AS (
    SELECT
        response.resource_id AS response_id,
        response.patient_id,
        response.questionnaire_id,
        response.authored_at,
        said_answer.item_place,
        said_answer.answer_place,
        said_answer.link_id,
        said_answer.kind,
        said_answer.system,
        said_answer.code,
        said_answer.number,
        said_answer.text
    FROM questionnaire_response AS response
    INNER JOIN told_form ON response.resource_id = told_form.response_id
    INNER JOIN said_answer
        ON told_form.response_id = said_answer.response_id AND told_form.is_sent = said_answer.is_sent
),

option_in_words AS (
    SELECT
        questionnaire_id,
        link_id,
        system,
        code,
        min(display) AS display
    FROM answer_option
    GROUP BY questionnaire_id, link_id, system, code
)

SELECT
    answered.response_id,
    answered.patient_id,
    answered.questionnaire_id,
    questionnaire.name AS questionnaire,
    answered.link_id,
    row_number() OVER (
        PARTITION BY answered.response_id, answered.link_id ORDER BY answered.item_place, answered.answer_place
    ) AS position,
    question.code AS question_code,
    answered.kind,
    answered.system AS option_system,
    answered.code AS option_code,
    option_in_words.display AS option_display,
    answered.number,
    answered.text,
    answered.authored_at
FROM answered
LEFT JOIN questionnaire ON answered.questionnaire_id = questionnaire.questionnaire_id
LEFT JOIN question
    ON answered.questionnaire_id = question.questionnaire_id AND answered.link_id = question.link_id
LEFT JOIN option_in_words
    ON
        answered.questionnaire_id = option_in_words.questionnaire_id
        AND answered.link_id = option_in_words.link_id
        AND answered.system IS NOT DISTINCT FROM option_in_words.system
        AND answered.code = option_in_words.code
WHERE answered.kind IS NOT NULL
ORDER BY answered.response_id, answered.item_place, answered.answer_place

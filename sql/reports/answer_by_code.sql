-- table answer_by_code: How often each option of a choice question was answered, counted as in questionnaire_response.
-- inputs: questionnaire_response, sent_response
-- key: questionnaire_id, link_id, system, code
-- column questionnaire_id VARCHAR: Id of the questionnaire.
-- column link_id VARCHAR: linkId of the question in it.
-- column system VARCHAR: System of the option's code.
-- column code VARCHAR: The option's code.
-- column answers BIGINT: Number of answers with it.
-- column patients BIGINT: Number of different patients who gave it.
WITH answered_question AS (
    SELECT
        response.questionnaire_id,
        response.patient_id,
        unnest(sent_response.answered) AS question
    FROM questionnaire_response AS response
    INNER JOIN sent_response
        ON response.batch_id = sent_response.batch_id AND response.line = sent_response.line
),

given_answer AS (
    SELECT
        questionnaire_id,
        patient_id,
        question.linkid AS link_id,
        unnest(question.answer).valuecoding AS coding
    FROM answered_question
)

SELECT
    questionnaire_id,
    link_id,
    coding.system,
    coding.code,
    count(*) AS answers,
    count(DISTINCT patient_id) AS patients
FROM given_answer
WHERE coding.code IS NOT NULL
GROUP BY questionnaire_id, link_id, coding.system, coding.code
ORDER BY questionnaire_id, link_id, coding.system, coding.code

-- table answer_by_code: How often each option of a choice question was answered, counted as in questionnaire_response.
-- inputs: answer
-- key: questionnaire_id, link_id, system, code
-- column questionnaire_id VARCHAR cell: Id of the questionnaire.
-- column link_id VARCHAR cell: linkId of the question in it.
-- column system VARCHAR cell: System of the option's code.
-- column code VARCHAR cell: The option's code.
-- column display VARCHAR words: The option in words.
-- column answers BIGINT count: Number of answers with it.
-- column patients BIGINT count: Number of different patients who gave it.
SELECT
    questionnaire_id,
    link_id,
    option_system AS system,
    option_code AS code,
    any_value(option_display) AS display,
    count(*) AS answers,
    count(DISTINCT patient_id) AS patients
FROM answer
WHERE option_code IS NOT NULL
GROUP BY questionnaire_id, link_id, option_system, option_code
ORDER BY questionnaire_id, link_id, option_system, option_code
